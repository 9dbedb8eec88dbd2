"""Everything that dmlsplit asks of CuPy, and through it of the CUDA driver.

No other module of the library imports CuPy. Tests put a recording driver in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from dmlsplit.backends.cuda.launch import DeviceLimits
from dmlsplit.backends.cuda.nvml import gpu_memory
from dmlsplit.errors import (
    DeviceRemovedError,
    DmlError,
    InvalidArgumentError,
    OutOfMemoryError,
    UnsupportedError,
)

# Carries out one launch; the argument is a stream's handle, None for CuPy's current stream.
Start = Callable[[int | None], None]

# Bytes of kernel parameters, and the CUDA version that raised them (CUDA 12.1 release notes).
LARGE_PARAMETERS, SMALL_PARAMETERS, LARGE_SINCE = 32764, 4096, 12010
OPTIONS = ("-std=c++17",)

# cudaError_t and CUresult share their numbers. REMOVED leave a context that cannot be used again.
OUT_OF_MEMORY = 2
# An invalid handle, and what speaks of a stream's capture.
BAD_STREAM = frozenset({400, *range(900, 909)})
INVALID_CONTEXT = 201
REMOVED = frozenset({4, 46, 101, 214, 220, 226, 700, 702, 709, 710, *range(714, 720), 999})


@cache
def load() -> Driver:
    """Return the driver.

    Raises
    ------
    UnsupportedError
        If CuPy is not installed or cannot start, or there is no CUDA driver or device.
    """
    try:
        import cupy
    except ImportError as error:
        raise UnsupportedError(
            f"CUDA devices need CuPy, which cannot be imported: {error}. Fix: pip install "
            "'dmlsplit[cuda13]', or 'dmlsplit[cuda12]' for drivers older than 580"
        ) from None
    except OSError as error:
        raise UnsupportedError(
            f"CuPy cannot make its folder of compiled kernels: {error}. Fix: set CUPY_CACHE_DIR to "
            "a folder that can be written"
        ) from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise UnsupportedError(f"there is no usable CUDA driver: {error}") from None
    if not count:
        raise UnsupportedError("there is no CUDA device; CUDA_VISIBLE_DEVICES may hide it")
    return Driver(cupy, count)


def is_available() -> bool:
    """Whether CuPy and a CUDA device are there."""
    try:
        load()
    except UnsupportedError:
        return False
    return True


class Driver:
    """CuPy, as far as dmlsplit needs it. Devices go by their number.

    Attributes
    ----------
    device_count : int
    """

    def __init__(self, cupy: Any, device_count: int) -> None:
        self.device_count = device_count
        self._cupy = cupy
        self._limits: dict[int, DeviceLimits] = {}

    def limits(self, device: int) -> DeviceLimits:
        """Return what the planner must know of a device; asked of CUDA once."""
        if device not in self._limits:
            runtime, cuda = self._cupy.cuda.runtime, self._cupy.cuda
            with self._reporting(device, "its limits cannot be read"):
                properties = runtime.getDeviceProperties(device)
                major, minor = cuda.nvrtc.getVersion()
                version = min(runtime.driverGetVersion(), major * 1000 + minor * 10)
            self._limits[device] = DeviceLimits(
                properties["multiProcessorCount"],
                properties["maxThreadsPerMultiProcessor"],
                properties["sharedMemPerMultiprocessor"],
                properties["sharedMemPerBlock"],
                properties["l2CacheSize"],
                LARGE_PARAMETERS if version >= LARGE_SINCE else SMALL_PARAMETERS,
            )
        return self._limits[device]

    def kernel(self, device: int, source: str, name: str) -> Any:
        """Compile a source, or find it in CuPy's cache on disk, and return its entry.

        Raises
        ------
        DmlError
            With the kernel's name and the compiler's log.
        """
        cupy = self._cupy
        try:
            with cupy.cuda.Device(device):
                kernel = cupy.RawKernel(source, name, options=OPTIONS)
                kernel.compile()
        except cupy.cuda.compiler.CompileException as error:
            raise DmlError(
                f"kernel {name} does not compile for cuda:{device}; NVRTC says:\n{error}"
            ) from None
        except (RuntimeError, OSError) as error:
            raise self.translated(error, device, f"kernel {name} cannot be loaded") from None
        return kernel

    def launcher(
        self, device: int, kernel: Any, grid: int, block: int, addresses: Sequence[int]
    ) -> Start:
        """Pack a launch whose only parameter is a struct of `addresses`, by value."""
        table = np.array(addresses, np.uint64)
        try:
            from cupy_backends.cuda.api import driver

            launch_kernel = driver.launchKernel
            # A kernel's handle belongs to the device that is current when it is asked for.
            what = "the kernel's handle cannot be had"
            with self._reporting(device, what), self._cupy.cuda.Device(device):
                function = kernel.kernel.ptr
        except (ImportError, AttributeError):
            return self._public_launcher(device, kernel, grid, block, table)
        cuda = self._cupy.cuda
        return prepacked(
            launch_kernel=launch_kernel,
            current_device=cuda.runtime.getDevice,
            current_stream=cuda.get_current_stream,
            use_device=cuda.Device,
            translated=self.translated,
            device=device,
            function=function,
            shape=(grid, 1, 1, block, 1, 1, 0),
            table=table,
            keep=kernel,
        )

    def _public_launcher(
        self, device: int, kernel: Any, grid: int, block: int, table: np.ndarray
    ) -> Start:
        """Launch through RawKernel, which passes an array of one item by value."""
        cuda = self._cupy.cuda
        arguments = (table.view(f"V{table.nbytes}"),)

        def start(handle: int | None) -> None:
            try:
                with cuda.Device(device):
                    stream = cuda.get_current_stream() if handle is None else self._stream(handle)
                    with stream:
                        kernel((grid,), (block,), arguments)
            except RuntimeError as error:
                raise self.translated(error, device, "the launch failed") from None

        return start

    def empty(
        self,
        device: int,
        shape: Sequence[int],
        dtype: Any,
        strides: Sequence[int] | None,
        size_in_bytes: int,
    ) -> Any:
        """Allocate a CuPy array; strided ones get `size_in_bytes` bytes."""
        cupy = self._cupy
        with cupy.cuda.Device(device):
            if strides is None:
                return cupy.empty(shape, dtype)
            return cupy.ndarray(shape, dtype, cupy.cuda.alloc(size_in_bytes), strides)

    def upload(self, device: int, array: np.ndarray) -> Any:
        """Copy an array of the host to a device."""
        what = "a copy to the device cannot be made"
        with self._reporting(device, what, array.nbytes), self._cupy.cuda.Device(device):
            return self._cupy.asarray(array)

    def download(self, device: int, array: Any) -> np.ndarray:
        """Copy a CuPy array to the host, once the current stream is done with it."""
        what = "a copy to the host cannot be made"
        with self._reporting(device, what), self._cupy.cuda.Device(device):
            host: np.ndarray = self._cupy.asnumpy(array)
        return host

    def from_dlpack(self, array: Any) -> Any:
        """Return a CuPy array on the memory of another library's, safe on the current stream."""
        return self._cupy.from_dlpack(array)

    def device_of(self, address: int) -> int | None:
        """Return the device that an address belongs to; None for memory that CUDA does not know.

        Empty arrays have the address 0; they are taken to be on CuPy's current device.
        """
        runtime = self._cupy.cuda.runtime
        with self._reporting(None, "an address cannot be looked up"):
            owner = runtime.pointerGetAttributes(address).device if address else runtime.getDevice()
        return int(owner) if owner >= 0 else None

    @contextmanager
    def on_stream(self, device: int, handle: int, stream: Any = None) -> Iterator[None]:
        """Make a device and a stream CuPy's current ones for a while.

        `stream` is CuPy's own object, where there is one: memory that is taken meanwhile goes back
        on that stream as long as the object lives.
        """
        try:
            with self._cupy.cuda.Device(device), stream or self._stream(handle):
                yield
        except RuntimeError as error:
            # Of the block's errors only those of CUDA are ours to translate.
            if not hasattr(error, "status"):
                raise
            raise self.translated(error, device, "the stream cannot be used") from None

    def wait_for(self, device: int, handle: int) -> None:
        """Let CuPy's current stream wait for what is under way on another stream."""
        cuda = self._cupy.cuda
        with (
            self._reporting(device, "the array's stream cannot be waited for"),
            cuda.Device(device),
        ):
            current = cuda.get_current_stream()
            if current.ptr != handle:
                event = cuda.Event(disable_timing=True)
                event.record(self._stream(handle))
                current.wait_event(event)

    def memory(self, device: int) -> tuple[int, int]:
        """Return free and total bytes: of the whole GPU from NVML, else as CUDA counts."""
        runtime = self._cupy.cuda.runtime
        found = gpu_memory(runtime.deviceGetPCIBusId(device))
        if found is None:
            with self._cupy.cuda.Device(device):
                free, total = runtime.memGetInfo()
            found = int(free), int(total)
        return found

    @contextmanager
    def _reporting(
        self, device: int | None, what: str, needed: int | None = None
    ) -> Iterator[None]:
        """Turn CUDA's errors into the library's, as `translated` does."""
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            raise self.translated(error, device, what, needed) from None

    def translated(
        self, error: Exception, device: int | None, what: str, needed: int | None = None
    ) -> DmlError:
        """Return the library's error for one of CUDA's, CuPy's or torch's.

        Parameters
        ----------
        error
            What was raised.
        device
            The device's number; None where it is not known.
        what
            What could not be done.
        needed
            Bytes that were asked for.
        """
        status = getattr(error, "status", None)
        name = "the CUDA device" if device is None else f"cuda:{device}"
        if status in REMOVED:
            return DeviceRemovedError(
                f"{what}: {name} is gone or has failed: {error}. Fix: start a new process"
            )
        if status in BAD_STREAM:
            return InvalidArgumentError(
                f"{what} on {name}: {error}. Fix: dispatch on a stream that is alive, of "
                "this device, and whose capture allows it"
            )
        is_full = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
        if device is None or (not is_full and status != OUT_OF_MEMORY):
            return DmlError(f"{what} on {name}: {error}")
        try:
            free, total = self.memory(device)
        except RuntimeError:
            return OutOfMemoryError(f"{what} on {name}: out of memory")
        wanted = "" if needed is None else f"{needed} bytes are needed, "
        return OutOfMemoryError(f"{what} on {name}: {wanted}{free} of {total} bytes are free")

    def _stream(self, handle: int) -> Any:
        return self._cupy.cuda.Stream.from_external(_Handle(handle))


class _Handle:
    """A stream's handle in the form of the CUDA stream protocol."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


def prepacked(
    *,
    launch_kernel: Callable[..., None],
    current_device: Callable[[], int],
    current_stream: Callable[[], Any],
    use_device: Callable[[int], Any],
    translated: Callable[[Exception, int, str], DmlError],
    device: int,
    function: int,
    shape: tuple[int, ...],
    table: np.ndarray,
    keep: Any = None,
) -> Start:
    """Return a launch that is one call of cuLaunchKernel with parameters that lie ready.

    Parameters
    ----------
    launch_kernel, current_device, current_stream, use_device, translated
        The calls of CUDA, CuPy and this module that a launch makes.
    device, function
        The device's number and the kernel's handle there.
    shape
        Grid, block and dynamic shared memory, as cuLaunchKernel takes them.
    table
        The bytes of the kernel's only parameter; read by the driver at every launch.
    keep
        Stays alive as long as the launch.
    """
    parameters = np.array([table.ctypes.data], np.uint64)
    address = parameters.ctypes.data
    alive = (table, parameters, keep)

    def launch(handle: int | None) -> None:
        stream = current_stream().ptr if handle is None else handle
        try:
            launch_kernel(function, *shape, stream, address, 0)
        except RuntimeError as error:
            if getattr(error, "status", None) != INVALID_CONTEXT:
                raise
            # A thread that never used CUDA has no context yet.
            use_device(device).use()
            launch_kernel(function, *shape, stream, address, 0)

    def start(handle: int | None) -> None:
        try:
            if current_device() == device:
                launch(handle)
            else:
                with use_device(device):
                    launch(handle)
        except RuntimeError as error:
            raise translated(error, device, "the launch failed") from None

    start.__dict__["alive"] = alive
    return start
