"""Known GPUs, for which a split can be planned and timed without the hardware.

For an unknown device, NVML's data are used: the compute capability implies the limits of an SM, and
together with the number of CUDA cores the number of SMs. The rest is assumed (`Gpu.assumed`). When
dmlsplit runs on a device, it asks CUDA instead (`driver.Driver.limits`).
"""

from dataclasses import dataclass, replace

from dmlsplit.backends.cuda.launch import LARGE_PARAMETERS, DeviceLimits, in_flight_bytes
from dmlsplit.backends.cuda.nvml import CudaDevice, device_at
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.messages import value_text


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU product, or one device."""

    name: str
    compute_capability: str | None  # such as "9.0"; None if unknown
    bandwidth: int | None  # peak of its memory, in bytes per second; None if unknown
    limits: DeviceLimits
    source: str  # where its figures come from
    nvml_name: str = ""  # how NVML's name begins after the maker; "" if it is `name`
    assumed: tuple[str, ...] = ()  # values taken for unknown properties

    def seconds(self, total_bytes: int) -> float | None:
        """The time to read and write bytes at peak bandwidth, a lower bound; None if unknown."""
        return None if self.bandwidth is None else 2 * total_bytes / self.bandwidth


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """The limits of an SM of one compute capability."""

    cores: int  # for 32-bit floats
    threads: int  # resident at the same time
    blocks: int  # resident at the same time
    shared_kib: int  # of shared memory


# Source: CUDA C++ Programming Guide, "Technical specifications per compute capability" (also in
# NVIDIA's CCCL, cuda/__device/arch_traits.h); cores: its "Arithmetic instructions", 32-bit
# additions per clock.
REGISTERS = 64 << 10
MULTIPROCESSORS = {
    "7.0": Multiprocessor(64, 2048, 32, 96),
    "7.5": Multiprocessor(64, 1024, 16, 64),
    "8.0": Multiprocessor(64, 2048, 32, 164),
    "8.6": Multiprocessor(128, 1536, 16, 100),
    "8.7": Multiprocessor(128, 1536, 16, 164),
    "8.8": Multiprocessor(128, 1536, 16, 100),
    "8.9": Multiprocessor(128, 1536, 24, 100),
    "9.0": Multiprocessor(128, 2048, 32, 228),
    "10.0": Multiprocessor(128, 2048, 32, 228),
    "10.3": Multiprocessor(128, 2048, 32, 228),
    "11.0": Multiprocessor(128, 1536, 24, 228),
    "12.0": Multiprocessor(128, 1536, 24, 100),
    "12.1": Multiprocessor(128, 1536, 24, 100),
}
# Used for unknown compute capabilities: no SM since 7.0 has smaller limits.
LEAST = MULTIPROCESSORS["7.5"]
_GB = 10**9
_MIB = 1 << 20

# The memory of a B200 has 7680 bits at 3996 MHz, and two transfers per clock. The data sheet of
# HGX B200 says 7.7 TB/s; those of GB200 and B300 round the same memory to 8.
_B200 = "what CUDA and NVML report of one: github.com/pytorch/ao/pull/4002"
_L2 = "L2 as in B200, by NVIDIA's Blackwell tuning guide"
_GB200 = f"data sheet of GB200 NVL72 (8 TB/s); SMs as CUDA reports them; {_L2}"
_B300 = (
    "NVIDIA's blog 'Inside NVIDIA Blackwell Ultra' (8 TB/s); SMs as CUDA reports them, of 160 on "
    f"the chip; {_L2}"
)
_RTX_PRO_6000 = "NVIDIA's white paper 'RTX Blackwell PRO GPU Architecture'"
_RTX_5090 = "data sheet; what CUDA reports of one: github.com/NVIDIA/nccl/issues/1637"


def _gpu(
    name: str,
    capability: str,
    sm_count: int,
    l2_mib: float,
    gigabytes: float,
    source: str = "NVIDIA's data sheet",
    nvml_name: str = "",
) -> Gpu:
    """A known GPU, in the units of data sheets."""
    limits = _limits(capability, sm_count, round(l2_mib * _MIB))
    return Gpu(name, capability, round(gigabytes * _GB), limits, source, nvml_name)


def _limits(capability: str | None, sm_count: int, l2_bytes: int) -> DeviceLimits:
    """The limits of a GPU; those of an SM follow from its compute capability."""
    sm = MULTIPROCESSORS.get(capability or "", LEAST)
    return DeviceLimits(
        sm_count,
        sm.threads,
        l2_bytes,
        LARGE_PARAMETERS,
        REGISTERS,
        sm.blocks,
        sm.shared_kib << 10,
        in_flight_bytes(int((capability or "0").partition(".")[0])),
    )


# Name, compute capability, SMs, MiB of L2, decimal gigabytes per second. The bandwidth is the
# documented peak, or CUDA's own, lower figure for B200, GB200 and B300.
H200 = _gpu("H200", "9.0", 132, 60, 4800)
GPUS = (
    H200,
    _gpu("H100 SXM", "9.0", 132, 50, 3350, nvml_name="H100 80GB HBM3"),
    _gpu("H100 PCIe", "9.0", 114, 50, 2000),
    _gpu("A100-SXM4-80GB", "8.0", 108, 40, 2039),
    _gpu("A100-PCIE-80GB", "8.0", 108, 40, 1935, nvml_name="A100 80GB PCIe"),
    _gpu("L40S", "8.9", 142, 96, 864),
    _gpu("L4", "8.9", 58, 48, 300),
    _gpu("RTX 4090", "8.9", 128, 72, 1008),
    _gpu("T4", "7.5", 40, 4, 320),
    _gpu("B200", "10.0", 148, 126.5, 7672.32, _B200),
    _gpu("GB200", "10.0", 152, 126.5, 7672.32, _GB200),
    _gpu("B300", "10.3", 148, 126.5, 7672.32, _B300),
    _gpu("RTX PRO 6000 Blackwell", "12.0", 188, 128, 1792, _RTX_PRO_6000),
    _gpu("RTX 5090", "12.0", 170, 96, 1792, _RTX_5090),
)


def find_gpu(name: str) -> Gpu:
    """The known GPU of that name, or else the first whose name begins with it."""
    short = _short_name(name)
    exact = [gpu for gpu in GPUS if gpu.name.upper() == short]
    prefixed = [gpu for gpu in GPUS if short and gpu.name.upper().startswith(short)]
    if matches := exact or prefixed:
        return matches[0]
    names = ", ".join(gpu.name for gpu in GPUS)
    raise InvalidArgumentError(f"{value_text(name)} is not a known GPU; it must be one of {names}")


def this_gpu() -> Gpu:
    """The GPU of ``cuda:0``, or an H200 if there is no device."""
    device = device_at(0)
    return H200 if device is None else gpu_of_device(device)


def gpu_of_device(device: CudaDevice) -> Gpu:
    """The GPU of a device, with the bandwidth that NVML reports.

    A known GPU is taken if the name and the number of SMs agree. The name alone is not enough: NVML
    calls a GB203 with 82 SMs an RTX 5090 Laptop GPU.
    """
    known_gpu = _known_gpu(device)
    if known_gpu is None:
        gpu = _from_properties(device)
    else:
        bandwidth = device.peak_bandwidth or known_gpu.bandwidth
        gpu = replace(known_gpu, name=device.name, bandwidth=bandwidth)
    if not device.is_divided:
        return gpu
    part = "the whole GPU, of which MIG makes this device a part"
    return replace(gpu, assumed=(*gpu.assumed, part))


def _known_gpu(device: CudaDevice) -> Gpu | None:
    """The known GPU that a device is; None if its name or its number of SMs is another."""
    name = _short_name(device.name)
    sm_count = _sm_count(device)
    for gpu in GPUS:
        known_name = (gpu.nvml_name or gpu.name).upper()
        if name == known_name and sm_count in (None, gpu.limits.sm_count):
            return gpu
        if name.startswith(f"{known_name} ") and sm_count == gpu.limits.sm_count:
            return gpu
    return None


def _short_name(name: str) -> str:
    """A name in capitals, without the maker and the brand."""
    maker = ("NVIDIA", "GEFORCE", "TESLA")
    return " ".join(word for word in name.upper().split() if word not in maker)


def _sm_count(device: CudaDevice) -> int | None:
    """The SMs of a device, by its CUDA cores; None if these or the capability are unknown."""
    sm = MULTIPROCESSORS.get(device.compute_capability or "")
    return device.cuda_cores // sm.cores if sm and device.cuda_cores else None


def _from_properties(device: CudaDevice) -> Gpu:
    """A GPU from NVML's data, with the least known values for the rest."""
    capability = device.compute_capability
    assumed = []
    if capability not in MULTIPROCESSORS:
        assumed.append(
            f"{LEAST.threads} threads and {LEAST.blocks} blocks on an SM, as compute capability "
            f"{capability or 'of the device'} is not known"
        )
    sm_count = _sm_count(device)
    if sm_count is None:
        sm_count = min(gpu.limits.sm_count for gpu in GPUS)
        assumed.append(f"{sm_count} SMs, the fewest of any known GPU")
    similar = [gpu for gpu in GPUS if gpu.compute_capability == capability]
    l2_bytes = min(gpu.limits.l2_bytes for gpu in similar or GPUS)
    group = f"compute capability {capability}" if similar else "any compute capability"
    assumed.append(f"{l2_bytes / _MIB:g} MiB of L2 cache, the least of the known GPUs of {group}")
    limits = _limits(capability, sm_count, l2_bytes)
    bandwidth = device.peak_bandwidth
    return Gpu(device.name, capability, bandwidth, limits, "NVML", assumed=tuple(assumed))
