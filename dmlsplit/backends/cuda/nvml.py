"""What NVML says of this machine's CUDA devices. It needs no CUDA context.

No other module of the library opens NVML.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dmlsplit.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """One GPU. What the driver does not tell is None.

    Attributes
    ----------
    index : int
        NVML's index, by PCI bus; CUDA orders alike with CUDA_DEVICE_ORDER=PCI_BUS_ID.
    name : str
    memory_bytes : int or None
        All of its memory.
    compute_capability : str or None
        Such as ``9.0``.
    sm_clock_mhz, memory_clock_mhz : int or None
        The highest clocks.
    bus_width_bits : int or None
        Width of the memory bus.
    driver : str or None
        Version of the driver.
    """

    index: int
    name: str
    memory_bytes: int | None
    compute_capability: str | None
    sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    bus_width_bits: int | None
    driver: str | None

    @property
    def peak_bandwidth(self) -> int | None:
        """Bytes per second of the memory: both edges of the clock, over the whole bus."""
        if self.memory_clock_mhz is None or self.bus_width_bits is None:
            return None
        return 2 * self.memory_clock_mhz * 1_000_000 * self.bus_width_bits // 8


def cuda_devices() -> list[CudaDevice]:
    """Return the CUDA devices; none where there is no NVIDIA driver.

    Raises
    ------
    UnsupportedError
        If the driver is there, but NVML fails.
    """
    import pynvml

    absent = (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    try:
        with session():
            count = pynvml.nvmlDeviceGetCount()
            return [_device(pynvml, index) for index in range(count)]
    except pynvml.NVMLError as error:
        if error.value in absent:
            return []
        raise UnsupportedError(f"NVML failed: {error}") from None


def gpu_memory(bus_id: str) -> tuple[int, int] | None:
    """Return free and total bytes of the GPU at a PCI address; None where NVML fails."""
    import pynvml

    try:
        with session():
            gpu = pynvml.nvmlDeviceGetHandleByPciBusId(bus_id)
            found = pynvml.nvmlDeviceGetMemoryInfo(gpu)
            return int(found.free), int(found.total)
    except pynvml.NVMLError:
        return None


@contextmanager
def session() -> Iterator[None]:
    """Open NVML for a while.

    Raises
    ------
    pynvml.NVMLError
        If there is no driver, or it fails.
    """
    import pynvml

    pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


def _device(nvml: Any, index: int) -> CudaDevice:
    gpu = nvml.nvmlDeviceGetHandleByIndex(index)

    def told(ask: Callable[[], Any]) -> Any:
        # Each answer may be missing: under MIG, on integrated GPUs, without permission.
        try:
            return ask()
        except nvml.NVMLError:
            return None

    capability = told(lambda: nvml.nvmlDeviceGetCudaComputeCapability(gpu))
    return CudaDevice(
        index,
        _text(told(lambda: nvml.nvmlDeviceGetName(gpu))) or "unknown",
        told(lambda: nvml.nvmlDeviceGetMemoryInfo(gpu).total),
        capability and ".".join(map(str, capability)),
        told(lambda: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM)),
        told(lambda: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_MEM)),
        told(lambda: nvml.nvmlDeviceGetMemoryBusWidth(gpu)),
        _text(told(nvml.nvmlSystemGetDriverVersion)),
    )


def _text(value: Any) -> str | None:
    """Return text: older bindings answer in bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
