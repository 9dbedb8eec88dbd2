"""Memory and streams of the device under test: the host's own, or a GPU's through CuPy."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dmlsplit.arrays.array_view import device_number_of
from dmlsplit.backends import BoundCopy
from dmlsplit.backends.cuda import cupy_driver as driver
from dmlsplit.errors import DmlError

# CUDA aligns allocations to this, and CuPy's pool to 512 (CUDA C++ Programming Guide, "Size and
# alignment requirement").
ALIGNMENT = 256
SPARE = 256 << 20  # bytes of a GPU that stay free for other processes
# Memory outside CuPy's pool: its name, CuPy's allocator, and the device's attribute that it needs.
_OTHERS = (
    ("cudaMallocAsync", "malloc_async", "cudaDevAttrMemoryPoolsSupported"),
    ("managed memory", "malloc_managed", "cudaDevAttrManagedMemory"),
)


class Buffer(NamedTuple):
    """Bytes of the device."""

    address: int
    owner: Any  # keeps them alive


class HostMemory:
    """Memory of this process. Copies have no streams, so all modes are the same."""

    def upload(self, host: np.ndarray) -> Buffer:
        """New memory with these bytes, at a multiple of ALIGNMENT."""
        whole = np.empty(host.size + ALIGNMENT, np.uint8)
        begin = -whole.ctypes.data % ALIGNMENT
        memory = whole[begin : begin + host.size]
        memory[:] = host
        return Buffer(memory.ctypes.data, memory)

    def reserve(self, size: int) -> Buffer | None:
        """Memory with any bytes; None if there is no room.

        The system needs no memory for pages that are never touched.
        """
        try:
            memory = np.empty(size, np.uint8)
        except MemoryError:
            return None
        return Buffer(memory.ctypes.data, memory)

    def write(self, buffer: Buffer, host: np.ndarray, begin: int = 0) -> None:
        """Replace bytes, beginning with the one at `begin`."""
        buffer.owner[begin : begin + host.size] = host

    def fill(self, buffer: Buffer, value: int) -> None:
        """Set all bytes to a value."""
        buffer.owner[:] = value

    def read(self, buffer: Buffer, begin: int = 0, end: int | None = None) -> np.ndarray:
        """The bytes from `begin` to `end`."""
        memory: np.ndarray = buffer.owner
        return memory[begin:end]

    def on_stream(self, copy: BoundCopy) -> None:
        """An ordinary call, because the CPU has no streams."""
        copy()

    def capture(self, copy: BoundCopy) -> Callable[[], object]:
        """A function that repeats a copy: the copy itself, which is called once before."""
        copy()
        return copy

    def seconds(self, copy: Callable[[], object]) -> float:
        """The time of a copy, by this process's clock."""
        begin = perf_counter()
        copy()
        return perf_counter() - begin

    def plain_copy(self, source: Buffer, target: Buffer, size: int) -> Callable[[], object]:
        """A copy of contiguous bytes: NumPy's, of one thread."""
        return lambda: np.copyto(target.owner[:size], source.owner[:size])


class GpuMemory:
    """Memory of a CUDA device, from CuPy's current allocator or the one that is named."""

    def __init__(self, device_number: int, allocator: str | None = None) -> None:
        self.device_number = device_number
        self._driver = driver.load()
        cuda = self._cuda = self._driver.cupy.cuda
        self._allocator = getattr(cuda, allocator) if allocator else cuda.get_allocator()

    def upload(self, host: np.ndarray) -> Buffer:
        """A copy on the GPU, which is complete when this returns."""
        with self._device("a copy to the device", host.nbytes):
            with self._cuda.using_allocator(self._allocator):
                array = self._driver.upload(self.device_number, host)
            self._cuda.runtime.deviceSynchronize()
        return Buffer(array.data.ptr, array)

    def reserve(self, size: int) -> Buffer | None:
        """Memory with any bytes; None if there is no room.

        CUDA frees it with the result; no pool keeps it.
        """
        if self.free_bytes() < size + SPARE:
            return None
        with self._device("a large allocation", size):
            pointer = self._cuda.MemoryPointer(self._cuda.Memory(size), 0)
            array = self._driver.cupy.ndarray(size, np.uint8, pointer)
        return Buffer(array.data.ptr, array)

    def write(self, buffer: Buffer, host: np.ndarray, begin: int = 0) -> None:
        """Replace bytes, beginning with the one at `begin`, and wait until that is done."""
        with self._device("a copy to the device"):
            buffer.owner[begin : begin + host.size].set(host)
            self._cuda.runtime.deviceSynchronize()

    def fill(self, buffer: Buffer, value: int) -> None:
        """Set all bytes to a value."""
        with self._device("filling memory"):
            buffer.owner.data.memset(value, buffer.owner.nbytes)

    def read(self, buffer: Buffer, begin: int = 0, end: int | None = None) -> np.ndarray:
        """A copy on the host of the bytes from `begin` to `end`."""
        with self._device("the work on the device"):
            self._cuda.runtime.deviceSynchronize()
        return self._driver.download(self.device_number, buffer.owner[begin:end])

    def on_stream(self, copy: BoundCopy) -> None:
        """Copy on a stream that does not wait for the default one."""
        with self._device("work on a second stream"):
            stream = self._cuda.Stream(non_blocking=True)
            copy(stream.ptr)  # a handle, as of another library's stream
            stream.synchronize()

    def capture(self, copy: BoundCopy) -> Callable[[], object]:
        """A function that replays a captured copy.

        The capture is in CUDA's strictest mode, which forbids loading code, among other things.
        """
        with self._device("a capture"):
            stream = self._cuda.Stream(non_blocking=True)
            with stream:
                stream.begin_capture(self._cuda.runtime.streamCaptureModeGlobal)
                try:
                    copy(stream)
                except DmlError:
                    with suppress(RuntimeError):
                        stream.end_capture()
                    raise
                graph = stream.end_capture()

        def replay() -> None:
            with self._device("the replay of a graph"):
                graph.launch(stream)
                stream.synchronize()

        return replay

    def seconds(self, copy: Callable[[], object]) -> float:
        """The time of a copy, between two events on the current stream."""
        with self._device("a measurement"):
            begin, end = self._cuda.Event(), self._cuda.Event()
            begin.record()
            copy()
            end.record()
            end.synchronize()
            return float(self._cuda.get_elapsed_time(begin, end)) / 1000

    def plain_copy(self, source: Buffer, target: Buffer, size: int) -> Callable[[], object]:
        """A copy of contiguous bytes: CUDA's memcpyAsync."""
        runtime = self._cuda.runtime
        direction = runtime.memcpyDeviceToDevice

        def copy() -> None:
            with self._device("a plain copy"):
                stream = self._cuda.get_current_stream().ptr
                runtime.memcpyAsync(target.address, source.address, size, direction, stream)

        return copy

    def free_bytes(self) -> int:
        """The free memory of the device, as CUDA reports it."""
        with self._device("asking for free memory"):
            return int(self._cuda.runtime.memGetInfo()[0])

    def _device(self, action: str, needed: int | None = None) -> AbstractContextManager[None]:
        """Make the device current, and turn CUDA's errors into the library's."""
        return self._driver.on_device(self.device_number, f"{action} failed", needed)


Memory: TypeAlias = HostMemory | GpuMemory


def memory_of(device: str) -> Memory:
    """The memory of ``cpu`` or ``cuda:N``."""
    return HostMemory() if device == "cpu" else GpuMemory(device_number_of(device))


def other_memories(device_number: int) -> Iterator[tuple[str, GpuMemory | None]]:
    """Other kinds of memory by name; None for those that the GPU does not have."""
    runtime = driver.load().cupy.cuda.runtime
    for name, allocator, attribute in _OTHERS:
        is_supported = runtime.deviceGetAttribute(getattr(runtime, attribute), device_number)
        yield name, GpuMemory(device_number, allocator) if is_supported else None
