"""Everything that dmlsplit asks of CuPy, and through it of the CUDA driver.

No other module of the library imports CuPy. Tests replace `load` to use a driver of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from dmlsplit.backends.cuda.failures import translated
from dmlsplit.backends.cuda.launch import DeviceLimits
from dmlsplit.backends.cuda.nvml import gpu_memory
from dmlsplit.backends.cuda.packed_launch import BoundLaunch, PackedLaunch
from dmlsplit.errors import DmlError, UnsupportedError

# Bytes of kernel parameters, and the CUDA version that raised them (CUDA 12.1 release notes).
LARGE_PARAMETERS, SMALL_PARAMETERS, LARGE_SINCE = 32764, 4096, 12010
OPTIONS = ("-std=c++17",)


@cache
def load() -> Driver:
    """Return the driver.

    Raises
    ------
    UnsupportedError
        If CuPy is not installed or cannot be imported, or there is no CUDA driver or device.
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
            "a writable folder"
        ) from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise UnsupportedError(f"there is no usable CUDA driver: {error}") from None
    if not count:
        raise UnsupportedError("there is no CUDA device; CUDA_VISIBLE_DEVICES may hide it")
    return Driver(cupy, count)


def is_available() -> bool:
    """Whether CuPy is installed and finds a CUDA device."""
    try:
        load()
    except UnsupportedError:
        return False
    return True


class Driver:
    """The part of CuPy that dmlsplit uses. Devices are ordinals, below `device_count`."""

    def __init__(self, cupy: Any, device_count: int) -> None:
        self.device_count = device_count
        self._cupy = cupy
        self._limits: dict[int, DeviceLimits] = {}

    def limits(self, device: int) -> DeviceLimits:
        """Return what the planner must know of a device; CUDA is asked once."""
        if device not in self._limits:
            runtime, cuda = self._cupy.cuda.runtime, self._cupy.cuda
            with self._on(device, "its limits cannot be read"):
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
                properties["regsPerMultiprocessor"],
                properties["maxBlocksPerMultiProcessor"],
            )
        return self._limits[device]

    def kernel(self, device: int, source: str, name: str) -> Any:
        """Return a source's kernel, compiled now or from CuPy's cache on disk.

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

    def bind_launch(
        self, device: int, kernel: Any, grid: int, block: int, parameters: bytes
    ) -> BoundLaunch:
        """Bind a kernel's launch to memory; its only parameter is a struct by value."""
        try:
            from cupy_backends.cuda.api import driver

            launch_kernel = driver.launchKernel
            # A kernel's handle belongs to the device that is current when it is asked for.
            what = "the kernel's handle is not available"
            with self._on(device, what):
                function = kernel.kernel.ptr
        except (ImportError, AttributeError):
            # CuPy does not document these two names.
            return self._public_launch(device, kernel, grid, block, parameters)
        api = self._cupy.cuda, launch_kernel, self.translated
        return PackedLaunch(*api, kernel, function, device, grid, block, parameters).launch

    def _public_launch(
        self, device: int, kernel: Any, grid: int, block: int, parameters: bytes
    ) -> BoundLaunch:
        """Bind a launch through RawKernel, which passes an array of one item by value."""
        cuda = self._cupy.cuda
        arguments = (np.frombuffer(parameters, f"V{len(parameters)}"),)

        def launch(handle: int | None) -> None:
            with (
                self._on(device, "the launch failed"),
                cuda.get_current_stream() if handle is None else self._stream(handle),
            ):
                kernel((grid,), (block,), arguments)

        return launch

    def empty(
        self,
        device: int,
        shape: Sequence[int],
        dtype: Any,
        strides: Sequence[int] | None,
        size_in_bytes: int,
    ) -> Any:
        """Allocate a CuPy array: a packed one, or, with `strides`, one of `size_in_bytes`."""
        cupy = self._cupy
        with cupy.cuda.Device(device):
            if strides is None:
                return cupy.empty(shape, dtype)
            return cupy.ndarray(shape, dtype, cupy.cuda.alloc(size_in_bytes), strides)

    def upload(self, device: int, array: np.ndarray) -> Any:
        """Copy a host array to a device."""
        with self._on(device, "a copy to the device cannot be made", array.nbytes):
            return self._cupy.asarray(array)

    def download(self, device: int, array: Any) -> np.ndarray:
        """Copy a CuPy array to the host, once the current stream is done with it."""
        with self._on(device, "a copy to the host cannot be made"):
            host: np.ndarray = self._cupy.asnumpy(array)
        return host

    def from_dlpack(self, array: Any) -> Any:
        """Return a CuPy array on another library's memory, ordered on the current stream."""
        return self._cupy.from_dlpack(array)

    def device_of(self, address: int) -> int | None:
        """Return the device of an address; None for memory that CUDA does not know.

        Empty arrays have address 0 and count as being on CuPy's current device.
        """
        runtime = self._cupy.cuda.runtime
        with self._on(None, "an address cannot be looked up"):
            owner = runtime.pointerGetAttributes(address).device if address else runtime.getDevice()
        return int(owner) if owner >= 0 else None

    @contextmanager
    def on_stream(self, device: int, handle: int, stream: Any = None) -> Iterator[None]:
        """Make a device and a stream CuPy's current ones inside a ``with`` block.

        `stream` is CuPy's own object for `handle`, if there is one: with a stream-ordered pool,
        memory allocated in the block is then freed on that stream.
        """
        try:
            with self._cupy.cuda.Device(device), stream or self._stream(handle):
                yield
        except RuntimeError as error:
            # Errors of the block that do not come from CUDA are not ours to translate.
            if not hasattr(error, "status"):
                raise
            raise self.translated(error, device, "the stream cannot be used") from None

    def wait_for(self, device: int, handle: int) -> None:
        """Make CuPy's current stream wait for the work queued on another stream."""
        cuda = self._cupy.cuda
        with self._on(device, "the array's stream cannot be waited for"):
            current = cuda.get_current_stream()
            if current.ptr != handle:
                event = cuda.Event(disable_timing=True)
                event.record(self._stream(handle))
                current.wait_event(event)

    def memory(self, device: int) -> tuple[int, int]:
        """Return free and total bytes of the whole GPU, from NVML or else from CUDA."""
        runtime = self._cupy.cuda.runtime
        found = gpu_memory(runtime.deviceGetPCIBusId(device))
        if found is None:
            with self._cupy.cuda.Device(device):
                free, total = runtime.memGetInfo()
            found = int(free), int(total)
        return found

    @contextmanager
    def _on(self, device: int | None, what: str, needed: int | None = None) -> Iterator[None]:
        """Make a device CuPy's current one, and turn CUDA's errors into the library's."""
        try:
            with self._cupy.cuda.Device(device):
                yield
        except (RuntimeError, MemoryError) as error:
            raise self.translated(error, device, what, needed) from None

    def translated(
        self, error: Exception, device: int | None, what: str, needed: int | None = None
    ) -> DmlError:
        """Return the library's error for one of CUDA's; see `failures.translated`."""
        return translated(error, device, what, needed, self.memory)

    def _stream(self, handle: int) -> Any:
        return self._cupy.cuda.Stream.from_external(
            SimpleNamespace(__cuda_stream__=lambda: (0, handle))
        )
