"""`dml.split` in graphs of PyTorch: torch.compile, torch.export, FakeTensors, the operators."""

import sys
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import dmlsplit as dml
from tests.support.command import ran

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
# Torch's own modules of derivatives and of its compiler.
pytestmark = pytest.mark.filterwarnings(
    "ignore:`torch.jit:DeprecationWarning", "ignore:`isinstance.treespec:FutureWarning"
)


@pytest.fixture
def ops() -> Any:
    """The operators, called without `dml.split`."""
    import dmlsplit.execution.torch  # noqa: F401  registers them

    return torch.ops.dmlsplit


def inputs(ops: Any) -> Iterable[tuple[Any, tuple[Any, ...]]]:
    x = torch.arange(36).reshape(3, 6, 2)
    for source in (x, x.transpose(0, 2).bfloat16()):
        outs = [piece.contiguous() for piece in source.split([2, 0, 4], 1)]
        yield ops.split_out.default, (source, [2, 0, 4], 1, outs)
        yield ops.split.default, (source, [2, 0, 4], -2)
    yield ops.split.default, (torch.rand(4, 6, requires_grad=True), [1, 5], -1)


def test_the_operators_pass_torchs_own_checks(ops: Any) -> None:
    pytest.importorskip("expecttest", reason="opcheck needs expecttest")
    for op, arguments in inputs(ops):
        results = torch.library.opcheck(op, arguments)
        assert set(results.values()) == {"SUCCESS"}


def columns(x: Any) -> Any:
    return dml.split(x, (2, 3), 1)


def equal(x: Any) -> Any:
    return dml.split(x * 2, 3)


def computed(x: Any) -> Any:
    return dml.split(x, (2, x.shape[0] - 2))


def into(x: Any) -> Any:
    outs = [torch.empty(x.shape[0], size) for size in (2, 3)]
    return [out + 1 for out in dml.split(x, (2, 3), 1, out=outs)]


WIDTHS = {columns: 5, equal: 7, computed: 7, into: 5}
ROWS = (6, 12, 15, 21, 30)


def graphs(function: Callable[[Any], Any], backend: str, rows: Iterable[int]) -> int:
    """Compare a function compiled and not compiled, on many shapes; return the number of graphs."""
    from torch._dynamo.testing import CompileCounterWithBackend

    torch.compiler.reset()
    counter = CompileCounterWithBackend(backend)
    compiled_function = torch.compile(function, fullgraph=True, dynamic=True, backend=counter)
    for count in rows:
        x = torch.rand(count, WIDTHS[function])
        for piece, expected in zip(compiled_function(x), function(x), strict=True):
            assert torch.equal(piece, expected)
            assert piece.stride() == expected.stride()
    return int(counter.frame_count)


@pytest.mark.parametrize("function", WIDTHS)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_new_shapes_need_no_new_graph(function: Callable[[Any], Any], backend: str) -> None:
    assert graphs(function, backend, ROWS) == 1


def code_of(function: Callable[[Any], Any], x: Any) -> str:
    """Inductor's code of a function, whose pieces are compared."""
    from torch._inductor import config
    from torch._inductor.utils import run_and_get_code

    torch.compiler.reset()
    compiled_function = torch.compile(function, fullgraph=True, dynamic=True)
    with config.patch(fx_graph_cache=False):
        pieces, code = run_and_get_code(compiled_function, x)
    assert all(map(torch.equal, pieces, function(x)))
    return "".join(code)


@pytest.mark.slow
@pytest.mark.usefixtures("inductor")
@pytest.mark.parametrize("is_ci", [False, True])
def test_inductor_fuses_the_copies_on_the_cpu_and_calls_the_operator_elsewhere(
    is_ci: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dmlsplit.execution import torch_operators as own

    # Where CI is set, Inductor refuses operators that have a decomposition too.
    monkeypatch.setenv("CI", "true") if is_ci else monkeypatch.delenv("CI", raising=False)
    assert "dmlsplit" not in code_of(equal, torch.rand(6, 2))

    class Elsewhere:
        """A tensor that says that it is on a GPU."""

        device = torch.device("cuda")

    decomposed = own._decomposed
    table = sys.modules["torch._inductor.decomposition"].select_decomp_table()
    monkeypatch.setitem(table, own.SPLIT, lambda array, *rest: decomposed(Elsewhere(), *rest))
    assert "dmlsplit" in code_of(equal, torch.rand(9, 2))


@pytest.mark.slow
def test_inductor_needs_one_graph_for_new_shapes(inductor: str) -> None:
    for function in WIDTHS:
        assert graphs(function, inductor, (6, 12)) == 1


FIRST = """
import sys, torch, dmlsplit as dml
from torch._inductor.utils import run_and_get_code
if "early" in sys.argv:  # with its tables of decompositions
    torch.compile(lambda x: x + 1)(torch.rand(3))
def halves(x): return dml.split(x + 1, 2)
x = torch.rand(6, requires_grad=True)
pieces, code = run_and_get_code(torch.compile(halves), x)
print(torch.equal(torch.cat(pieces), x + 1), "dmlsplit" in "".join(code))
"""


@pytest.mark.usefixtures("inductor")
@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("early", marks=pytest.mark.slow),
        pytest.param("late", marks=pytest.mark.exhaustive),
    ],
)
def test_the_first_compiled_split_of_a_process_is_fused(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
    process = ran(sys.executable, "-W", "ignore", "-c", FIRST, moment)
    assert process.stdout == "True False\n", process.stderr


@pytest.mark.parametrize("function", [columns, equal, computed])
def test_compiled_gradients_are_those_of_torch(function: Callable[[Any], Any]) -> None:
    compiled_function = torch.compile(function, fullgraph=True, dynamic=True, backend="aot_eager")
    for count in ROWS:
        x = torch.rand(count, WIDTHS[function], requires_grad=True)

        def gradient(split: Callable[[Any], Any], x: Any = x) -> Any:
            first, *_, last = split(x)
            return torch.autograd.grad((first**2).sum() + last.sum(), x)[0]

        assert torch.equal(gradient(compiled_function), gradient(function))


def test_a_compiled_split_accepts_parameters_and_strides() -> None:
    layer = torch.nn.Linear(4, 6)

    def forward(x: Any) -> Any:
        left_weight, right_weight = dml.split(layer.weight, 2)
        return x @ left_weight.t(), *dml.split(x.t(), 2), right_weight

    compiled_forward = torch.compile(forward, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        y = torch.rand(4, 12).t()[::2]
        for output, expected in zip(compiled_forward(y), forward(y), strict=True):
            assert torch.equal(output, expected)
    x = torch.rand(6, 4)
    for output, expected in zip(compiled_forward(x), forward(x), strict=True):
        assert torch.equal(output, expected)


@pytest.mark.parametrize(
    ("sizes", "axis", "message"),
    [
        *((sizes, 0, r"sizes are \[") for sizes in (4, (2, 3), (-1, 7), 0)),
        (2, 5, "axis is 5; it must be from -1 to 0"),
    ],
)
def test_compiling_a_call_with_invalid_sizes_or_axis_is_an_error_that_names_the_value(
    sizes: Any, axis: int, message: str
) -> None:
    compiled_split = torch.compile(
        lambda x: dml.split(x, sizes, axis), fullgraph=True, backend="eager"
    )
    with pytest.raises(RuntimeError, match=message):
        compiled_split(torch.rand(6))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_dim_and_axis_mean_the_same_in_compiled_code(backend: str) -> None:
    def split_by_dim_and_axis(x: Any) -> Any:
        outs = [torch.empty(2, 1), torch.empty(2, 3)]
        return *dml.split(x, 2, dim=-1), *dml.split(x, (1, 3), dim=1, out=outs), *dml.split(x, 2)

    x = torch.rand(2, 4)
    pieces = torch.compile(split_by_dim_and_axis, fullgraph=True, backend=backend)(x)
    expected_pieces = (*x.split(2, 1), *x.split([1, 3], 1), *x.split(1))
    assert all(map(torch.equal, pieces, expected_pieces))
    with pytest.raises(dml.InvalidArgumentError, match=r"^axis is 0 and dim is 1, two names"):
        torch.compile(lambda x: dml.split(x, 2, 0, dim=1), backend=backend)(x)


EARLY = """
import warnings
warnings.simplefilter("error")
from dmlsplit import split
import torch
f = torch.compile(lambda x: split(x, 2), fullgraph=True, backend="eager")
print([piece.tolist() for piece in f(torch.arange(4))])
"""


def test_the_first_call_in_a_process_may_be_compiled() -> None:
    """This holds even if dmlsplit was imported before torch and could not prepare anything."""
    process = ran(sys.executable, "-c", EARLY)
    assert process.stdout == "[[0, 1], [2, 3]]\n", process.stderr


EAGER_CALL = """
torch._dynamo.config.error_on_recompile = True
split(torch.arange(4), 2)
print([piece.tolist() for piece in f(torch.arange(4))])
"""


def test_the_first_eager_call_does_not_make_torch_compile_a_graph_again() -> None:
    process = ran(sys.executable, "-c", EARLY + EAGER_CALL)
    assert process.stdout == "[[0, 1], [2, 3]]\n" * 2, process.stderr


class Columns(torch.nn.Module):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        return dml.split(x, (2, x.shape[0] - 2))


@pytest.mark.parametrize("strict", [True, False])
def test_an_exported_program_takes_inputs_of_other_sizes(strict: bool) -> None:
    rows = torch.export.Dim("rows", min=4)
    x = torch.rand(6, 2)
    program = torch.export.export(Columns(), (x,), dynamic_shapes=({0: rows},), strict=strict)
    call_targets = {node.target for node in program.graph.nodes}
    assert torch.ops.dmlsplit.split.default in call_targets
    larger_input = torch.rand(9, 2)
    assert all(map(torch.equal, program.module()(larger_input), larger_input.split([2, 7])))


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_a_traced_graph_holds_the_split(mode: str) -> None:
    """If real tensors were split during tracing, their pieces would be constants of the graph."""
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(lambda x: dml.split(x, 2, 1), tracing_mode=mode)(torch.rand(3, 6))
    second_input = torch.rand(3, 6)
    assert all(map(torch.equal, graph(second_input), second_input.split(3, 1)))


def test_a_mode_that_sees_every_operator_sees_the_split() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    operators = []

    class Seen(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            operators.append(func)
            return func(*args, **(kwargs or {}))

    x = torch.arange(6.0)
    with Seen():
        pieces = dml.split(x, 2)
    assert operators == [torch.ops.dmlsplit.split.default]
    assert torch.equal(torch.cat(pieces), x)


def test_only_large_tensors_that_require_grad_use_the_operators(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from dmlsplit.execution import torch as tracked

    monkeypatch.delattr(tracked, "_split_tracked")
    small, weight = (torch.nn.Parameter(torch.rand(size)) for size in (6, 2 << 20))
    assert torch.equal(torch.cat(dml.split(small, 2)), small)
    assert torch.equal(torch.cat(dml.split(weight.detach(), 2)), weight)
    with torch.no_grad():
        assert torch.equal(torch.cat(dml.split(weight, 2)), weight)
    with pytest.raises(NameError):
        dml.split(weight, 2)


@pytest.mark.parametrize("transform", ["vmap", "jvp"])
def test_a_compiled_transform_refuses_out_and_does_not_write_to_it(transform: str) -> None:
    x, outs = torch.rand(2, 6), [torch.zeros(2, 3), torch.zeros(2, 3)]

    def into(x: Any) -> Any:
        return tuple(dml.split(x, 2, -1, out=outs))

    calls = {
        "vmap": lambda x: torch.func.vmap(into)(x),
        "jvp": lambda x: torch.func.jvp(into, (x,), (x,)),
    }
    with pytest.raises(dml.InvalidArgumentError, match="inside a transform"):
        torch.compile(calls[transform], backend="eager")(x)
    assert not any(out.any() for out in outs)


def test_a_compiled_split_refuses_out_if_the_input_requires_grad() -> None:
    x = torch.rand(6, requires_grad=True)
    outs = [torch.zeros(3), torch.zeros(3)]
    compiled_split = torch.compile(lambda x: dml.split(x, 2, out=outs), backend="eager")
    with pytest.raises(dml.InvalidArgumentError, match="out is given, but array requires grad"):
        compiled_split(x)
    with torch.no_grad():
        compiled_split(x)
    assert torch.equal(torch.cat(outs), x.detach())


@pytest.mark.parametrize("count", [4, 4 << 20])
def test_a_trace_before_autograd_records_the_split(count: int) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    def into(x: Any) -> Any:
        return dml.split(x, 2, out=[torch.zeros(count // 2) for _ in range(2)])

    for split in (into, lambda x: dml.split(x, 2)):
        graph = make_fx(split, pre_dispatch=True)(torch.zeros(count))
        assert graph(torch.ones(count))[1].all()
