"""Arrays of CuPy and of other libraries, and their memory, with the real CuPy."""

import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import cupy
import numpy as np
import pytest

import dmlsplit as dml
from tests.simulated_card import card
from tests.support.gpu_arrays import Interface, noise, operator

SIZES = (1, 2, 5)


def check(found: list[Any], array: np.ndarray) -> None:
    for piece, wanted in zip(found, np.split(array, [1, 3], 1), strict=True):
        assert isinstance(piece, cupy.ndarray)
        assert piece.get().tobytes() == np.ascontiguousarray(wanted).tobytes()


class DlPack:
    """An array of a library that has only DLPack; its values are computed on stream `made_on`."""

    def __init__(self, array: Any, made_on: Any = None) -> None:
        self._array, self._made_on = array, made_on

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, number = self._array.__dlpack_device__()
        return int(kind), number

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        if self._made_on is None:
            return self._array.__dlpack__(stream=stream, **options)
        with self._made_on:
            return self._array.__dlpack__(stream=stream, **options)


@pytest.mark.parametrize("library", [Interface, DlPack])
def test_an_object_with_only_an_array_interface_or_dlpack_is_split(library: Any) -> None:
    array = noise((40, 8), "f4")
    check(dml.split(library(cupy.asarray(array)), SIZES, 1), array)


def test_an_array_interface_on_the_second_device_is_split_on_that_device() -> None:
    array = noise((40, 8), "f4")
    with cupy.cuda.Device(1):
        source = cupy.asarray(array)
    found = dml.split(Interface(source), SIZES, 1)
    assert {piece.device.id for piece in found} == {1}
    check(found, array)


@pytest.mark.parametrize("empty", [(0, 8), (40, 0)])
def test_an_empty_array_interface_has_no_address(empty: tuple[int, int]) -> None:
    described = {"shape": empty, "typestr": "<f4", "data": (0, False), "version": 3}
    source = Interface(cupy.zeros(empty, "f4"))
    source.__cuda_array_interface__ = described
    found = dml.split(source, (empty[1],), 1)
    assert [piece.shape for piece in found] == [empty]


def test_an_interface_to_host_memory_is_refused() -> None:
    host = np.zeros((40, 8), "f4")
    source = Interface(cupy.zeros((40, 8), "f4"))
    source.__cuda_array_interface__ = host.__array_interface__
    with pytest.raises(dml.InvalidArgumentError, match="no device owns its address 0x"):
        dml.split(source, SIZES, 1)


def written_late() -> tuple[Any, Any, np.ndarray, Any]:
    """An array whose values a stream of its own will copy from another array."""
    array = noise((40, 8), "f4")
    fresh, source = cupy.asarray(array), cupy.zeros((40, 8), "f4")
    producer = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    source.data.copy_from_device_async(fresh.data, fresh.nbytes, producer)
    return source, producer, array, fresh


LIBRARIES = {
    "array interface": lambda source, producer: Interface(source, producer.ptr),
    "DLPack": DlPack,
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("how", ["split", "call", "dispatch"])
def test_a_split_waits_for_pending_work_of_another_library(library: str, how: str) -> None:
    """An operator runs on `stream`, so that stream must wait."""
    source, producer, array, _fresh = written_late()
    op = operator((40, 8), SIZES)
    foreign = LIBRARIES[library](source, producer)
    side = cupy.cuda.Stream(non_blocking=True)
    if how == "split":
        found = dml.split(foreign, SIZES, 1)
    elif how == "call":
        found = op(foreign, stream=side)
    else:
        found = [cupy.zeros((40, size), "f4") for size in SIZES]
        cupy.cuda.Stream.null.synchronize()
        op.dispatch(foreign, found, stream=side)
    side.synchronize()
    check(found, array)


class Consumer(DlPack):
    """A library that imports arrays with DLPack, on its current stream."""

    def __init__(self, array: Any) -> None:
        super().__init__(array)
        self.streams: list[int] = []

    def __array_namespace__(self) -> Any:
        def from_dlpack(array: Any) -> Any:
            # CuPy makes the consumer wait for CuPy's current stream.
            self.streams.append(cupy.cuda.get_current_stream().ptr)
            return array

        return SimpleNamespace(from_dlpack=from_dlpack)


def test_another_library_imports_outputs_on_the_stream_that_writes_them() -> None:
    side = cupy.cuda.Stream(non_blocking=True)
    source = Consumer(cupy.asarray(noise((40, 8), "f4")))
    cupy.cuda.Device().synchronize()
    operator((40, 8), SIZES)(source, stream=side)
    assert source.streams == [side.ptr] * 3


def test_repeated_splits_leak_no_device_memory() -> None:
    cupy.get_default_memory_pool().free_all_blocks()
    gc.collect()
    with cupy.cuda.using_allocator(None):
        source = cupy.asarray(noise((512, 300), "f4"))
        dml.split(source, (100, 200), 1)
        before = card.memory_used(0)
        for _ in range(3):
            dml.split(source, (100, 200), 1)
        assert card.memory_used(0) == before


def test_an_error_for_too_large_an_output_has_the_needed_and_free_bytes() -> None:
    cupy.get_default_memory_pool().free_all_blocks()
    source = cupy.asarray(noise((1 << 20,)))
    card.set_memory_limit(0, card.memory_used(0) + (1 << 18))
    total = card.memory_used(0) + (1 << 18)
    message = rf"524288 bytes are needed, 262144 of {total} bytes are free"
    with pytest.raises(dml.OutOfMemoryError, match=message):
        dml.split(source, 2)
    # The pool gave back its memory, so nothing leaked.
    card.set_memory_limit(0, 1 << 30)
    assert [piece.size for piece in dml.split(source, 2)] == [1 << 19, 1 << 19]


@pytest.fixture
def stream_ordered() -> Iterator[None]:
    """Use CUDA's own pool, which allocates and frees memory in the order of a stream."""
    with cupy.cuda.using_allocator(cupy.cuda.memory.malloc_async):
        yield


def test_an_array_in_stream_ordered_memory_is_split(stream_ordered: None) -> None:
    array = noise((40, 8), "f4")
    side = cupy.cuda.Stream(non_blocking=True)
    with side:
        check(dml.split(cupy.asarray(array), SIZES, 1), array)
    side.synchronize()


def test_stream_ordered_outputs_belong_to_the_given_stream(stream_ordered: None) -> None:
    array = noise((40, 8), "f4")
    source = cupy.asarray(array)
    cupy.cuda.Device().synchronize()
    side = cupy.cuda.Stream(non_blocking=True)
    found = operator((40, 8), SIZES)(source, stream=side)
    with side:
        check(found, array)
    # Dropped while work on them is queued: they are freed when `side` is done with them.
    operator((40, 8), SIZES)(source, stream=side)
    cupy.cuda.Stream.null.synchronize()
    cupy.cuda.Device().synchronize()
