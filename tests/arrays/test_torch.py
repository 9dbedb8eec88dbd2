"""PyTorch's tensors, on the CPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit import arrays
from dmlsplit.arrays import adapter_of
from dmlsplit.arrays import torch as torch_arrays


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.mark.parametrize(
    "kind", ["float32", "bool", "complex64", "uint16", "bfloat16", "float8_e4m3fn"]
)
def test_torch_tensors_keep_their_type(torch: Any, kind: str) -> None:
    dtype = getattr(torch, kind)
    raw = torch.randint(0, 2, (6, 10 * dtype.itemsize), dtype=torch.uint8)
    source = raw.view(dtype)
    for found, wanted in zip(dml.split(source, (3, 7), 1), source.split([3, 7], 1), strict=True):
        assert isinstance(found, torch.Tensor)
        assert found.dtype == dtype
        assert found.is_contiguous()
        assert torch.equal(found.view(torch.uint8), wanted.contiguous().view(torch.uint8))


def test_torch_types_of_one_size_are_not_mixed_up(torch: Any) -> None:
    source = torch.zeros(4, dtype=torch.float8_e4m3fn)
    out = torch.zeros(4, dtype=torch.float8_e5m2)
    with pytest.raises(dml.InvalidArgumentError, match=r"type is float8_e5m2.*float8_e4m3fn"):
        dml.split(source, 1, out=[out])


def test_gradients_are_read_and_never_overwritten(torch: Any) -> None:
    source = torch.arange(6.0, requires_grad=True)
    (found,) = dml.split(source, 1)
    assert found.tolist() == source.tolist()
    with pytest.raises(dml.InvalidArgumentError, match="read_only is True"):
        dml.split(torch.zeros(6), 1, out=[source])


@pytest.mark.parametrize("lazy", ["conj", "neg"])
def test_lazy_tensors_are_refused(torch: Any, lazy: str) -> None:
    source = torch.zeros(4, dtype=torch.complex64)
    source = source.conj() if lazy == "conj" else torch._neg_view(source.real)
    with pytest.raises(dml.InvalidArgumentError, match="resolve_conj"):
        dml.split(source, 2)


@pytest.mark.parametrize("kind", ["sparse", "meta", "quantized", "fake", "batched"])
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_tensors_without_plain_memory_are_refused(torch: Any, kind: str) -> None:
    def refused(source: Any) -> Any:
        with pytest.raises(dml.InvalidArgumentError, match=REFUSED_TENSORS[kind]):
            dml.split(source, 2)
        return source

    if kind == "sparse":
        refused(torch.eye(4).to_sparse())
    elif kind == "meta":
        refused(torch.empty(4, device="meta"))
    elif kind == "quantized":
        refused(torch.quantize_per_tensor(torch.ones(4), 0.1, 3, torch.quint8))
    elif kind == "fake":
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            refused(torch.ones(4))
    else:
        torch.func.vmap(refused)(torch.ones(2, 4))


REFUSED_TENSORS = {
    "sparse": r"it must be a torch\.strided one",
    "meta": r"it must be a torch\.strided one",
    "quantized": r"is quantized.*int_repr\(\)",
    "fake": "is a torch.FakeTensor, which has no memory of its own",
    "batched": "cannot be shared without a copy",
}


def test_tensors_whose_memory_torch_does_not_show_are_refused(torch: Any) -> None:
    zero = torch._efficientzerotensor(4)
    with pytest.raises(dml.InvalidArgumentError, match="without a copy: it has no memory"):
        dml.split(zero, 2)
    found = []

    def differentiated(x: Any) -> Any:
        with pytest.raises(dml.InvalidArgumentError, match="cannot be shared without a copy"):
            dml.split(x, 2)
        found.append(x.shape)
        return x.sum()

    torch.func.grad(differentiated)(torch.ones(4))
    assert found == [(4,)]


def test_an_operator_makes_tensors_of_any_layout(torch: Any) -> None:
    x = dml.TensorDesc("FLOAT16", (4, 6))
    out = dml.TensorDesc("FLOAT16", (4, 6), strides=(1, 4))
    op = dml.Device("cpu").compile(dml.SplitOperatorDesc(x, [out], 1))
    source = torch.arange(24).reshape(4, 6).half()
    (found,) = op(source)
    assert found.stride() == (1, 4)
    assert torch.equal(found, source)


def test_subclasses_of_tensors_come_back_as_tensors(torch: Any) -> None:
    class Image(torch.Tensor):  # type: ignore[misc, name-defined]
        pass

    for found in dml.split(torch.arange(6.0).as_subclass(Image), 2):
        assert isinstance(found, torch.Tensor)


class CudaTensor:
    """What is asked of a tensor on the second device; `recorded` has the streams that use it."""

    is_cuda = True

    def __init__(self) -> None:
        self.recorded: list[Any] = []

    def get_device(self) -> int:
        return 1

    def record_stream(self, stream: Any) -> None:
        self.recorded.append(stream)


@pytest.fixture
def made_up_torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A torch with streams; each question for the current one has another answer."""
    handles = iter([5, 6])

    def current_stream(device: int) -> SimpleNamespace:
        assert device == 1
        return SimpleNamespace(cuda_stream=next(handles))

    def external(handle: int, device: int) -> tuple[int, int]:
        return handle, device

    cuda = SimpleNamespace(current_stream=current_stream, ExternalStream=external)
    module = SimpleNamespace(Tensor=CudaTensor, cuda=cuda, _C=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torch", module)
    arrays._adapter.cache_clear()
    torch_arrays._current_stream.cache_clear()
    yield module
    arrays._adapter.cache_clear()
    torch_arrays._current_stream.cache_clear()


@pytest.mark.parametrize("is_raw", [True, False])
def test_torchs_current_stream_is_asked_at_every_dispatch(
    made_up_torch: SimpleNamespace, is_raw: bool
) -> None:
    if is_raw:  # The quick call that torch does not document is taken where there is one.
        handles = iter([5, 6])
        made_up_torch._C._cuda_getCurrentRawStream = lambda device: next(handles)
        del made_up_torch.cuda.current_stream
    current = adapter_of(CudaTensor()).current_stream(CudaTensor())
    assert current is not None
    assert [current(), current()] == [5, 6]
    assert adapter_of(np.zeros(1)).current_stream(np.zeros(1)) is None


def test_torch_is_told_of_the_stream_that_uses_a_tensor(made_up_torch: SimpleNamespace) -> None:
    tensor = CudaTensor()
    adapter_of(tensor).used_on(tensor, 77)
    assert tensor.recorded == [(77, 1)]
