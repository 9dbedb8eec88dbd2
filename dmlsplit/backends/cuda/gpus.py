"""Known GPUs, so that a split can be planned and timed without the hardware.

Source: NVIDIA's data sheets (bandwidth, decimal gigabytes; multiprocessors; L2) and the
CUDA C++ Programming Guide, "Technical specifications per compute capability" (the rest).
"""

from __future__ import annotations

from dataclasses import dataclass

from dmlsplit.backends.cuda.nvml import CudaDevice, cuda_devices
from dmlsplit.backends.cuda.planner import H200, DeviceLimits
from dmlsplit.errors import InvalidArgumentError, UnsupportedError


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU product."""

    name: str
    bandwidth: int  # of its memory at its peak, in bytes per second
    limits: DeviceLimits


_HOPPER, _AMPERE, _ADA, _TURING = (2048, 228), (2048, 164), (1536, 100), (1024, 64)
_GB = 10**9


def _gpu(
    name: str, gigabytes: int, multiprocessors: int, per_sm: tuple[int, int], l2_mib: int
) -> Gpu:
    threads, shared = per_sm
    limits = DeviceLimits(
        multiprocessors, threads, shared << 10, 48 << 10, l2_mib << 20, parameter_bytes=32764
    )
    return Gpu(name, gigabytes * _GB, limits)


GPUS = (
    Gpu("H200", 4800 * _GB, H200),
    _gpu("H100 SXM", 3350, 132, _HOPPER, 50),
    _gpu("H100 PCIe", 2000, 114, _HOPPER, 50),
    _gpu("A100-SXM4-80GB", 2039, 108, _AMPERE, 40),
    _gpu("A100-PCIE-80GB", 1935, 108, _AMPERE, 40),
    _gpu("L40S", 864, 142, _ADA, 96),
    _gpu("L4", 300, 58, _ADA, 48),
    _gpu("RTX 4090", 1008, 128, _ADA, 72),
    _gpu("T4", 320, 40, _TURING, 4),
)


def find_gpu(name: str) -> Gpu:
    """Return the GPU of that name, or else the first whose name begins with it.

    Raises
    ------
    InvalidArgumentError
        If no known GPU's name begins with `name`.
    """
    wanted = name.upper().replace("NVIDIA", "").replace("GEFORCE", "").strip()
    exact = [gpu for gpu in GPUS if gpu.name.upper() == wanted]
    begun = [gpu for gpu in GPUS if wanted and gpu.name.upper().startswith(wanted)]
    if found := exact or begun:
        return found[0]
    raise InvalidArgumentError(
        f"GPU is {name!r}; it must be one of {', '.join(gpu.name for gpu in GPUS)}"
    )


def this_gpu() -> Gpu:
    """Return the first CUDA device's GPU, or an H200 if there is no device."""
    try:
        present = cuda_devices()
    except UnsupportedError:
        present = []
    return gpu_of_device(present[0]) if present else GPUS[0]


def gpu_of_device(device: CudaDevice) -> Gpu:
    """Return a device's GPU; an unknown one gets the limits of an H200 and its own bandwidth."""
    try:
        known = find_gpu(device.name)
    except InvalidArgumentError:
        known = GPUS[0]
    return Gpu(device.name, device.peak_bandwidth or known.bandwidth, known.limits)
