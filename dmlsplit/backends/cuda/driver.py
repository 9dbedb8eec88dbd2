"""The only module that imports CuPy, through which it calls CUDA.

Tests without a GPU replace `load`, or run CuPy on a simulated CUDA.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import repeat
from types import SimpleNamespace
from typing import Any

import numpy as np

from dmlsplit.backends.cuda import installation, libcuda
from dmlsplit.backends.cuda.launch import (
    LARGE_PARAMETERS,
    DeviceLimits,
    KernelLaunch,
    in_flight_bytes,
)
from dmlsplit.backends.cuda.modules import Kernel, kernel_loader
from dmlsplit.backends.cuda.packed_launch import Launcher, public_launch
from dmlsplit.errors import (
    DeviceRemovedError,
    DmlError,
    InvalidArgumentError,
    OutOfMemoryError,
    UnsupportedError,
)

# Kernel parameters have at most SMALL_PARAMETERS bytes, or LARGE_PARAMETERS since this version of
# CUDA, on GPUs of this major compute capability and newer ones (CUDA 12.1 release notes).
SMALL_PARAMETERS, LARGE_SINCE, LARGE_CAPABILITY = 4096, 12010, 7

# cudaDevAttrComputeCapabilityMajor and Minor.
CAPABILITY = 75, 76
# CU_FUNC_ATTRIBUTE_NUM_REGS and CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES.
ATTRIBUTES = 4, 3
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
    """The versions of CUDA that CuPy works with."""
    runtime = cupy.cuda.runtime
    try:
        nvrtc = cupy.cuda.nvrtc.getVersion()
    except (RuntimeError, ImportError, OSError):  # the first is cuda.pathfinder's
        nvrtc = None
    return installation.Cuda(runtime.runtimeGetVersion(), runtime.driverGetVersion(), nvrtc)


def _driver_api() -> Any:
    """CuPy's undocumented calls of the CUDA driver; each is None if it has changed."""
    try:
        from cupy_backends.cuda.api import driver
    except ImportError:
        return SimpleNamespace(launchKernel=None, funcGetAttribute=None)
    launch: Any = getattr(driver, "launchKernel", None)
    try:
        # CUDA rejects a null launch with a RuntimeError; a changed signature raises TypeError.
        launch(*[0] * 11)
    except TypeError:
        launch = None
    except RuntimeError:
        pass
    attribute = getattr(driver, "funcGetAttribute", None)
    return SimpleNamespace(launchKernel=launch, funcGetAttribute=attribute)


class Driver:
    """The part of CuPy that dmlsplit uses. Devices are ordinals, below `device_count`."""

    def __init__(self, cupy: Any, device_count: int) -> None:
        self.device_count = device_count
        self._cupy = cupy
        # Looked up once, because a whole call of `split` takes about 10 microseconds.
        self._array = cupy.ndarray
        self._current_device = cupy.cuda.runtime.getDevice
        self._api = _driver_api()
        # By device: its limits, a loader of kernels by source and name, and why it is unusable.
        self.limits: Callable[[int], DeviceLimits] = cache(self._limits)
        self.kernel_loader: Callable[[int], Callable[[str, str], Kernel]] = cache(self._loader)
        self.why_unusable: Callable[[int], str | None] = cache(self._why_unusable)
        launch_kernel = self._api.launchKernel or public_launch(cupy.cuda)
        # Makes the launcher of a planned launch on a device, with a loader of its kernel.
        self.launcher: Callable[[int, Callable[[], Kernel], KernelLaunch], Launcher] = partial(
            Launcher, cupy.cuda, launch_kernel, self.dml_error
        )
        # Pairs of a device and the hash of a source that the engine has compiled with its siblings.
        # If two sources had the same hash, the siblings of one would be compiled later.
        self.compiled_with_siblings: set[tuple[int, int]] = set()

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

    @property
    def has_packed_launches(self) -> bool:
        """Whether CuPy has cuLaunchKernel; if not, launches use CuPy's public API."""
        return self._api.launchKernel is not None

    def attributes(self, kernel: Kernel) -> tuple[int, int] | None:
        """Registers and bytes of local memory of a thread; None if CuPy hides them."""
        get_attribute = self._api.funcGetAttribute
        if get_attribute is None:
            return None
        handle = getattr(kernel.target, "ptr", kernel.target)
        registers, local_bytes = (get_attribute(number, handle) for number in ATTRIBUTES)
        return registers, local_bytes

    def _architectures(self, device: int) -> tuple[int, tuple[int, ...]]:
        """The compute capability of a device, such as 90, and those that NVRTC compiles for."""
        runtime = self._cupy.cuda.runtime
        major, minor = (runtime.deviceGetAttribute(attribute, device) for attribute in CAPABILITY)
        return 10 * major + minor, tuple(self._cupy.cuda.nvrtc.getSupportedArchs())

    def _why_unusable(self, device: int) -> str | None:
        """Why a device cannot run the kernels, and the fix."""
        name, architectures = f"cuda:{device}", self._architectures(device)
        return installation.gpu_error(name, *architectures, installation.installed_packages())

    def architecture(self, device: int) -> str:
        """The target of the compilation for a device, in NVRTC's notation."""
        return installation.architecture(*self._architectures(device))

    def _limits(self, device: int) -> DeviceLimits:
        runtime, cuda = self._cupy.cuda.runtime, self._cupy.cuda
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

    def _loader(self, device: int) -> Callable[[str, str], Kernel]:
        compiled_for = partial(self.architecture, device)
        on_device = partial(self.on_device, device)
        return kernel_loader(self._cupy, on_device, self._target, compiled_for)

    def _target(self, function: Any) -> Any:
        """The `Kernel.target` of a CuPy function, whose code is loaded onto the device here."""
        # Lazy loading would load it at the first launch, which a capture forbids before CUDA 12.3
        # (CUDA programming guide, "Lazy Loading").
        if self._api.funcGetAttribute is not None:
            self._api.funcGetAttribute(0, function.ptr)
        return function.ptr if self.has_packed_launches else function

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
            with self._cupy.cuda.Device(device), stream or self._stream(handle):
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
                event.record(self._stream(handle))
                current.wait_event(event)

    @contextmanager
    def on_device(self, device: int | None, what: str, needed: int | None = None) -> Iterator[None]:
        """Make a device current in CuPy, and turn CUDA's errors into the library's.

        `what` says what has failed then, and `needed` how many bytes were requested, if any.
        """
        try:
            with self._cupy.cuda.Device(device):
                yield
        except (RuntimeError, MemoryError) as error:
            raise self.dml_error(error, device, what, needed) from None

    def dml_error(
        self, error: Exception, device: int | None, what: str, needed: int | None = None
    ) -> DmlError:
        """The library's error for one of CUDA (which has a ``status``), CuPy or torch.

        `what` says what has failed, and `needed` how many bytes were requested, if any.
        """
        status = getattr(error, "status", None)
        name = "the CUDA device" if device is None else f"cuda:{device}"
        if status in REMOVED:
            return DeviceRemovedError(
                f"{what}: {name} is gone or has failed: {error}. Fix: start a new process"
            )
        if status in BAD_STREAM:
            return InvalidArgumentError(
                f"{what} on {name}: {error}. Fix: use a stream of this device that "
                "still exists; if it is being captured, make this call before the capture begins"
            )
        if status == NOT_INITIALIZED:
            return DmlError(
                f"{what} on {name}: {error}. A forked process cannot use CUDA if its parent did. "
                "Fix: start processes with spawn"
            )
        is_full = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
        if device is None or (not is_full and status != OUT_OF_MEMORY):
            return DmlError(f"{what} on {name}: {error}")
        try:
            with self._cupy.cuda.Device(device):
                free, total = self._cupy.cuda.runtime.memGetInfo()
        except RuntimeError:
            return OutOfMemoryError(f"{what} on {name}: out of memory")
        request = "" if needed is None else f"{needed} bytes are needed, "
        return OutOfMemoryError(f"{what} on {name}: {request}{free} of {total} bytes are free")

    def _stream(self, handle: int) -> Any:
        return self._cupy.cuda.Stream.from_external(
            SimpleNamespace(__cuda_stream__=lambda: (0, handle))
        )
