"""PyTorch's tensors, on the CPU."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

import dmlsplit as dml
from dmlsplit.arrays.adapter import NewArrays
from dmlsplit.arrays.torch_adapter import TORCH
from tests.support.command import ran
from tests.support.gpu_arrays import compiled_split


@pytest.fixture
def torch() -> Any:
    """PyTorch; a test that takes it is skipped where it is not installed."""
    return pytest.importorskip("torch", reason="PyTorch is not installed")


def test_an_output_of_another_torch_type_of_the_same_size_is_refused(torch: Any) -> None:
    source = torch.zeros(4, dtype=torch.float8_e4m3fn)
    out = torch.zeros(4, dtype=torch.float8_e5m2)
    with pytest.raises(dml.InvalidArgumentError, match=r"type is float8_e5m2.*float8_e4m3fn"):
        dml.split(source, 1, out=[out])


def test_operators_and_out_refuse_tensors_that_require_grad(torch: Any) -> None:
    tracked, plain = torch.ones(6, requires_grad=True), torch.zeros(6)
    op = compiled_split((6,), (6,), axis=0, device="cpu")
    calls = [
        lambda: dml.split(plain, 1, out=[tracked]),
        lambda: op(tracked),
        lambda: op.dispatch(tracked, [plain]),
        lambda: op.dispatch(plain, [tracked]),
        lambda: op.bind(tracked, [plain]),
        lambda: op.bind(plain, [tracked]),
    ]
    for call in calls:
        with pytest.raises(dml.InvalidArgumentError, match=r"requires grad.*Fix: detach\(\)"):
            call()
    with pytest.raises(dml.InvalidArgumentError, match=r"out is given, but array requires grad"):
        dml.split(tracked, 1, out=[plain])
    assert (tracked.tolist(), plain.tolist()) == ([1.0] * 6, [0.0] * 6)
    assert (tracked._version, plain._version) == (0, 0)


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_parameters_are_read_and_written_while_gradients_are_off(torch: Any, mode: str) -> None:
    """Torch's own functions do so too: that is how weights are loaded and models served."""
    source, target = (torch.nn.Parameter(torch.full((6,), value)) for value in (1.0, 2.0))
    op = compiled_split((6,), (6,), axis=0, device="cpu")
    with getattr(torch, mode)():
        (piece,) = dml.split(source, 1)
        assert piece.tolist() == op(source)[0].tolist() == source.tolist()
        assert piece.is_inference() is (mode == "inference_mode")
        dml.split(source, 1, out=[target])
        assert target.tolist() == source.tolist()
        op.bind(torch.zeros(6), [target]).dispatch()
    assert target.tolist() == [0.0] * 6
    assert target.requires_grad


def test_a_write_increments_the_version_of_a_tensor(torch: Any) -> None:
    """A gradient that needs an overwritten value is an error, not a wrong number."""
    source, outs = torch.arange(6.0), [torch.zeros(2), torch.zeros(4)]
    op = compiled_split((6,), (2, 4), axis=0, device="cpu")
    bound = op.bind(source, outs)
    assert [out._version for out in outs] == [0, 0]
    weight = torch.ones(2, requires_grad=True)
    loss = (weight * outs[0]).sum()
    calls = [
        bound.dispatch,
        lambda: op.dispatch(source, outs),
        lambda: dml.split(source, (2, 4), out=outs),
        lambda: dml.split(source.numpy(), (2, 4), out=outs),
        lambda: op.dispatch(source, [dml.BufferBinding(outs[0]), outs[1]]),
    ]
    for count, call in enumerate(calls, 1):
        call()
        assert [out._version for out in outs] == [count, count]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    assert source._version == 0


def test_a_refused_stream_does_not_change_the_version_of_a_tensor(torch: Any) -> None:
    source, out = torch.ones(6), torch.zeros(6)
    op = compiled_split((6,), (6,), axis=0, device="cpu")
    calls = [lambda: op.dispatch(source, [out], 7), lambda: op.bind(source, [out]).dispatch(7)]
    for call in calls:
        with pytest.raises(dml.InvalidArgumentError, match="stream is 7"):
            call()
    assert (out._version, out.tolist()) == (0, [0.0] * 6)


@pytest.mark.parametrize(
    ("make", "axis"),
    [
        (lambda t: t.rand(2, 6, 3, 5).to(memory_format=t.channels_last), 1),
        (lambda t: t.rand(6, 4).t(), -1),
        (lambda t: t.rand(4, 24)[1:, 3::4], -1),
        (lambda t: t.rand(0, 6, 3), 1),
        (lambda t: t.rand(2, 1, 3).expand(2, 6, 3), 1),
    ],
    ids=["channels last", "transposed", "every fourth column", "without elements", "expanded"],
)
def test_any_strides_are_read_and_pieces_are_packed(
    make: Callable[[Any], Any], axis: int, torch: Any
) -> None:
    source = make(torch)
    pieces = dml.split(source, (1, 5), axis)
    assert all(map(torch.equal, pieces, source.split((1, 5), axis)))
    assert all(piece.is_contiguous() for piece in pieces)


@pytest.mark.parametrize(
    ("make", "axis"),
    [
        (lambda t: t.rand(2, 6, 3, 5).to(memory_format=t.channels_last), 1),
        (lambda t: t.rand(6, 4).t(), -1),
        (lambda t: t.rand(4, 24)[1:, 3::4], -1),
    ],
    ids=["channels last", "transposed", "every fourth column"],
)
def test_outputs_with_the_strides_of_torchs_views_are_written(
    make: Callable[[Any], Any], axis: int, torch: Any
) -> None:
    source = make(torch)
    views = source.split((1, 5), axis)
    outs = [torch.empty_strided(view.shape, view.stride()) for view in views]
    dml.split(source, (1, 5), axis, out=outs)
    assert all(map(torch.equal, outs, views))


@pytest.fixture(params=["conjugated", "negated"])
def lazy(request: pytest.FixtureRequest, torch: Any) -> Any:
    """Four elements whose memory does not hold their values."""
    if request.param == "conjugated":
        return torch.arange(8.0).view(torch.complex64).conj()
    return torch._neg_view(torch.arange(4.0))


def test_lazy_tensors_are_resolved_before_they_are_split(lazy: Any, torch: Any) -> None:
    pieces = dml.split(lazy, 2)
    assert all(map(torch.equal, pieces, lazy.split(2)))
    assert not any(piece.is_conj() or piece.is_neg() for piece in pieces)


def test_operators_and_out_refuse_lazy_tensors(lazy: Any) -> None:
    op = compiled_split((4,), (4,), axis=0, device="cpu")
    for call in (lambda: dml.split(lazy.resolve_conj(), 1, out=[lazy]), lambda: op(lazy)):
        with pytest.raises(dml.InvalidArgumentError, match=r"lazily conjugated.*resolve_conj"):
            call()


OVERRUN = """
import torch, warnings
import dmlsplit as dml
warnings.simplefilter("ignore")
for kind in torch.quint4x2, torch.quint2x4:
    x = torch.zeros(4 << 20, dtype=torch.uint8).view(kind)
    for call in (lambda: dml.split(x, 2), lambda: dml.split(torch.zeros(3), 1, out=[x[:3]])):
        try:
            call()
        except dml.InvalidArgumentError as error:
            print(error)
"""


def test_types_of_several_elements_per_byte_are_refused(torch: Any) -> None:
    """In another process, because torch allocates too few bytes and writing them all crashes."""
    process = ran(sys.executable, "-c", OVERRUN)
    for kind, bits in (("quint4x2", 4), ("quint2x4", 2)):
        message = f"an element of torch.{kind} has {bits} bits; it must have whole bytes."
        assert process.stdout.count(message) == 2, process.stdout + process.stderr
    assert process.returncode == 0


def error_of_view(tensor: Any) -> str:
    with pytest.raises(dml.InvalidArgumentError) as error:
        TORCH.view(tensor, "data")
    return str(error.value)


ONLY_AS_INPUT = "such a tensor can only be the input of dmlsplit.split"
NEEDS_MEMORY = "use dmlsplit.split without out, or a tensor that has memory"
NOT_A_PLAIN_TENSOR = "it must be a torch.Tensor or a Parameter"


def fake(torch: Any) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode().from_tensor(torch.ones(4))


def two_tensors_in_one(torch: Any) -> Any:
    from torch.testing._internal.two_tensor import TwoTensor

    return TwoTensor(torch.ones(4), torch.ones(4))


def image(torch: Any) -> Any:
    return torch.ones(4).as_subclass(type("Image", (torch.Tensor,), {"__module__": "photos"}))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(
            lambda torch: torch.ones(4, requires_grad=True),
            f"data requires grad; {ONLY_AS_INPUT}. Fix: detach(), or torch.no_grad()",
            id="requires grad",
        ),
        pytest.param(
            lambda torch: torch.ones(4, dtype=torch.complex64).conj(),
            "data is a lazily conjugated or negated view: its memory does not hold its values; "
            f"{ONLY_AS_INPUT}. Fix: resolve_conj().resolve_neg()",
            id="conjugated",
        ),
        pytest.param(
            lambda torch: torch.ones(4, device="meta"),
            f"data is on the meta device and has no memory; {ONLY_AS_INPUT}. Fix: {NEEDS_MEMORY}",
            id="meta",
        ),
        pytest.param(
            fake,
            f"data is a torch.FakeTensor, which has no memory; {ONLY_AS_INPUT}. "
            f"Fix: {NEEDS_MEMORY}",
            id="fake",
        ),
        pytest.param(
            lambda torch: torch.eye(4).to_sparse(),
            "data is a torch.sparse_coo tensor; it must be a torch.strided one. Fix: to_dense()",
            id="sparse",
        ),
        pytest.param(
            lambda torch: torch.quantize_per_tensor(torch.ones(4), 0.1, 3, torch.quint8),
            "data is quantized; its pieces would lose scale and zero point. Fix: int_repr()",
            id="quantized",
        ),
        pytest.param(
            two_tensors_in_one,
            f"data is a torch.TwoTensor, which has no memory of its own; {NOT_A_PLAIN_TENSOR}. "
            "Fix: split the tensors that it is made of",
            id="wrapper",
        ),
        pytest.param(
            image,
            f"data is a photos.Image, whose pieces would be plain tensors; {NOT_A_PLAIN_TENSOR}. "
            "Fix: as_subclass(torch.Tensor)",
            id="subclass",
        ),
        pytest.param(
            lambda torch: torch._efficientzerotensor(4),
            "data, a torch.Tensor, cannot be shared without a copy: it has no memory",
            id="zeros without memory",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_the_error_for_a_refused_tensor_names_its_kind_and_the_fix(
    make: Callable[[Any], Any], message: str, torch: Any
) -> None:
    assert error_of_view(make(torch)) == message


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_tensor_with_a_forward_mode_tangent_is_refused(torch: Any) -> None:
    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.ones(4), torch.ones(4))
        assert error_of_view(dual) == (
            f"data has a forward-mode tangent; {ONLY_AS_INPUT}. "
            "Fix: forward_ad.unpack_dual(...).primal"
        )
        TORCH.view(torch.ones(4), "data")  # without a tangent


def test_a_tensor_inside_a_dispatch_mode_is_refused(torch: Any) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    ones = torch.ones(4)
    with TorchDispatchMode():
        message = error_of_view(ones)
    assert message == (
        "data is inside a mode of torch that sees every operator; "
        f"{ONLY_AS_INPUT}. Fix: leave the mode"
    )


def test_a_tensor_inside_vmap_is_refused(torch: Any) -> None:
    messages = []

    def read(row: Any) -> Any:
        messages.append(error_of_view(row))
        return row

    torch.func.vmap(read)(torch.eye(4))
    assert messages == [
        f"data is inside a transform of torch.func; {ONLY_AS_INPUT}. Fix: {NEEDS_MEMORY}"
    ]


def test_an_operator_makes_tensors_of_any_layout(torch: Any) -> None:
    x = dml.TensorDesc("FLOAT16", (4, 6))
    out = dml.TensorDesc("FLOAT16", (4, 6), strides=(1, 4))
    op = dml.Device("cpu").compile(dml.SplitOperatorDesc(x, [out], 1))
    source = torch.arange(24).reshape(4, 6).half()
    for op_input in (source, dml.BufferBinding(source.reshape(-1).view(torch.uint8))):
        with torch.device("meta"):  # where torch allocates unless it is told otherwise
            (piece,) = op(op_input)
        assert piece.stride() == (1, 4)
        assert torch.equal(piece, source)


def test_an_output_that_does_not_fit_in_memory_is_an_error_with_its_bytes(torch: Any) -> None:
    source = torch.zeros(4, dtype=torch.float16)
    with pytest.raises(dml.OutOfMemoryError, match=f"an output of {2 << 51} bytes"):
        TORCH.empty(TORCH.view(source, "data"), NewArrays(((1 << 51,),)))


@pytest.mark.parametrize("count", [3, 64])
def test_few_and_many_outputs_are_written(torch: Any, count: int) -> None:
    source = torch.arange(4.0 * count).reshape(2, -1)
    outs = [torch.zeros(2, 2) for _ in range(count)]
    versions = [out._version for out in outs]
    assert dml.split(source, (2,) * count, 1, out=outs) == outs
    assert all(map(torch.equal, outs, torch.split(source, 2, 1)))
    assert [out._version for out in outs] > versions


@pytest.mark.parametrize("count", [3, 64])
@pytest.mark.parametrize(
    "make",
    [lambda t: t.zeros(2, 2, dtype=t.complex64).imag, lambda t: t.zeros(2, 2).numpy()],
    ids=["strided", "NumPy"],
)
def test_one_of_the_outputs_may_be_strided_or_of_another_library(
    torch: Any, make: Callable[[Any], Any], count: int
) -> None:
    source = torch.arange(4.0 * count).reshape(2, -1)
    outs = [torch.zeros(2, 2) for _ in range(count)]
    outs[1] = make(torch)
    dml.split(source, (2,) * count, 1, out=outs)
    assert all(map(torch.equal, map(torch.as_tensor, outs), torch.split(source, 2, 1)))


@pytest.mark.parametrize("count", [3, 64])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda t: t.zeros(2, 3), r"out\[1\]: shape is \(2, 3\)"),
        (lambda t: t.zeros(2, 2, dtype=t.int32), r"out\[1\]: data type is int32"),
        (lambda t: t.zeros(2, 2, requires_grad=True), r"out\[1\] requires grad"),
        (lambda t: t.zeros(2, 1).expand(2, 2), r"out\[1\]: strides are .*must not overlap"),
    ],
    ids=["shape", "type", "requires grad", "expanded"],
)
def test_one_wrong_output_is_named_before_any_is_written(
    torch: Any, make: Callable[[Any], Any], message: str, count: int
) -> None:
    outs = [torch.zeros(2, 2) for _ in range(count)]
    outs[1] = make(torch)
    with pytest.raises(dml.InvalidArgumentError, match=message):
        dml.split(torch.ones(2, 2 * count), (2,) * count, 1, out=outs)
    assert not any(out.any() for out in outs)


@pytest.mark.parametrize("count", [3, 64])
def test_an_output_given_twice_is_refused(torch: Any, count: int) -> None:
    outs = [torch.zeros(2, 2) for _ in range(count)]
    outs[1] = outs[2]
    with pytest.raises(dml.InvalidArgumentError, match=r"out\[2\] and out\[1\] share memory"):
        dml.split(torch.ones(2, 2 * count), (2,) * count, 1, out=outs)
    assert not any(out.any() for out in outs)


@pytest.mark.parametrize("count", [3, 64])
def test_an_output_in_the_memory_of_the_input_is_refused(torch: Any, count: int) -> None:
    source = torch.ones(2, 2 * count)
    outs = [source[:, :2], *(torch.zeros(2, 2) for _ in range(count - 1))]
    with pytest.raises(dml.InvalidArgumentError, match="must not overlap"):
        dml.split(source, (2,) * count, 1, out=outs)
    assert not any(out.any() for out in outs[1:])


@pytest.mark.parametrize("offset", [0, 4])
@pytest.mark.parametrize("size", [1 << 10, 1 << 20])
@pytest.mark.parametrize("shrunk", ["input", "output"])
def test_a_tensor_larger_than_its_storage_is_refused(
    torch: Any, offset: int, size: int, shrunk: str
) -> None:
    """A storage can be shrunk below its tensor; torch reads and writes past its end then."""
    source, out = (torch.zeros(offset + size, dtype=torch.uint8)[offset:] for _ in range(2))
    op = compiled_split((size,), (size,), axis=0, device="cpu", kind="UINT8")
    dml.split(source, 1, out=[out])  # which is accepted as long as the storage has all bytes
    storage = (source if shrunk == "input" else out).untyped_storage()
    storage.resize_(offset + size - 1)
    calls = [
        lambda: dml.split(source, 1, out=[out]),
        lambda: op.dispatch(source, [out]),
        lambda: op.bind(source, [out]),
        lambda: op.bind(dml.BufferBinding(source), [dml.BufferBinding(out)]),
    ]
    if shrunk == "input":
        calls += [lambda: dml.split(source, 1), lambda: op(source)]
    for call in calls:
        with pytest.raises(dml.InvalidArgumentError, match=f"resized to {offset + size - 1} bytes"):
            call()
    storage.resize_(0)
    with pytest.raises(
        dml.InvalidArgumentError, match="has no memory: its storage was resized to 0 bytes"
    ):
        dml.split(source, 1, out=[out])
