"""CUDA devices through NVML; a stand-in answers where there is no driver."""

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import dmlsplit as dml
from dmlsplit.backends.cuda.gpus import GPUS, find_gpu, gpu_of_device, this_gpu
from dmlsplit.backends.cuda.nvml import CudaDevice, cuda_devices
from dmlsplit.cli.devices import device_json, device_table


class FakeNvml:
    """NVML with two cards; the second one tells little, as under MIG."""

    NVML_ERROR_LIBRARY_NOT_FOUND = 12
    NVML_ERROR_DRIVER_NOT_LOADED = 9
    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            super().__init__(f"error {value}")
            self.value = value

    def __init__(self, failure: int = 0) -> None:
        self.failure = failure
        self.sessions = 0

    def nvmlInit(self) -> None:  # noqa: N802
        if self.failure:
            raise self.NVMLError(self.failure)
        self.sessions += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.sessions -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def __getattr__(self, name: str) -> Any:
        answers = {
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=139 << 30),
            "nvmlDeviceGetCudaComputeCapability": (9, 0),
            "nvmlDeviceGetMemoryBusWidth": 6144,
        }

        def answer(gpu: int = 0, clock: int = 0) -> Any:
            if name == "nvmlSystemGetDriverVersion":
                return b"580.95.05"
            if gpu == 1:
                raise self.NVMLError(3)
            if name == "nvmlDeviceGetMaxClockInfo":
                return 1980 if clock == self.NVML_CLOCK_SM else 3201
            return answers[name]

        return answer


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    nvml = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return nvml


def test_devices_tell_what_they_know(fake: FakeNvml) -> None:
    first, second = cuda_devices()
    assert first == CudaDevice(0, "NVIDIA H200", 139 << 30, "9.0", 1980, 3201, 6144, "580.95.05")
    assert first.peak_bandwidth == 4_916_736_000_000
    assert second == CudaDevice(1, "unknown", None, None, None, None, None, "580.95.05")
    assert second.peak_bandwidth is None
    assert fake.sessions == 0


@pytest.mark.parametrize("failure", [9, 12])
def test_no_driver_means_no_device(fake: FakeNvml, failure: int) -> None:
    fake.failure = failure
    assert cuda_devices() == []


def test_a_failing_driver_is_an_error(fake: FakeNvml) -> None:
    fake.failure = 999
    with pytest.raises(dml.UnsupportedError, match="NVML failed: error 999"):
        cuda_devices()


def test_the_table_fits_80_columns(fake: FakeNvml) -> None:
    lines = device_table(cuda_devices()).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == "cuda:0 H200 139 GiB 1980 MHz 4917 GB/s 580.95.05".split()
    assert lines[2].split() == "cuda:1 unknown - - - 580.95.05".split()
    listed = json.loads(device_json(cuda_devices()))["devices"]
    assert listed[0]["peak_bandwidth"] == 4_916_736_000_000


def test_the_real_library_is_asked_without_a_crash() -> None:
    assert isinstance(cuda_devices(), list)


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_devices(), reason="there is no CUDA device")
def test_this_machine_has_a_device() -> None:
    device = cuda_devices()[0]
    assert device.name
    assert device.peak_bandwidth


# Cards.


@pytest.mark.parametrize(
    ("asked", "found"),
    [("H200", "H200"), ("NVIDIA H200", "H200"), ("l4", "L4"), ("a100", "A100-SXM4-80GB")],
)
def test_cards_are_found_by_name(asked: str, found: str) -> None:
    assert find_gpu(asked).name == found


@pytest.mark.parametrize("name", ["", "NVIDIA", "Voodoo 2"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(dml.InvalidArgumentError, match="it must be one of H200"):
        find_gpu(name)


def test_a_device_brings_its_own_bandwidth(fake: FakeNvml) -> None:
    first, second = map(gpu_of_device, cuda_devices())
    assert (first.bandwidth, first.limits) == (4_916_736_000_000, GPUS[0].limits)
    assert (second.name, second.bandwidth) == ("unknown", GPUS[0].bandwidth)


def test_this_card_is_the_first_devices_or_an_h200(fake: FakeNvml) -> None:
    assert this_gpu().bandwidth == 4_916_736_000_000
    for failure in (9, 999):
        fake.failure = failure
        assert this_gpu() is GPUS[0]
