"""The only module that imports CuPy, through which it calls CUDA.

Tests without a GPU replace `load`, or run CuPy on a simulated CUDA.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import repeat
from typing import Any

import numpy as np

from dmlsplit.backends.cuda import installation, libcuda
from dmlsplit.backends.cuda.launch import (
    LARGE_PARAMETERS,
    DeviceLimits,
    KernelLaunch,
    in_flight_bytes,
)
from dmlsplit.backends.cuda.raw_kernels import Launcher, RawKernels
from dmlsplit.backends.cuda.streams import external_stream
from dmlsplit.errors import (
    DeviceRemovedError,
    DmlError,
    InvalidArgumentError,
    OutOfMemoryError,
    UnsupportedError,
)

# The most bytes of a kernel's parameters where LARGE_PARAMETERS are not allowed. They are since
# CUDA 12.1, on GPUs of major compute capability 7 and newer ones (CUDA 12.1 release notes).
SMALL_PARAMETERS = 4096
LARGE_SINCE = 12010
LARGE_CAPABILITY = 7

# cudaDevAttrComputeCapabilityMajor and Minor.
CAPABILITY = 75, 76
# cudaError_t and CUresult share these numbers. Source: cuda.h and driver_types.h.
OUT_OF_MEMORY = 2
# An invalid handle, and all errors about the capture of a stream.
BAD_STREAM = frozenset({400, *range(900, 909)})
# In a forked child whose parent had initialised CUDA.
NOT_INITIALIZED = 3
# After these, the process can probably not use the device again. CUDA says of 226, 700, 702, 710
# and 714 to 719 that the process must be terminated; the library assumes the same of the others.
REMOVED = frozenset(
    {
        4,  # cudaErrorCudartUnloading
        46,  # cudaErrorDevicesUnavailable
        101,  # cudaErrorInvalidDevice
        214,  # cudaErrorECCUncorrectable
        220,  # cudaErrorNvlinkUncorrectable
        226,  # cudaErrorContained
        700,  # cudaErrorIllegalAddress
        702,  # cudaErrorLaunchTimeout
        709,  # cudaErrorContextIsDestroyed
        710,  # cudaErrorAssert
        714,  # cudaErrorHardwareStackError
        715,  # cudaErrorIllegalInstruction
        716,  # cudaErrorMisalignedAddress
        717,  # cudaErrorInvalidAddressSpace
        718,  # cudaErrorInvalidPc
        719,  # cudaErrorLaunchFailure
        999,  # cudaErrorUnknown
    }
)


@cache
def load() -> "Driver":
    """The driver. An `UnsupportedError` says what is missing, and how to fix it."""
    packages = installation.installed_packages()
    if message := installation.package_error(packages, libcuda.driver_version()):
        raise UnsupportedError(message)
    try:
        import cupy
    except ImportError as error:
        message = installation.cupy_error(error, libcuda.driver_version())
        raise UnsupportedError(message) from None
    except OSError as error:
        raise UnsupportedError(
            f"CuPy cannot create its cache folder for kernels: {error}. Fix: set CUPY_CACHE_DIR to "
            "a writable folder"
        ) from None
    if message := installation.version_error(versions_of(cupy), packages):
        raise UnsupportedError(message)
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise UnsupportedError(
            f"there is no usable CUDA device: {error}. Fix: check that nvidia-smi lists a device, "
            "and that CUDA_VISIBLE_DEVICES does not hide it"
        ) from None
    if not count:
        raise UnsupportedError(
            "there is no CUDA device. Fix: unset CUDA_VISIBLE_DEVICES, which may hide it"
        )
    return Driver(cupy, count)


def versions_of(cupy: Any) -> installation.Cuda:
    """CuPy, and what it works with."""
    runtime = cupy.cuda.runtime
    try:
        nvrtc = cupy.cuda.nvrtc.getVersion()
    except (RuntimeError, ImportError, OSError):  # the first is cuda.pathfinder's
        nvrtc = None
    versions = runtime.runtimeGetVersion(), runtime.driverGetVersion()
    return installation.Cuda(*versions, nvrtc, _has_headers(), cupy.__version__)


def _has_headers() -> bool:
    """Whether CuPy finds CUDA's headers."""
    try:
        from cuda.pathfinder import find_nvidia_header_directory
    except ImportError:  # CuPy looks elsewhere, and says so if it fails
        return True
    return find_nvidia_header_directory("cudart") is not None


class Driver:
    """The part of CuPy that dmlsplit uses. Devices are ordinals, below `device_count`."""

    def __init__(self, cupy: Any, device_count: int) -> None:
        self.device_count = device_count
        self._cupy = cupy
        # Looked up once, because a whole call of `split` takes about 10 microseconds.
        self._array = cupy.ndarray
        self._current_device = cupy.cuda.runtime.getDevice
        self.kernels = RawKernels(cupy, self.on_device)
        # By device: its limits, and why it is unusable.
        self.limits: Callable[[int], DeviceLimits] = cache(self._limits)
        self.why_unusable: Callable[[int], str | None] = cache(self._why_unusable)
        # Makes the launcher of a planned launch on a device, with its loaded kernel.
        self.launcher: Callable[[int, Any, KernelLaunch], Launcher] = partial(
            Launcher, cupy.cuda, self.dml_error
        )

    @property
    def cupy(self) -> Any:
        """CuPy itself, for the self-test, which does more than split."""
        return self._cupy

    # Devices and kernels.

    def name(self, device: int) -> str:
        """The product name of a device."""
        with self.on_device(device, "the device's name cannot be read"):
            name: bytes = self._cupy.cuda.runtime.getDeviceProperties(device)["name"]
        return name.decode(errors="replace")

    def attributes(self, device: int, kernel: Any) -> tuple[int, int]:
        """Registers and bytes of local memory of a thread of a loaded kernel."""
        with self.on_device(device, "the attributes of a kernel cannot be read"):
            return kernel.num_regs, kernel.local_size_bytes

    def _target(self, device: int) -> installation.CompileTarget:
        """What CuPy compiles for on a device."""
        cuda = self._cupy.cuda
        ask = cuda.runtime.deviceGetAttribute
        with self.on_device(None, f"cuda:{device} cannot be asked for its compute capability"):
            major, minor = (ask(number, device) for number in CAPABILITY)
        capability = 10 * major + minor
        # Undocumented. Without it, CuPy is expected to know the GPU.
        newest = getattr(cuda.compiler, "_get_max_compute_capability", lambda: capability)()
        is_ptx = os.environ.get("CUPY_COMPILE_WITH_PTX") == "1"
        return installation.CompileTarget(capability, int(newest), is_ptx)

    def _why_unusable(self, device: int) -> str | None:
        """Why a device cannot run the kernels, and the fix."""
        supported = self._cupy.cuda.nvrtc.getSupportedArchs()
        packages = installation.installed_packages()
        return installation.gpu_error(f"cuda:{device}", self._target(device), supported, packages)

    def architecture(self, device: int) -> str:
        """The target of the compilation for a device, in NVRTC's notation."""
        return self._target(device).architecture

    def _limits(self, device: int) -> DeviceLimits:
        """What CUDA and NVRTC say of a device."""
        runtime = self._cupy.cuda.runtime
        cuda = self._cupy.cuda
        with self.on_device(device, "the device's limits cannot be read"):
            properties = runtime.getDeviceProperties(device)
            major, minor = cuda.nvrtc.getVersion()
            version = min(runtime.driverGetVersion(), major * 1000 + minor * 10)
        is_large = version >= LARGE_SINCE and properties["major"] >= LARGE_CAPABILITY
        return DeviceLimits(
            properties["multiProcessorCount"],
            properties["maxThreadsPerMultiProcessor"],
            properties["l2CacheSize"],
            LARGE_PARAMETERS if is_large else SMALL_PARAMETERS,
            properties["regsPerMultiprocessor"],
            properties["maxBlocksPerMultiProcessor"],
            properties["sharedMemPerMultiprocessor"],
            in_flight_bytes(properties["major"]),
        )

    # Memory.

    def empty(self, device: int, shapes: Iterable[Sequence[int]], dtype: np.dtype) -> list[Any]:
        """Allocate packed CuPy arrays."""
        if self._current_device() != device:
            with self._cupy.cuda.Device(device):
                return self.empty(device, shapes, dtype)
        # `map` keeps the loop in C.
        return list(map(self._array, shapes, repeat(dtype)))

    def strided_view(self, array: Any, shape: Sequence[int], strides: Sequence[int]) -> Any:
        """A view of a CuPy array's memory, with strides in bytes."""
        return self._array(shape, array.dtype, array.data, strides)

    def upload(self, device: int, array: np.ndarray) -> Any:
        """Copy a host array to a device."""
        with self.on_device(device, "a copy to the device cannot be made", array.nbytes):
            return self._cupy.asarray(array)

    def download(self, device: int, array: Any) -> np.ndarray:
        """Copy a CuPy array to the host, on the current stream."""
        with self.on_device(device, "a copy to the host cannot be made"):
            host: np.ndarray = self._cupy.asnumpy(array)
        return host

    def from_dlpack(self, array: Any) -> Any:
        """A CuPy array on another library's memory, ordered on the current stream."""
        return self._cupy.from_dlpack(array)

    def device_of(self, address: int) -> int | None:
        """The device of an address; None if CUDA does not know it.

        Address 0, of empty arrays, counts as CuPy's current device.
        """
        runtime = self._cupy.cuda.runtime
        with self.on_device(None, "an address cannot be looked up"):
            owner = runtime.pointerGetAttributes(address).device if address else runtime.getDevice()
        return int(owner) if owner >= 0 else None

    # Streams, and CUDA's errors.

    @contextmanager
    def on_stream(self, device: int, handle: int, stream: Any = None) -> Iterator[None]:
        """Make a device and a stream current in CuPy.

        `stream` is CuPy's own object for `handle`, if there is one: a stream-ordered pool then
        frees memory that was allocated in the block on that stream.
        """
        try:
            with self._cupy.cuda.Device(device), stream or external_stream(self._cupy.cuda, handle):
                yield
        except RuntimeError as error:
            # Only CUDA's errors have a status; others pass.
            if not hasattr(error, "status"):
                raise
            raise self.dml_error(error, device, "the stream cannot be used") from None

    def wait_for(self, device: int, handle: int) -> None:
        """Make CuPy's current stream wait for the work queued on another stream."""
        cuda = self._cupy.cuda
        with self.on_device(device, "the array's stream cannot be waited for"):
            current = cuda.get_current_stream()
            if current.ptr != handle:
                event = cuda.Event(disable_timing=True)
                event.record(external_stream(cuda, handle))
                current.wait_event(event)

    @contextmanager
    def on_device(
        self, device: int | None, failure: str, needed: int | None = None
    ) -> Iterator[None]:
        """Make a device current in CuPy, and turn CUDA's errors into the library's.

        `failure` says what has failed then, and `needed` how many bytes were requested, if any.
        """
        try:
            with self._cupy.cuda.Device(device):
                yield
        except (RuntimeError, MemoryError) as error:
            raise self.dml_error(error, device, failure, needed) from None

    def dml_error(
        self, error: Exception, device: int | None, failure: str, needed: int | None = None
    ) -> DmlError:
        """The library's error for one of CUDA (which has a ``status``), CuPy or torch.

        `failure` says what has failed, and `needed` how many bytes were requested, if any.
        """
        status = getattr(error, "status", None)
        name = "the CUDA device" if device is None else f"cuda:{device}"
        if status in REMOVED:
            return DeviceRemovedError(
                f"{failure}: {name} is gone or has failed: {error}. Fix: start a new process"
            )
        if status in BAD_STREAM:
            return InvalidArgumentError(
                f"{failure} on {name}: {error}. Fix: use a stream of this device that "
                "still exists; if it is being captured, make this call before the capture begins"
            )
        if status == NOT_INITIALIZED:
            return DmlError(
                f"{failure} on {name}: {error}. A forked process cannot use CUDA if its parent "
                "did. Fix: start processes with spawn"
            )
        is_full = (
            isinstance(error, (MemoryError, OverflowError))
            or type(error).__name__ == "OutOfMemoryError"
        )
        if device is None or (not is_full and status != OUT_OF_MEMORY):
            return DmlError(f"{failure} on {name}: {error}")
        return OutOfMemoryError(f"{failure} on {name}: {self._memory_text(device, needed)}")

    def _memory_text(self, device: int, needed: int | None) -> str:
        """How many bytes were requested, and how many are free, as far as that is known."""
        try:
            with self._cupy.cuda.Device(device):
                free, total = self._cupy.cuda.runtime.memGetInfo()
        except RuntimeError:
            return "out of memory"
        request = "" if needed is None else f"{needed} bytes are needed, "
        return f"{request}{free} of {total} bytes are free"
