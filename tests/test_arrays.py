"""What arrays of any kind say of their memory; allocation of the caller's kind."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit import device as device_module
from dmlsplit import eager
from dmlsplit.arrays import allocation, array_view
from dmlsplit.backends import find
from dmlsplit.backends.cuda import driver
from fake_cuda import FakeArray, FakeDriver


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    caches = find.compiled, device_module._compile, eager._program
    fake = FakeDriver()
    monkeypatch.setattr(driver, "load", lambda: fake)
    for cache in caches:
        cache.cache_clear()
    yield fake
    for cache in caches:
        cache.cache_clear()


def bare(array: FakeArray, **changes: Any) -> Any:
    """Only the array interface, without a word on the device."""
    return SimpleNamespace(__cuda_array_interface__={**array.__cuda_array_interface__, **changes})


def test_a_cuda_array_is_seen_where_it_lies(fake: FakeDriver) -> None:
    array = fake.array(np.zeros((3, 4), "i2")[:, ::2], device=1)
    seen = array_view.view(array, "array")
    assert (seen.shape, seen.strides, seen.type, seen.item_bytes) == ((3, 2), (8, 4), "<i2", 2)
    assert seen.address == array.__cuda_array_interface__["data"][0]
    assert (seen.device, seen.read_only) == ("cuda:1", False)


def test_strides_of_none_are_packed(fake: FakeDriver) -> None:
    seen = array_view.view(bare(fake.array(np.zeros((3, 4), "i2")), strides=None), "array")
    assert seen.strides == (8, 2)
    assert seen.device == "cuda:1"  # As the driver says of the address.


def test_a_foreign_stream_is_waited_for(fake: FakeDriver) -> None:
    array_view.view(bare(fake.array(np.zeros(4)), stream=77), "array")
    assert "wait for 77" in fake.calls


def test_an_array_without_an_interface_goes_through_dlpack(fake: FakeDriver) -> None:
    alias = fake.array(np.zeros(4, "f4"))

    class Foreign:
        def __init__(self) -> None:
            self.alias = alias

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

    seen = array_view.view(Foreign(), "array")
    assert seen.owner is alias
    assert fake.calls == ["from_dlpack"]


def test_arrays_of_jax_are_waited_for_and_never_written(fake: FakeDriver) -> None:
    alias = fake.array(np.zeros(4, "f4"))

    class Array:
        """It has an interface, which names no stream."""

        __module__ = "jaxlib"
        __cuda_array_interface__ = alias.__cuda_array_interface__

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

    Array.alias = alias  # type: ignore[attr-defined]
    seen = array_view.view(Array(), "array")
    assert fake.calls == ["from_dlpack"]
    assert seen.read_only


def test_a_masked_array_is_refused(fake: FakeDriver) -> None:
    with pytest.raises(dml.InvalidArgumentError, match="array is masked"):
        array_view.view(bare(fake.array(np.zeros(4)), mask=object()), "array")


def test_read_only_device_memory_is_no_output(fake: FakeDriver) -> None:
    source, out = fake.array(np.zeros(4)), fake.array(np.zeros(4))
    address, _ = out.__cuda_array_interface__["data"]
    out.__cuda_array_interface__["data"] = (address, True)
    with pytest.raises(dml.InvalidArgumentError, match=r"out\[0\]: read_only is True"):
        dml.split(source, 1, out=[out])
    assert not fake.launched


def test_overlap_is_found_in_device_memory(fake: FakeDriver) -> None:
    store = fake.array(np.zeros((4, 8), "f4"))
    source = fake.array(np.zeros((4, 8), "f4"))
    left, right = (FakeArray(store.host[:, s], 0) for s in (slice(0, 4), slice(3, 7)))
    with pytest.raises(dml.InvalidArgumentError, match="share memory"):
        dml.split(source, 2, 1, out=[left, right])
    apart = FakeArray(store.host[:, 4:], 0)
    dml.split(source, 2, 1, out=[left, apart])
    assert len(fake.launched) == 1


@pytest.mark.parametrize("kind", [3, 4, 10])
def test_other_dlpack_devices_are_refused(kind: int) -> None:
    class Elsewhere:
        def __dlpack_device__(self) -> tuple[int, int]:
            return kind, 0

    with pytest.raises(dml.InvalidArgumentError, match=f"DLPack device type {kind}"):
        array_view.view(Elsewhere(), "array")


def test_no_memory_on_the_host_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    # One byte, repeated by stride 0: the input is small and its pieces are not.
    huge = np.broadcast_to(np.zeros(1, "u1"), (1 << 46,))
    with pytest.raises(dml.OutOfMemoryError, match=f"{1 << 45} bytes does not fit"):
        dml.split(huge, 2)


# PyTorch on the CPU.


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


def test_subclasses_of_tensors_come_back_as_tensors(torch: Any) -> None:
    class Image(torch.Tensor):  # type: ignore[misc, name-defined]
        pass

    for found in dml.split(torch.arange(6.0).as_subclass(Image), 2):
        assert isinstance(found, torch.Tensor)


def test_a_mask_is_not_lost() -> None:
    masked = np.ma.masked_array(np.arange(4), [0, 1, 0, 0])
    with pytest.raises(dml.InvalidArgumentError, match=r"array is masked.*\.data and \.mask"):
        dml.split(masked, 2)
    with pytest.raises(dml.InvalidArgumentError, match=r"out\[0\] is masked"):
        dml.split(np.arange(4), 1, out=[masked])


def test_torchs_current_stream_is_asked_at_every_dispatch() -> None:
    handles = iter([5, 6])
    stream = SimpleNamespace(
        current_stream=lambda device: SimpleNamespace(cuda_stream=next(handles))
    )

    class Tensor:
        is_cuda, device = True, "cuda:0"

    module = SimpleNamespace(Tensor=Tensor, cuda=stream)
    with pytest.MonkeyPatch.context() as patch:
        import sys

        patch.setitem(sys.modules, "torch", module)
        current = allocation.current_stream(Tensor())
        assert current is not None
        assert [current(), current()] == [5, 6]
        assert allocation.current_stream(np.zeros(1)) is None
