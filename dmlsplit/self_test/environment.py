"""What surrounds the kernels: versions, the GPU, and what may disturb it.

The texts may contain paths, which the JSON report replaces; they contain no host name.
"""

import os
import platform
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dmlsplit.backends.cuda import cupy_driver as driver
from dmlsplit.backends.cuda import installation, libcuda
from dmlsplit.backends.cuda.gpus import gpu_of_device
from dmlsplit.backends.cuda.installation import cuda_version_text
from dmlsplit.backends.cuda.launch import DeviceLimits
from dmlsplit.backends.cuda.nvml import CudaDevice, device_at
from dmlsplit.errors import DmlError, one_line
from dmlsplit.self_test.memory import ALIGNMENT, GpuMemory, Memory

# An import of the package, which imports this one, would close a circle.
VERSION: str = sys.modules["dmlsplit"].__version__


class CheckState(StrEnum):
    """Whether a check is passed."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(NamedTuple):
    """One line of the report."""

    name: str
    state: CheckState
    text: str


def checks(memory: Memory) -> Iterator[Check]:
    """The checks that run before any kernel is compiled."""
    python = platform.python_version()
    packages = installation.installed_packages() or ["no CuPy"]
    text = f"dmlsplit {VERSION}, Python {python}, NumPy {np.__version__}, {', '.join(packages)}"
    yield Check("software", CheckState.OK, text)
    yield Check("system", CheckState.OK, ", ".join(_system()))
    if isinstance(memory, GpuMemory):
        yield from _gpu_checks(memory.device_number)
    yield _cache()
    yield _alignment(memory)
    if isinstance(memory, GpuMemory):
        yield _ownership_check(memory.device_number)


def missing_gpu_check(reason: str) -> Check:
    """The check that says why the CPU is tested.

    It fails if there is an NVIDIA driver, because then a usable GPU was to be expected.
    """
    state = CheckState.FAIL if libcuda.driver_version() else CheckState.WARN
    return Check("GPU", state, reason)


def _system() -> Iterator[str]:
    """The system, and variables that change what CUDA does."""
    yield f"{platform.system()} {platform.machine()}"
    if "microsoft" in platform.release().lower():
        yield "WSL"
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        yield "container"
    if os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or Path("/tmp/nvidia-mps").exists():  # noqa: S108
        yield "MPS"
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_MODULE_LOADING"):
        if name in os.environ:
            yield f"{name}={os.environ[name]}"


def _gpu_checks(device_number: int) -> Iterator[Check]:
    """Versions and limits of the GPU by CUDA, and what NVML adds."""
    loaded = driver.load()
    versions = driver.versions_of(loaded.cupy)
    limits = loaded.limits(device_number)
    nvrtc = ".".join(map(str, versions.nvrtc or ()))
    text = f"driver for {cuda_version_text(versions.driver)}, "
    text += f"CuPy for {cuda_version_text(versions.runtime)}, "
    text += f"NVRTC {nvrtc}, compiling for {loaded.architecture(device_number)}"
    yield Check("CUDA", CheckState.OK, text)
    text = f"{limits.sm_count} SMs, {limits.l2_bytes >> 20} MiB of L2 cache"
    text += f", {limits.parameter_bytes} bytes of parameters"
    yield Check("GPU", CheckState.OK, f"{loaded.name(device_number)}, {text}")
    gpu = device_at(device_number)
    if gpu is None:
        yield Check("NVML", CheckState.WARN, "it does not list this device; clocks are unknown")
    else:
        yield from _nvml_checks(gpu, limits)


def _nvml_checks(gpu: CudaDevice, limits: DeviceLimits) -> Iterator[Check]:
    """Which GPU it is, what may slow it down, and whether its figures are as documented."""
    address = ":".join(f"{part:02x}" for part in gpu.bus_id or ())
    yield Check("NVML", CheckState.OK, f"index {gpu.index}, PCI {address}, driver {gpu.driver}")
    if gpu.is_divided:
        text = "this device is a MIG instance; figures of SMs are CUDA's, "
        text += "bandwidth is the whole GPU's"
        yield Check("MIG", CheckState.WARN, text)
    if gpu.processes:
        text = f"{gpu.processes} other processes use the GPU; speeds may be too low"
        yield Check("others", CheckState.WARN, text)
    known = gpu_of_device(gpu)
    figures = limits.sm_count, limits.l2_bytes
    if not known.assumed and figures != (known.limits.sm_count, known.limits.l2_bytes):
        text = f"its maker documents {known.limits.sm_count} SMs and "
        text += f"{known.limits.l2_bytes / (1 << 20):g} MiB of L2 cache; plans follow CUDA"
        yield Check("figures", CheckState.WARN, text)


def _ownership_check(device_number: int) -> Check:
    """Whether CUDA names the device that owns an address.

    If it did not, arrays on another device would not be refused.
    """
    loaded = driver.load()
    others = [other for other in range(loaded.device_count) if other != device_number]
    # Two devices are enough.
    numbers = [device_number, *others[:1]]
    try:
        buffers = [GpuMemory(device).upload(np.zeros(1, np.uint8)) for device in numbers]
        owners = [loaded.device_of(buffer.address) for buffer in buffers]
    except DmlError as error:
        return Check("owners", CheckState.WARN, f"not tested: {one_line(error)}")
    if owners != numbers:
        problem = f"CUDA says that memory of devices {numbers} is of {owners}"
        fix = "Fix: hide the other by CUDA_VISIBLE_DEVICES"
        return Check("owners", CheckState.FAIL, f"{problem}. {fix}")
    one_device = "; there is one device" if len(numbers) == 1 else ""
    text = f"CUDA names the device that owns an address{one_device}"
    return Check("owners", CheckState.OK, text)


def _cache() -> Check:
    """Whether CuPy can keep compiled kernels."""
    if os.environ.get("CUPY_CACHE_IN_MEMORY") == "1":
        return Check("cache", CheckState.OK, "off: kernels are compiled in every process")
    folder = Path(os.environ.get("CUPY_CACHE_DIR", "~/.cupy/kernel_cache")).expanduser()
    while not folder.exists():
        folder = folder.parent
    if os.access(folder, os.W_OK):
        return Check("cache", CheckState.OK, "compiled kernels are kept on disk")
    text = "its folder cannot be written, so CuPy compiles nothing new. Fix: set CUPY_CACHE_DIR"
    return Check("cache", CheckState.WARN, text)


def _alignment(memory: Memory) -> Check:
    """Whether allocations are as aligned as CUDA documents."""
    address = memory.upload(np.zeros(1, np.uint8)).address
    if address % ALIGNMENT:
        text = f"an allocation is at {address:#x}, no multiple of {ALIGNMENT}; kernels for less "
        return Check("memory", CheckState.WARN, f"{text}aligned memory are used")
    return Check("memory", CheckState.OK, f"allocations are multiples of {ALIGNMENT}")
