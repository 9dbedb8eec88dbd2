"""One call has one meaning: the same pieces, or an error of the same class, in every mode of torch.

The reference is the plain call. A row is a call; a way is a mode in which torch runs it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import dmlsplit as dml

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from tests.support.torch_tensors import REFUSED, Image  # noqa: E402  (it imports PyTorch)

# Torch's own modules of derivatives, of its compiler and of its quantized and sparse tensors.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`isinstance.treespec:FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning"),
]


class Call(NamedTuple):
    """``dml.split(array, sizes, axis, out)``; ``out`` makes the outputs from the array."""

    sizes: Any = (2, 4)
    axis: Any = 0
    array: Callable[[], Any] = lambda: torch.arange(6.0)
    out: Callable[[Any], Any] | None = None


def of_type(name: str) -> Callable[[], Any]:
    dtype = getattr(torch, name)
    return lambda: torch.arange(1, 1 + 6 * dtype.itemsize, dtype=torch.uint8).view(dtype)


def complex_() -> Any:
    return torch.arange(12.0).view(torch.complex64)


def two() -> list[Any]:
    return [torch.zeros(2), torch.zeros(4)]


MATRIX: Callable[[], Any] = lambda: torch.arange(24.0).reshape(4, 6)  # noqa: E731
GOOD = {
    "sizes": Call(),
    "list": Call([2, 4]),
    "count": Call(3),
    "numpy_count": Call(np.int64(3)),
    "0-d_count": Call(torch.tensor(3)),
    "range": Call(range(4)),
    "array_of_sizes": Call(np.array([2, 4])),
    "tensor_of_sizes": Call(torch.tensor([2, 4])),
    "torch_size": Call(torch.Size([2, 4])),
    "empty_piece": Call((0, 6, 0)),
    "no_elements": Call((2, 4), 1, lambda: torch.zeros(0, 6)),
    "axis": Call((1, 5), 1, MATRIX),
    "axis_from_end": Call((1, 3), -2, MATRIX),
    "transposed": Call((2, 4), 0, lambda: MATRIX().t()),
    "step": Call((1, 2), 1, lambda: MATRIX()[1:, ::2]),
    "expanded": Call((1, 2), 0, lambda: torch.arange(6.0).expand(3, 6)),
    "parameter": Call(array=lambda: torch.nn.Parameter(torch.arange(6.0), requires_grad=False)),
    "conj": Call(array=lambda: complex_().conj()),
    "neg": Call(array=lambda: torch._neg_view(torch.arange(6.0))),
    "conj_and_neg": Call(array=lambda: torch._neg_view(complex_().conj())),
    "imaginary_part": Call(array=lambda: complex_().conj().imag),
    "meta": Call(array=lambda: torch.empty(6, device="meta")),
    **{
        f"type_{name}": Call(array=of_type(name))
        for name in ("bool", "uint16", "int64", "bfloat16", "float8_e5m2", "complex64", "complex32")
    },
    "out": Call(out=lambda x: two()),
    "out_tuple": Call(out=lambda x: tuple(two())),
    "out_count": Call(2, out=lambda x: [torch.zeros(3), torch.zeros(3)]),
    "out_of_one_store": Call(out=lambda x: list(torch.zeros(6).split([2, 4]))),
    "out_columns": Call((2, 4), 1, MATRIX, lambda x: list(torch.zeros(4, 6).split([2, 4], 1))),
    "out_beside_array": Call(
        array=lambda: torch.arange(12.0)[:6], out=lambda x: list(x._base[6:].split([2, 4]))
    ),
    "out_of_conj": Call(
        array=lambda: complex_().conj(),
        out=lambda x: [torch.zeros(size, dtype=x.dtype) for size in (2, 4)],
    ),
}
BAD = {
    "set": Call({2, 4}),
    "dictionary": Call({2: 0, 4: 0}),
    "text": Call("24"),
    "True_in_sizes": Call((True, 5)),
    "True": Call(True),
    "fraction": Call((2.0, 4.0)),
    "None": Call(None),
    "no_sizes": Call(()),
    "sum": Call((2, 3)),
    "negative": Call((-1, 7)),
    "uneven_count": Call(4),
    "count_0": Call(0),
    "count_negative": Call(-1),
    "axis_too_large": Call((2, 4), 1),
    "axis_too_small": Call((2, 4), -2),
    "axis_text": Call((2, 4), "0"),
    "axis_True": Call((2, 4), True),
    "axis_None": Call((2, 4), None),
    "scalar": Call(1, 0, lambda: torch.tensor(1.0)),
    **{name: Call(array=make) for name, make in REFUSED.items()},
    "out_too_few": Call(out=lambda x: two()[:1]),
    "out_tensor": Call(2, out=lambda x: torch.zeros(2, 3)),
    "out_shape": Call(out=lambda x: [torch.zeros(4), torch.zeros(2)]),
    "out_type": Call(out=lambda x: [torch.zeros(2), torch.zeros(4, dtype=torch.int32)]),
    "out_device": Call(out=lambda x: [torch.zeros(2), torch.zeros(4, device="meta")]),
    "out_of_the_array": Call(2, out=lambda x: [x[:3], x[3:]]),
    "out_the_array": Call(1, out=lambda x: [x]),
    "out_overlapping": Call(out=lambda x: [(whole := torch.zeros(5))[:2], whole[1:]]),
    "out_twice": Call(2, out=lambda x: [torch.zeros(3)] * 2),
    "out_expanded": Call(out=lambda x: [torch.zeros(1).expand(2), torch.zeros(4)]),
    "out_leaf": Call(out=lambda x: [torch.zeros(2, requires_grad=True), torch.zeros(4)]),
    "out_with_gradient": Call(out=lambda x: [two()[0], torch.zeros(4, requires_grad=True) * 1]),
    "out_conj": Call(
        array=complex_,
        out=lambda x: [torch.zeros(2, dtype=x.dtype), torch.zeros(4, dtype=x.dtype).conj()],
    ),
    "out_neg": Call(out=lambda x: [two()[0], torch._neg_view(torch.zeros(4))]),
    "out_subclass": Call(out=lambda x: [two()[0], torch.zeros(4).as_subclass(Image)]),
}

ROWS = {**GOOD, **BAD}


def plain(call: Call, array: Any, out: Any) -> Any:
    return dml.split(array, call.sizes, call.axis, out)


def compiled(backend: str) -> Callable[[Call, Any, Any], Any]:
    def way(call: Call, array: Any, out: Any) -> Any:
        torch.compiler.reset()
        torch._dynamo.utils.counters.clear()
        split = torch.compile(lambda x, y: dml.split(x, call.sizes, call.axis, y), backend=backend)
        return split(array, out)

    return way


def fake(call: Call, array: Any, out: Any) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()
    array, out = torch.utils._pytree.tree_map_only(torch.Tensor, mode.from_tensor, (array, out))
    with mode:
        return plain(call, array, out)


def exported(call: Call, array: Any, out: Any) -> Any:
    class Split(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any, y: Any) -> Any:
            return plain(call, x, y)

    return torch.export.export(Split(), (array, out), strict=False).module()(array, out)


def tracked(call: Call, array: Any, out: Any) -> Any:
    if array.is_floating_point() or array.is_complex():
        array.requires_grad_()
    return plain(call, array, out)


def batched(call: Call, array: Any, out: Any) -> Any:
    batch = torch.stack([torch.zeros_like(array), array])
    return [piece[1] for piece in torch.func.vmap(lambda x: plain(call, x, out))(batch)]


WAYS = {
    "eager": compiled("eager"),
    "aot_eager": compiled("aot_eager"),
    "fake": fake,
    "export": exported,
    "autograd": tracked,
    "vmap": batched,
}
# These calls are refused before there is a graph for a backend.
NO_GRAPH = {*BAD} - set("no_sizes sum negative uneven_count count_0 count_negative".split())
# Torch itself makes another tensor of these, or fails on them, before it calls the split.
NOT_ASKED = {
    # The other backend runs the same graph, but writes to `out` in another way.
    "eager": {row for row in ROWS if row in BAD or not row.startswith("out")},
    "aot_eager": {"quint4x2"},
    "fake": {"0-d_count", "tensor_of_sizes", "subclass", "quantized", "quint4x2", "out_subclass"},
    "export": {"tensor_of_sizes", "0-d_count", "subclass", "quantized", "quint4x2", "out_subclass"},
    "autograd": set(),
    "vmap": {"subclass", "wrapper", "quantized", "quint4x2"},
}
# Compilers are slow, so only the cases of `QUICK` run without these options.
COMPILED = {"eager": pytest.mark.slow, "aot_eager": pytest.mark.exhaustive}
QUICK = {
    ("aot_eager", row)
    for row in "sizes conj set True_in_sizes axis_too_large wrapper out out_type out_of_the_array "
    "out_with_gradient".split()
}
CASES = [
    pytest.param(
        way, row, marks=COMPILED[way] if way in COMPILED and (way, row) not in QUICK else []
    )
    for way in WAYS
    for row in ROWS
    if row not in NOT_ASKED[way]
]


def described(piece: Any, has_values: bool) -> tuple[Any, ...]:
    data = piece.detach().contiguous().view(torch.uint8).tolist() if has_values else None
    return tuple(piece.shape), piece.dtype, piece.stride(), piece.device, piece.is_conj(), data


def values(out: Any) -> str:
    return repr(torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, out))


def outcome(call: Call, way: Callable[[Call, Any, Any], Any], has_values: bool) -> Any:
    """Describe the pieces, or say that the call was refused and wrote nothing."""
    array = call.array()
    out = None if call.out is None else call.out(array)
    before = values(out)
    try:
        pieces = way(call, array, out)
    except dml.InvalidArgumentError:
        assert values(out) == before
        return "refused"
    return [described(piece, has_values) for piece in pieces]


@pytest.mark.parametrize("row", ROWS)
def test_an_eager_call_accepts_valid_arguments_and_refuses_invalid_ones(row: str) -> None:
    assert (outcome(ROWS[row], plain, False) == "refused") == (row in BAD)


@pytest.mark.parametrize(("way", "row"), CASES)
def test_a_call_has_one_outcome_in_every_mode_of_torch(way: str, row: str) -> None:
    call = ROWS[row]
    has_values = way != "fake" and row != "meta"  # otherwise, pieces have only types and shapes
    in_this_mode = outcome(call, WAYS[way], has_values)
    if call.out is not None and way in ("autograd", "vmap"):
        # Outputs that are written have no gradient and no batch.
        assert in_this_mode == "refused"
    else:
        assert in_this_mode == outcome(call, plain, has_values)
    if way in COMPILED:
        has_graph = bool(torch._dynamo.utils.counters["stats"])
        assert has_graph == (row not in NO_GRAPH)
