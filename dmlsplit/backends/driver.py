"""The CUDA driver, through CuPy: the only module of the engine that touches CuPy.

Everything here is an effect, so everything here can be replaced: tests put a recording
fake in its place. CuPy is imported when a function is first called.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dmlsplit.backends.kernel_launch import DeviceLimits
from dmlsplit.backends.prepacked import Enqueue, prepacked
from dmlsplit.errors import (
    DeviceRemovedError,
    DmlError,
    InvalidArgumentError,
    OutOfMemoryError,
    UnsupportedError,
)

# 32,764 bytes of kernel parameters need CUDA 12.1 in the driver and in NVRTC.
# Source: CUDA C++ Programming Guide, "Function Parameters".
_WIDE_PARAMETERS_SINCE = 12010
_WIDE_PARAMETERS, _PARAMETERS = 32764, 4096

# CUresult: out of memory; and what a wrong stream causes: invalid value, invalid context,
# invalid handle, context destroyed. Codes of 900 to 908 speak of stream capture.
_OUT_OF_MEMORY = 2
_BAD_STREAM = (1, 201, 400, 709)
_CAPTURE = range(900, 909)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled kernel, loaded into the context of one device.

    Attributes
    ----------
    name : str
        Its entry.
    device : int
        Where it is loaded.
    context : int
        CUcontext that must be current when it is launched.
    function : int
        CUfunction.
    owner : object
        CuPy's RawKernel; its module stays loaded as long as it lives.
    """

    name: str
    device: int
    context: int
    function: int
    owner: Any


def device_count() -> int:
    """Return the number of CUDA devices.

    Raises
    ------
    UnsupportedError
        If CuPy is not installed, or there is no driver or no device.
    """
    runtime = _cupy().cuda.runtime
    try:
        count: int = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        raise UnsupportedError(
            f"CUDA is not available: {error}. Fix: install the NVIDIA driver, or use the device "
            "'cpu'"
        ) from None
    return count


@lru_cache(maxsize=64)
def limits(device: int) -> DeviceLimits:
    """Return what the planner must know of a device."""
    from cupy_backends.cuda.libs import nvrtc

    cuda = _cupy().cuda
    found = cuda.runtime.getDeviceProperties(device)
    major, minor = nvrtc.getVersion()
    version = min(cuda.runtime.driverGetVersion(), 1000 * major + 10 * minor)
    return DeviceLimits(
        found["multiProcessorCount"],
        found["maxThreadsPerMultiProcessor"],
        found["sharedMemPerMultiprocessor"],
        found["sharedMemPerBlock"],
        found["l2CacheSize"],
        _WIDE_PARAMETERS if version >= _WIDE_PARAMETERS_SINCE else _PARAMETERS,
    )


def memory_info(device: int) -> tuple[int, int]:
    """Return the free and the total bytes of a device."""
    with _checked("asking for free memory", device) as cupy:
        free, total = cupy.cuda.runtime.memGetInfo()
    return free, total


def pci_bus_id(device: int) -> str:
    """Return the address that NVML knows a device by."""
    name: str = _cupy().cuda.runtime.deviceGetPCIBusId(device)
    return name


def current_stream(device: int) -> int:
    """Return the handle of CuPy's current stream on a device."""
    handle: int = _stream_getter()(device).ptr
    return handle


def load(device: int, name: str, source: str) -> Kernel:
    """Compile a source with NVRTC, or take it from CuPy's disk cache, and load it.

    Raises
    ------
    DmlError
        If it does not compile; with the kernel's name and NVRTC's log.
    """
    cupy = _cupy()
    from cupy.cuda.compiler import CompileException
    from cupy_backends.cuda.api import driver

    try:
        with cupy.cuda.Device(device):
            raw = cupy.RawModule(code=source, options=("-std=c++17",)).get_function(name)
            function = raw.kernel.ptr
            context = driver.ctxGetCurrent()
    except CompileException as error:
        raise DmlError(
            f"kernel {name!r} does not compile for cuda:{device}:\n{error.get_message()}"
        ) from None
    except (driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError) as error:
        raise _explained(error, f"loading kernel {name!r}", device) from None
    return Kernel(name, device, context, function, raw)


def enqueuer(kernel: Kernel, grid: int, block: int, pointers: Sequence[int]) -> Enqueue:
    """Pack a launch once; return what puts it on a stream, given the stream's handle.

    Parameters
    ----------
    kernel
        A loaded kernel; its only parameter is a struct by value of 64-bit pointers.
    grid, block
        Blocks, and threads per block.
    pointers
        The parameter.
    """
    from cupy_backends.cuda.api import driver

    if not hasattr(driver, "launchKernel"):
        return _public_enqueuer(kernel, grid, block, pointers)

    def explain(error: Exception) -> DmlError:
        return _explained(error, f"launching kernel {kernel.name!r}", kernel.device)

    return prepacked(driver, kernel.function, kernel.context, grid, block, pointers, explain)


def _public_enqueuer(kernel: Kernel, grid: int, block: int, pointers: Sequence[int]) -> Enqueue:
    """Return the same through RawKernel alone, for a CuPy without the private entry."""
    cupy = _cupy()
    # CuPy passes an array of one structured element by value.
    parameter = np.array(pointers, np.uint64).view(f"V{8 * len(pointers)}")

    def enqueue(stream: int) -> None:
        try:
            with cupy.cuda.Device(kernel.device), _as_stream(stream):
                kernel.owner((grid,), (block,), (parameter,))
        except RuntimeError as error:
            what = f"launching kernel {kernel.name!r}"
            raise _explained(error, what, kernel.device) from None

    return enqueue


def _as_stream(handle: int) -> Any:
    cupy = _cupy()
    return cupy.cuda.Stream.from_external(_Handle(handle)) if handle else cupy.cuda.Stream.null


@dataclass(frozen=True, slots=True)
class _Handle:
    """A raw stream handle, in the form that CuPy and others take."""

    handle: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


@contextmanager
def on_stream(device: int, handle: int) -> Iterator[None]:
    """Make a device and a stream CuPy's current ones for a while."""
    with _cupy().cuda.Device(device), _as_stream(handle):
        yield


def is_array(value: Any) -> bool:
    """Whether a value is a CuPy array; CuPy is not imported to find out."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(value, cupy.ndarray)


def device_of(array: Any) -> int:
    """Return the number of the device that holds a CuPy array."""
    number: int = array.data.device_id
    return number


def adopt(array: Any) -> Any:
    """Return a CuPy array on the memory of an array of another library.

    CuPy's current stream waits for what the library has under way, as DLPack and
    ``__cuda_array_interface__`` ask; the host does not.
    """
    cupy = _cupy()
    if hasattr(array, "__dlpack__"):
        return cupy.from_dlpack(array)
    return cupy.asarray(array)


def borrow(
    address: int,
    shape: Sequence[int],
    strides: Sequence[int],
    dtype: np.dtype,
    owner: Any,
    device: int,
) -> Any:
    """Return a CuPy array on foreign memory, which `owner` keeps alive; nothing waits."""
    cupy = _cupy()
    memory = cupy.cuda.UnownedMemory(address, 0, owner, device)
    pointer = cupy.cuda.MemoryPointer(memory, 0)
    return cupy.ndarray(tuple(shape), dtype, pointer, tuple(strides))


def empty(
    device: int,
    shape: Sequence[int],
    strides: Sequence[int] | None,
    dtype: np.dtype,
    size_in_bytes: int,
) -> Any:
    """Allocate a CuPy array; `size_in_bytes` counts where there are strides.

    Raises
    ------
    OutOfMemoryError
        If the device has not that much memory.
    """
    with _checked("allocating an output", device) as cupy:
        try:
            if strides is None:
                return cupy.empty(shape, dtype)
            store = cupy.empty(size_in_bytes, np.uint8)
        except cupy.cuda.memory.OutOfMemoryError as error:
            raise OutOfMemoryError(str(error)) from None
        return cupy.ndarray(tuple(shape), dtype, store.data, tuple(strides))


def upload(array: np.ndarray, device: int) -> Any:
    """Copy an array from the host to a device."""
    with _checked("copying to the device", device) as cupy:
        return cupy.asarray(array)


def download(array: Any) -> np.ndarray:
    """Copy a CuPy array to the host."""
    with _checked("copying to the host", device_of(array)) as cupy:
        copied: np.ndarray = cupy.asnumpy(array)
    return copied


@lru_cache(maxsize=1)
def _stream_getter() -> Callable[[int], Any]:
    getter: Callable[[int], Any] = _cupy().cuda.get_current_stream
    return getter


def _cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise UnsupportedError(
            f"CUDA devices need CuPy, which cannot be imported ({error}). "
            "Fix: pip install 'dmlsplit[cuda13]' (or 'dmlsplit[cuda12]' for an older driver)"
        ) from None
    return cupy


@contextmanager
def _checked(what: str, device: int) -> Iterator[Any]:
    """Yield CuPy with a device current; raise its errors as ours."""
    cupy = _cupy()
    try:
        with cupy.cuda.Device(device):
            yield cupy
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise _explained(error, what, device) from None


def _explained(error: Exception, what: str, device: int) -> DmlError:
    status = getattr(error, "status", None)
    where = f"{what} failed on cuda:{device}: {error}"
    if status == _OUT_OF_MEMORY:
        return OutOfMemoryError(f"{where}; {memory_info(device)[0]} bytes of its memory are free")
    if status in _BAD_STREAM:
        return InvalidArgumentError(f"{where}. The stream must be alive and belong to the device")
    if status in _CAPTURE:
        return InvalidArgumentError(f"{where}. The stream's capture does not allow it")
    return DeviceRemovedError(f"{where}. Fix: start a new process")
