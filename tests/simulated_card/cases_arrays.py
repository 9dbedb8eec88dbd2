"""Arrays of CuPy and of other libraries, and their memory, with the real CuPy."""

import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import cupy
import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.arrays import CUPY, to_device, to_host, view
from dmlsplit.arrays.adapter import NewArrays
from tests.simulated_card import card
from tests.support.gpu_arrays import Interface, compiled_split, noise

SIZES = (1, 2, 5)


def check(pieces: list[Any], array: np.ndarray) -> None:
    for piece, expected in zip(pieces, np.split(array, [1, 3], 1), strict=True):
        assert isinstance(piece, cupy.ndarray)
        assert piece.get().tobytes() == np.ascontiguousarray(expected).tobytes()


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
    pieces = dml.split(Interface(source), SIZES, 1)
    assert {piece.device.id for piece in pieces} == {1}
    check(pieces, array)


@pytest.mark.parametrize("empty", [(0, 8), (40, 0)])
def test_an_empty_array_interface_has_no_address(empty: tuple[int, int]) -> None:
    described = {"shape": empty, "typestr": "<f4", "data": (0, False), "version": 3}
    source = Interface(cupy.zeros(empty, "f4"))
    source.__cuda_array_interface__ = described
    for device in range(2):  # that is current
        with cupy.cuda.Device(device):
            pieces = dml.split(source, (empty[1],), 1)
        assert [(piece.shape, piece.device.id) for piece in pieces] == [(empty, device)]


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
@pytest.mark.parametrize("call_form", ["split", "call", "dispatch"])
def test_a_split_waits_for_pending_work_of_another_library(library: str, call_form: str) -> None:
    """An operator runs on `stream`, so that stream must wait."""
    source, producer, array, _fresh = written_late()
    op = compiled_split((40, 8), SIZES)
    foreign = LIBRARIES[library](source, producer)
    side = cupy.cuda.Stream(non_blocking=True)
    if call_form == "split":
        pieces = dml.split(foreign, SIZES, 1)
    elif call_form == "call":
        pieces = op(foreign, stream=side)
    else:
        pieces = [cupy.zeros((40, size), "f4") for size in SIZES]
        cupy.cuda.Stream.null.synchronize()
        op.dispatch(foreign, pieces, stream=side)
    side.synchronize()
    check(pieces, array)


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
    compiled_split((40, 8), SIZES)(source, stream=side)
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
    pieces = compiled_split((40, 8), SIZES)(source, stream=side)
    with side:
        check(pieces, array)
    # Dropped while work on them is queued: they are freed when `side` is done with them.
    compiled_split((40, 8), SIZES)(source, stream=side)
    cupy.cuda.Stream.null.synchronize()
    cupy.cuda.Device().synchronize()


def test_viewing_a_cupy_array_calls_nothing_of_cuda() -> None:
    with cupy.cuda.Device(1):
        array = cupy.zeros((3, 4), "i2")[:, ::2]
    with card.calls() as cuda_calls:
        array_view = view(array, "array")
    assert not {*cuda_calls} - {"cudaGetDevice"}
    assert (array_view.owner is array, array_view.address) == (True, array.data.ptr)
    assert (array_view.shape, array_view.strides) == ((3, 2), (8, 4))
    assert (array_view.type, array_view.item_bytes) == ("<i2", 2)
    assert (array_view.device, array_view.read_only) == ("cuda:1", False)


def test_new_arrays_are_on_the_device_of_like_and_may_be_strided() -> None:
    with cupy.cuda.Device(1):
        like = view(cupy.zeros(3, "f4"), "array")
    (packed_array,), (address,) = CUPY.empty(like, NewArrays(((2, 3),)))
    (store,), _ = CUPY.empty(like, NewArrays(((6,),), np.dtype("i2")))
    strided = CUPY.strided(store, (2, 3), (2, 4))
    assert packed_array.data.ptr == address
    assert (packed_array.shape, packed_array.strides) == ((2, 3), (12, 4))
    assert (strided.shape, strided.strides, strided.dtype) == ((2, 3), (2, 4), np.int16)
    assert packed_array.device.id == strided.device.id == 1


def test_an_array_is_copied_to_a_device_and_back() -> None:
    host = np.arange(6)
    device_array = to_device(host, "cuda:1")
    assert view(device_array, "array").device == "cuda:1"
    assert to_host(device_array).tolist() == host.tolist()
    assert to_device(host, "cpu") is to_host(host) is host


def test_an_interface_without_strides_means_a_packed_array() -> None:
    source = Interface(cupy.zeros((3, 4), "i2"))
    source.__cuda_array_interface__["strides"] = None
    assert view(source, "array").strides == (8, 2)


@pytest.mark.parametrize("is_jax", [False, True])
def test_arrays_of_jax_or_without_an_interface_go_through_dlpack(is_jax: bool) -> None:
    """JAX's interface does not name a stream, so DLPack waits; its arrays are never written."""
    array = cupy.zeros(4, "f4")
    parts: dict[str, Any] = {}
    if is_jax:
        interface = array.__cuda_array_interface__
        parts = {"__module__": "jaxlib", "__cuda_array_interface__": interface}
    array_view = view(type("Array", (DlPack,), parts)(array), "array")
    assert isinstance(array_view.owner, cupy.ndarray)
    assert (array_view.address, array_view.read_only) == (array.data.ptr, is_jax)


def test_a_masked_or_read_only_array_is_refused() -> None:
    source = cupy.zeros(4)
    masked, read_only = Interface(source), Interface(cupy.zeros(4))
    masked.__cuda_array_interface__["mask"] = object()
    with pytest.raises(dml.InvalidArgumentError, match="array is masked"):
        dml.split(masked, 1)
    address, _ = read_only.__cuda_array_interface__["data"]
    read_only.__cuda_array_interface__["data"] = (address, True)
    with pytest.raises(dml.InvalidArgumentError, match=r"out\[0\] is read-only"):
        dml.split(source, 1, out=[read_only])


def test_outputs_that_share_device_memory_are_refused() -> None:
    store, source = cupy.zeros((4, 8), "f4"), cupy.asarray(noise((4, 8), "f4"))
    with pytest.raises(dml.InvalidArgumentError, match="share memory"):
        dml.split(source, 2, 1, out=[store[:, :4], store[:, 3:7]])
    dml.split(source, 2, 1, out=[store[:, :4], store[:, 4:]])
    assert store.get().tobytes() == source.get().tobytes()


def test_an_array_that_its_library_does_not_share_is_refused() -> None:
    class Kept(DlPack):
        def __dlpack__(self, **_: object) -> Any:
            raise RuntimeError("not today")

    with pytest.raises(dml.InvalidArgumentError, match=r"cannot be shared .*: not today$"):
        dml.split(Kept(cupy.zeros(4)), 1)


def test_an_array_of_a_lost_device_is_reported_with_cudas_error() -> None:
    class Lost(DlPack):
        def __dlpack_device__(self) -> tuple[int, int]:
            raise cupy.cuda.runtime.CUDARuntimeError(700)

    with pytest.raises(dml.DeviceRemovedError, match="array cannot be shared: the CUDA device is"):
        dml.split(Lost(cupy.zeros(4)), 1)


@pytest.mark.parametrize("is_binding", [False, True])
def test_an_operator_waits_once_for_the_stream_of_its_input(is_binding: bool) -> None:
    op, array = compiled_split((4,), (1, 3), axis=0), cupy.zeros(4, "f4")
    made_on, call_stream = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    source = Interface(array, stream=made_on.ptr)
    with card.calls() as cuda_calls:
        op(dml.BufferBinding(source) if is_binding else source, stream=call_stream)
    assert cuda_calls.count("cudaStreamWaitEvent") == cuda_calls.count("cuLaunchKernel") == 1
    assert cuda_calls.index("cudaStreamWaitEvent") < cuda_calls.index("cuLaunchKernel")


def test_new_arrays_keep_a_structured_type() -> None:
    kind = np.dtype([("a", "u1"), ("b", "<f4")])
    array_view = view(cupy.ndarray(3, kind), "array")
    assert array_view.type == str(kind)
    new_arrays, _ = CUPY.empty(array_view, NewArrays(((3,), (2,))))
    assert {array.dtype for array in new_arrays} == {kind}
