"""CUDA devices as NVML knows them: no CUDA context, and no CuPy.

NVML counts every device of the machine; CUDA counts those that CUDA_VISIBLE_DEVICES leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from dmlsplit.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """One device. What it does not report is None.

    Attributes
    ----------
    index : int
        Its number in NVML.
    name : str
        Its product name.
    memory_total, memory_free : int
        Bytes.
    sm_clock, memory_clock : int or None
        The highest clocks, in MHz.
    bus_width : int or None
        Of the memory, in bits.
    driver : str
        Version of the driver.
    """

    index: int
    name: str
    memory_total: int
    memory_free: int
    sm_clock: int | None
    memory_clock: int | None
    bus_width: int | None
    driver: str

    @property
    def peak_bandwidth(self) -> float | None:
        """Bytes per second: memory clock x bus width x 2 (double data rate) / 8."""
        if self.memory_clock is None or self.bus_width is None:
            return None
        return self.memory_clock * 1e6 * self.bus_width * 2 / 8


def devices() -> list[GpuDevice]:
    """Return every device of the machine.

    Raises
    ------
    UnsupportedError
        If NVML is not to be had: no driver, or no pynvml.
    """
    with _nvml() as nvml:
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        return [_device(nvml, index, driver) for index in range(nvml.nvmlDeviceGetCount())]


def memory_free(pci_bus_id: str) -> int:
    """Return the free bytes of the device at a PCI address.

    Raises
    ------
    UnsupportedError
        If NVML is not to be had, or has no such device.
    """
    with _nvml() as nvml:
        handle = nvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).free)


def _device(nvml: Any, index: int, driver: str) -> GpuDevice:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)

    def asked(name: str, *arguments: Any) -> int | None:
        with suppress(nvml.NVMLError, AttributeError):
            return int(getattr(nvml, name)(handle, *arguments))
        return None

    return GpuDevice(
        index,
        _text(nvml.nvmlDeviceGetName(handle)),
        int(memory.total),
        int(memory.free),
        asked("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
        asked("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_MEM),
        asked("nvmlDeviceGetMemoryBusWidth"),
        driver,
    )


@contextmanager
def _nvml() -> Iterator[Any]:
    try:
        import pynvml
    except ImportError:
        raise UnsupportedError(
            "NVML needs the package nvidia-ml-py. Fix: pip install nvidia-ml-py"
        ) from None
    try:
        pynvml.nvmlInit()
        try:
            yield pynvml
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise UnsupportedError(
            f"NVML is not available: {error}. Fix: install the NVIDIA driver"
        ) from None


def _text(value: Any) -> str:
    # Older releases of pynvml return bytes.
    return value.decode() if isinstance(value, bytes) else str(value)
