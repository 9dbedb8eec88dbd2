"""The CUDA devices of this machine, as NVML reports them, without a CUDA context."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from dmlsplit.backends.cuda import libcuda
from dmlsplit.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """One GPU. None means unknown."""

    index: int  # NVML's, in the order of PCI buses
    name: str
    memory_bytes: int | None  # in total
    compute_capability: str | None  # such as "9.0"
    sm_clock_mhz: int | None  # the highest clock of the multiprocessors
    memory_clock_mhz: int | None  # the highest clock of the memory
    bus_width_bits: int | None  # of the memory
    driver: str | None  # its version
    cuda_cores: int | None = None  # in total; NVML does not count multiprocessors
    bus_id: libcuda.BusId | None = None
    is_divided: bool | None = None  # by MIG
    processes: int | None = None  # other processes that compute on it

    @property
    def peak_bandwidth(self) -> int | None:
        """Bytes per second of the memory: two transfers per clock over the whole bus."""
        if self.memory_clock_mhz is None or self.bus_width_bits is None:
            return None
        return 2 * self.memory_clock_mhz * 1_000_000 * self.bus_width_bits // 8


def cuda_devices() -> list[CudaDevice]:
    """The CUDA devices; none without an NVIDIA driver. Raises UnsupportedError if NVML fails."""
    import pynvml

    absent = (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    try:
        with session():
            count = pynvml.nvmlDeviceGetCount()
            return [_device(pynvml, index) for index in range(count)]
    except pynvml.NVMLError as error:
        if error.value in absent:
            return []
        raise UnsupportedError(f"NVML failed: {error}. Fix: check that nvidia-smi runs") from None


def by_ordinal() -> list[CudaDevice | None]:
    """NVML's device for each device of CUDA, by ordinal; None if NVML does not list it.

    CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER are respected.
    """
    devices = {device.bus_id: device for device in cuda_devices()}
    return [devices.get(bus_id) for bus_id in libcuda.bus_ids()]


def device_at(ordinal: int) -> CudaDevice | None:
    """NVML's device for one of CUDA; None if NVML has no such device, or fails."""
    with suppress(UnsupportedError, IndexError):
        return by_ordinal()[ordinal]
    return None


@contextmanager
def session() -> Iterator[None]:
    """Keep NVML open in the block. Raises NVML's own `NVMLError`."""
    import pynvml

    pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


def _device(nvml: Any, index: int) -> CudaDevice:
    """The device of an index; what NVML does not say is None."""
    gpu = nvml.nvmlDeviceGetHandleByIndex(index)

    def answer(ask: Callable[[], Any]) -> Any:
        # NVML may lack any answer: under MIG, on integrated GPUs, or without permission.
        try:
            return ask()
        except nvml.NVMLError:
            return None

    capability = answer(lambda: nvml.nvmlDeviceGetCudaComputeCapability(gpu))
    bus = answer(lambda: nvml.nvmlDeviceGetPciInfo(gpu))
    mig = answer(lambda: nvml.nvmlDeviceGetMigMode(gpu))
    processes = answer(lambda: nvml.nvmlDeviceGetComputeRunningProcesses_v2(gpu))
    return CudaDevice(
        index,
        answer(lambda: nvml.nvmlDeviceGetName(gpu)) or "unknown",
        answer(lambda: nvml.nvmlDeviceGetMemoryInfo(gpu).total),
        capability and ".".join(map(str, capability)),
        answer(lambda: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM)),
        answer(lambda: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_MEM)),
        answer(lambda: nvml.nvmlDeviceGetMemoryBusWidth(gpu)),
        answer(nvml.nvmlSystemGetDriverVersion),
        answer(lambda: nvml.nvmlDeviceGetNumGpuCores(gpu)),
        bus and (bus.domain, bus.bus, bus.device),
        mig and mig[0] == nvml.NVML_DEVICE_MIG_ENABLE,
        None if processes is None else sum(process.pid != os.getpid() for process in processes),
    )
