"""PyTorch's tensors, on the CPU."""

import sys
from typing import Any

import pytest

import dmlsplit as dml
from dmlsplit.arrays.adapter import NewArrays
from dmlsplit.arrays.torch_adapter import TORCH
from tests.support.command import ran
from tests.support.gpu_arrays import operator


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="PyTorch is not installed")


def test_an_output_of_another_torch_type_of_the_same_size_is_refused(torch: Any) -> None:
    source = torch.zeros(4, dtype=torch.float8_e4m3fn)
    out = torch.zeros(4, dtype=torch.float8_e5m2)
    with pytest.raises(dml.InvalidArgumentError, match=r"type is float8_e5m2.*float8_e4m3fn"):
        dml.split(source, 1, out=[out])


def test_operators_and_out_refuse_tensors_that_require_grad(torch: Any) -> None:
    tracked, plain = torch.ones(6, requires_grad=True), torch.zeros(6)
    op = operator((6,), (6,), 0, "cpu")
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
    op = operator((6,), (6,), 0, "cpu")
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
    op = operator((6,), (2, 4), 0, "cpu")
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
    op = operator((6,), (6,), 0, "cpu")
    calls = [lambda: op.dispatch(source, [out], 7), lambda: op.bind(source, [out]).dispatch(7)]
    for call in calls:
        with pytest.raises(dml.InvalidArgumentError, match="stream is 7"):
            call()
    assert (out._version, out.tolist()) == (0, [0.0] * 6)


@pytest.mark.parametrize(
    "layout", ["channels_last", "expanded", "transposed", "step", "0-d pieces"]
)
def test_any_strides_are_read_and_pieces_are_packed(torch: Any, layout: str) -> None:
    source = {
        "channels_last": torch.rand(2, 6, 3, 5).to(memory_format=torch.channels_last),
        "expanded": torch.rand(2, 1, 3).expand(2, 6, 3),
        "transposed": torch.rand(6, 4).t(),
        "step": torch.rand(4, 24)[1:, 3::4],
        "0-d pieces": torch.rand(0, 6, 3),
    }[layout]
    axis = -1 if layout in ("transposed", "step") else 1
    for piece, expected in zip(
        dml.split(source, (1, 5), axis), source.split((1, 5), axis), strict=True
    ):
        assert torch.equal(piece, expected)
        assert piece.is_contiguous()
    outs = [torch.empty_strided(p.shape, p.stride()) for p in source.split((1, 5), axis)]
    if layout != "expanded":
        dml.split(source, (1, 5), axis, out=outs)
        assert torch.equal(torch.cat(outs, axis), source)


@pytest.mark.parametrize("lazy", ["conj", "neg"])
def test_lazy_tensors_are_resolved_before_they_are_split(torch: Any, lazy: str) -> None:
    whole = torch.arange(8.0)
    source = whole.view(torch.complex64).conj() if lazy == "conj" else torch._neg_view(whole)[:4]
    for piece, expected in zip(dml.split(source, 2), source.split(2), strict=True):
        assert not piece.is_conj()
        assert not piece.is_neg()
        assert torch.equal(piece, expected)
    op = operator((4,), (4,), 0, "cpu")
    for call in (lambda: dml.split(source.resolve_conj(), 1, out=[source]), lambda: op(source)):
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


TRACKED = "such a tensor can only be the input of dmlsplit.split. Fix: "
MEMORY = "use dmlsplit.split without out, or a tensor that has memory"
PLAIN = "it must be a torch.Tensor or a Parameter. Fix: "


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_the_error_for_a_refused_tensor_names_its_kind_and_the_fix(torch: Any) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.testing._internal.two_tensor import TwoTensor
    from torch.utils._python_dispatch import TorchDispatchMode

    class Image(torch.Tensor):  # type: ignore[misc, name-defined]
        pass

    ones = torch.ones(4)
    image = f"is a tests.{Image.__qualname__}, whose pieces would be plain tensors"
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(ones, ones)
        refuse(dual, f"has a forward-mode tangent; {TRACKED}forward_ad.unpack_dual(...).primal")
        TORCH.view(ones, "data")  # without a tangent
    with TorchDispatchMode():
        mode = "is inside a mode of torch that sees every operator"
        refuse(ones, f"{mode}; {TRACKED}leave the mode")
    for source, message in (
        (
            torch.ones(4, requires_grad=True),
            f"requires grad; {TRACKED}detach(), or torch.no_grad()",
        ),
        (
            (ones * 1j).conj(),
            "is a lazily conjugated or negated view: its memory does not hold its values; "
            f"{TRACKED}resolve_conj().resolve_neg()",
        ),
        (ones.to("meta"), f"is on the meta device and has no memory; {TRACKED}{MEMORY}"),
        (
            FakeTensorMode().from_tensor(ones),
            f"is a torch.FakeTensor, which has no memory; {TRACKED}{MEMORY}",
        ),
        (
            torch.eye(4).to_sparse(),
            "is a torch.sparse_coo tensor; it must be a torch.strided one. Fix: to_dense()",
        ),
        (
            torch.quantize_per_tensor(ones, 0.1, 3, torch.quint8),
            "is quantized; its pieces would lose scale and zero point. Fix: int_repr()",
        ),
        (
            TwoTensor(ones, ones),
            "is a torch.TwoTensor, which has no memory of its own; "
            f"{PLAIN}split the tensors that it is made of",
        ),
        (ones.as_subclass(Image), f"{image}; {PLAIN}as_subclass(torch.Tensor)"),
    ):
        refuse(source, message)
    not_shared = "a torch.Tensor, cannot be shared without a copy: "
    integers = "Fix: view its bytes as an integer type of the same size"
    refuse(torch._efficientzerotensor(4), f"{not_shared}it has no memory. {integers}", "data, ")
    batched = f"is inside a transform of torch.func; {TRACKED}{MEMORY}"

    def refused(row: Any) -> Any:
        refuse(row, batched)
        return row

    torch.func.vmap(refused)(torch.eye(4))


def refuse(tensor: Any, message: str, begin: str = "data ") -> None:
    with pytest.raises(dml.InvalidArgumentError) as error:
        TORCH.view(tensor, "data")
    assert str(error.value) == begin + message


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
    with pytest.raises(dml.OutOfMemoryError, match=r"an output of 4503599627370496 bytes"):
        TORCH.empty(TORCH.view(source, "data"), NewArrays(((1 << 51,),)))


@pytest.mark.parametrize("count", [3, 64])
def test_few_and_many_outputs_are_checked_alike(torch: Any, count: int) -> None:
    source = torch.arange(4.0 * count).reshape(2, -1)
    sizes, expected_pieces = (2,) * count, torch.split(source, 2, 1)

    def outputs() -> list[Any]:
        return [torch.zeros(2, 2) for _ in range(count)]

    out_tensors = outputs()
    versions = [out._version for out in out_tensors]
    assert dml.split(source, sizes, 1, out=out_tensors) == out_tensors
    assert all(map(torch.equal, out_tensors, expected_pieces))
    assert [out._version for out in out_tensors] > versions
    shared = torch.zeros(2, 2)
    for wrong, message in (
        (torch.zeros(2, 3), r"out\[1\]: shape is \(2, 3\)"),
        (torch.zeros(2, 2, dtype=torch.int32), r"out\[1\]: data type is int32"),
        (torch.zeros(2, 2, requires_grad=True), r"out\[1\] requires grad"),
        (source[:, :2], r"must not overlap"),
        (torch.zeros(2, 1).expand(2, 2), r"out\[1\]: strides are .*must not overlap"),
        (shared, r"out\[2\] and out\[1\] share memory"),
        (torch.zeros(2, 2, dtype=torch.complex64).imag, None),  # strided, and may be written
        (torch.zeros(2, 2).numpy(), None),
    ):
        outs = [*outputs()[:1], wrong, shared, *outputs()[3:]]
        if message is None:
            dml.split(source, sizes, 1, out=outs)
            assert all(map(torch.equal, map(torch.as_tensor, outs), expected_pieces))
            continue
        with pytest.raises(dml.InvalidArgumentError, match=message):
            dml.split(source, sizes, 1, out=outs)
        assert not outs[0].any()
        assert not shared.any()


@pytest.mark.parametrize("offset", [0, 4])
@pytest.mark.parametrize("size", [2**10, 2**20])
@pytest.mark.parametrize("number", [0, 1])
def test_a_tensor_larger_than_its_storage_is_refused(
    torch: Any, offset: int, size: int, number: int
) -> None:
    """A storage can be shrunk below its tensor; torch reads and writes past its end then."""
    whole = [torch.zeros(offset + size, dtype=torch.uint8) for _ in range(2)]
    cut = [tensor[offset:] for tensor in whole]
    op = operator((size,), (size,), 0, "cpu", "UINT8")
    dml.split(cut[0], 1, out=cut[1:])
    whole[number].untyped_storage().resize_(offset + size - 1)
    source, out = cut
    calls = [
        lambda: dml.split(source, 1, out=[out]),
        lambda: op.dispatch(source, [out]),
        lambda: op.bind(source, [out]),
        lambda: op.bind(dml.BufferBinding(source), [dml.BufferBinding(out)]),
    ]
    calls += [lambda: dml.split(source, 1), lambda: op(source)] * (number == 0)
    for call in calls:
        with pytest.raises(dml.InvalidArgumentError, match=f"resized to {offset + size - 1} bytes"):
            call()
    whole[number].untyped_storage().resize_(0)
    with pytest.raises(dml.InvalidArgumentError, match="has no memory, because"):
        calls[0]()
