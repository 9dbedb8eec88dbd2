"""Streams of PyTorch's tensors on CUDA devices. A module that is made up stands for PyTorch."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dmlsplit import arrays
from dmlsplit.arrays import ArrayView, adapter_of
from dmlsplit.arrays.adapter import NewArrays
from dmlsplit.arrays.torch_adapter import TORCH
from dmlsplit.execution.prepared_split import PreparedSplit

# The handles that the fake torch names as its current stream, one after the other.
FIRST_CURRENT = 5
SECOND_CURRENT = 6
# The handles of streams that a caller gives.
GIVEN = 77
OTHER_GIVEN = 78


class CudaTensor:
    """A fake tensor on the second device; `recorded` has the streams that use it."""

    is_cuda = True

    dtype, device = np.dtype("f4"), "cuda:1"

    def __init__(self) -> None:
        self.recorded: list[Any] = []

    def get_device(self) -> int:
        return 1

    def record_stream(self, stream: Any) -> None:
        self.recorded.append(stream)


def cuda_view(tensor: CudaTensor, address: int, shape: tuple[int, ...]) -> ArrayView:
    """A packed tensor that can be written."""
    packed = {"strides": (4,) * len(shape), "type": "<f4", "item_bytes": 4, "read_only": False}
    return ArrayView(owner=tensor, address=address, shape=shape, device=tensor.device, **packed)


@pytest.fixture
def made_up_torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A fake torch with streams; the second call for the current one gives another stream."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from dmlsplit.arrays import torch_private

    handles = iter([FIRST_CURRENT, SECOND_CURRENT])

    def current_stream(device: int) -> int:
        assert device == 1
        return next(handles)

    def external(handle: int, device: int) -> tuple[int, int]:
        return handle, device

    module = SimpleNamespace(Tensor=CudaTensor, cuda=SimpleNamespace(ExternalStream=external))
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setattr(torch_private, "torch", module)
    monkeypatch.setattr(torch_private, "current_stream", current_stream)
    arrays._adapter.cache_clear()
    yield module
    arrays._adapter.cache_clear()


@pytest.mark.usefixtures("made_up_torch")
def test_torchs_current_stream_is_read_at_every_dispatch() -> None:
    current = adapter_of(CudaTensor()).current_stream(CudaTensor())
    assert current is not None
    assert [current(), current()] == [FIRST_CURRENT, SECOND_CURRENT]
    assert adapter_of(np.zeros(1)).current_stream(np.zeros(1)) is None


PAIR = NewArrays(((2,),))  # one tensor of two elements


@pytest.fixture
def allocations(made_up_torch: SimpleNamespace) -> list[object]:
    """What happens, in order: a stream that is entered, a shape that is allocated, None at exit."""
    events: list[object] = []

    @contextmanager
    def on(stream: object) -> Iterator[None]:
        events.append(stream)
        yield
        events.append(None)

    def empty(shape: tuple[int, ...], **_: object) -> SimpleNamespace:
        events.append(shape)
        storage = SimpleNamespace(nbytes=lambda: 8)
        return SimpleNamespace(data_ptr=lambda: 8, untyped_storage=lambda: storage)

    made_up_torch.cuda.stream, made_up_torch.empty = on, empty
    return events


def test_torch_allocates_on_the_stream_that_will_use_the_tensor(allocations: list[object]) -> None:
    TORCH.empty(cuda_view(CudaTensor(), address=0, shape=()), PAIR, GIVEN)
    assert allocations == [(GIVEN, 1), (2,), None]  # on device 1


def test_torch_allocates_on_its_current_stream_if_none_is_given(allocations: list[object]) -> None:
    TORCH.empty(cuda_view(CudaTensor(), address=0, shape=()), PAIR, None)
    assert allocations == [(2,)]


def test_a_tensor_on_the_cpu_is_allocated_on_no_stream(allocations: list[object]) -> None:
    view = cuda_view(CudaTensor(), address=0, shape=())
    TORCH.empty(view._replace(device="cpu"), PAIR, GIVEN)
    assert allocations == [(2,)]


def test_a_split_allocates_and_copies_on_the_given_stream_which_then_uses_the_input(
    allocations: list[object],
) -> None:
    owner = CudaTensor()
    copies: list[object] = []
    PreparedSplit(Recording(copies), PAIR).split(
        cuda_view(owner, address=0, shape=()), owner, GIVEN
    )
    assert allocations == [(GIVEN, 1), (2,), None]
    assert copies == [(0, [8], GIVEN)]
    assert owner.recorded == [(GIVEN, 1)]


def test_a_split_without_a_stream_allocates_and_copies_on_torchs_current_one(
    allocations: list[object],
) -> None:
    owner = CudaTensor()
    copies: list[object] = []
    PreparedSplit(Recording(copies), PAIR).split(cuda_view(owner, address=0, shape=()), owner)
    assert allocations == [(2,)]
    assert copies == [(0, [8], FIRST_CURRENT)]
    assert owner.recorded == []


class Recording:
    """A program that only notes what it should copy."""

    def __init__(self, copies: list[object]) -> None:
        self.copied = copies

    def copy(self, src: int, dsts: Any, stream: Any = None) -> None:
        self.copied.append((src, dsts, stream))

    def bind(self, src: int, dsts: Any) -> Any:
        return partial(self.copy, src, dsts)


def test_each_copy_is_on_the_given_stream_or_on_torchs_current_stream(
    made_up_torch: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dmlsplit.arrays import torch_private

    writes: list[object] = []
    monkeypatch.setattr(torch_private, "increment_version", writes.append)
    copies: list[object] = []
    prepared = PreparedSplit(Recording(copies), PAIR)
    source = cuda_view(CudaTensor(), address=8, shape=(2,))
    out = source._replace(owner=CudaTensor(), address=16)
    prepared.split_into(source, [out.owner], [16])
    protocol_stream = SimpleNamespace(__cuda_stream__=lambda: (0, GIVEN), device_id=1)
    prepared.split_into(source, [out.owner], [16], protocol_stream)
    dispatch = prepared.bind(source, [out.owner], [16])
    dispatch()
    dispatch(OTHER_GIVEN)
    streams = (FIRST_CURRENT, protocol_stream, SECOND_CURRENT, OTHER_GIVEN)
    assert copies == [(8, [16], stream) for stream in streams]
    assert writes == [[out.owner]] * 4
    assert source.owner.recorded == out.owner.recorded == [(GIVEN, 1)]
