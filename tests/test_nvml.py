"""Devices through NVML, against a pynvml that is made up."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import dmlsplit as dml
from dmlsplit import nvml


class FakeNvmlError(Exception):
    """NVMLError."""


class FakeNvml(ModuleType):
    """Two devices; the second does not report its clocks."""

    NVMLError = FakeNvmlError
    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2

    def __init__(self, fails: bool = False) -> None:
        super().__init__("pynvml")
        self.fails = fails
        self.open = 0

    def nvmlInit(self) -> None:  # noqa: N802
        if self.fails:
            raise FakeNvmlError("Driver Not Loaded")
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"580.1"

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetHandleByPciBusId(self, name: str) -> int:  # noqa: N802
        if name != "0000:01:00.0":
            raise FakeNvmlError("Not Found")
        return 1

    def nvmlDeviceGetName(self, handle: int) -> str:  # noqa: N802
        return f"card {handle}"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(total=1000 + handle, free=500 + handle)

    def nvmlDeviceGetMaxClockInfo(self, handle: int, clock: int) -> int:  # noqa: N802
        if handle == 1:
            raise FakeNvmlError("Not Supported")
        return {1: 1980, 2: 3201}[clock]

    def nvmlDeviceGetMemoryBusWidth(self, handle: int) -> int:  # noqa: N802
        return 6016


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    module = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


def test_devices_say_name_memory_clocks_and_driver(fake: FakeNvml) -> None:
    first, second = nvml.devices()
    assert first == nvml.GpuDevice(0, "card 0", 1000, 500, 1980, 3201, 6016, "580.1")
    assert (second.index, second.sm_clock, second.memory_clock) == (1, None, None)
    assert fake.open == 0


def test_peak_bandwidth_is_that_of_an_h200(fake: FakeNvml) -> None:
    first, second = nvml.devices()
    assert first.peak_bandwidth == pytest.approx(4.81e12, rel=1e-2)
    assert second.peak_bandwidth is None


def test_free_memory_is_asked_by_pci_address(fake: FakeNvml) -> None:
    assert nvml.memory_free("0000:01:00.0") == 501
    with pytest.raises(dml.UnsupportedError, match="Not Found"):
        nvml.memory_free("0000:02:00.0")
    assert fake.open == 0


def test_no_driver_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(fails=True))
    with pytest.raises(dml.UnsupportedError, match=r"Driver Not Loaded.*Fix: install") as error:
        nvml.devices()
    assert error.value.hresult == 0x887A0004


def test_no_pynvml_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(dml.UnsupportedError, match="pip install nvidia-ml-py"):
        nvml.devices()
