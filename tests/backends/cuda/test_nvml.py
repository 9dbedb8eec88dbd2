"""CUDA devices through NVML, with a fake library."""

import json
from types import SimpleNamespace

import pytest

import dmlsplit as dml
from dmlsplit.backends import find
from dmlsplit.backends.cuda import libcuda
from dmlsplit.backends.cuda.nvml import CudaDevice, by_ordinal, cuda_devices
from dmlsplit.backends.find import find_backend
from dmlsplit.cli.devices import (
    ListedDevice,
    device_json,
    device_table,
    listed_devices,
    no_device_message,
)
from tests.support.fake_nvml import FakeNvml, cuda_device


def test_devices_have_the_properties_that_nvml_reports(fake_nvml: FakeNvml) -> None:
    first, second = cuda_devices()
    assert first == CudaDevice(
        index=0,
        name="NVIDIA H200",
        memory_bytes=139 << 30,
        compute_capability="9.0",
        sm_clock_mhz=1980,
        memory_clock_mhz=3201,
        bus_width_bits=6144,
        driver="580.95.05",
        cuda_cores=16896,
        bus_id=(0, 1, 0),
        is_divided=False,
        processes=0,
    )
    assert first.peak_bandwidth == 4_916_736_000_000
    assert second == cuda_device(index=1, name="unknown", driver="580.95.05")
    assert second.peak_bandwidth is None
    assert fake_nvml.sessions == 0


@pytest.mark.parametrize("failure", [9, 12])
def test_no_driver_means_no_device(fake_nvml: FakeNvml, failure: int) -> None:
    fake_nvml.failure = failure
    assert cuda_devices() == []


def test_a_failure_of_nvml_is_an_error(fake_nvml: FakeNvml) -> None:
    fake_nvml.failure = 999
    with pytest.raises(dml.UnsupportedError, match="NVML failed: error 999"):
        cuda_devices()


def listed() -> list[ListedDevice]:
    """CUDA knows only NVML's first device, and dmlsplit cannot use it."""
    first, second = cuda_devices()
    return [ListedDevice(first, "cuda:0", None), ListedDevice(second, "nvml:1", "why. Fix: this")]


def test_the_device_table_fits_80_columns_and_agrees_with_the_json(fake_nvml: FakeNvml) -> None:
    lines = device_table(listed()).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == "cuda:0 H200 139 GiB 1980 MHz 4917 GB/s 580.95.05 yes".split()
    assert lines[2].split() == "nvml:1 unknown - - - 580.95.05 no".split()
    assert lines[3:] == ["nvml:1: why. Fix: this"]
    first, second = json.loads(device_json(listed()))["devices"]
    assert (first["peak_bandwidth"], first["assumed"]) == (4_916_736_000_000, [])
    assert (first["device"], first["usable"], second["reason"]) == (
        "cuda:0",
        True,
        "why. Fix: this",
    )


def test_ordinals_are_mapped_by_the_pci_address(
    fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libcuda, "bus_ids", lambda: [(0, 9, 0), (0, 1, 0)])
    assert [device and device.index for device in by_ordinal()] == [None, 0]
    names = [(device.name, device.reason is None) for device in listed_devices(cuda_devices())]
    assert names == [("cuda:1", False), ("nvml:1", False)]
    assert libcuda.parsed_bus_id("00000000:A1:00.0") == libcuda.parsed_bus_id("0000:a1:00.0")


def test_if_nvml_lists_no_device_the_device_that_splits_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cpu = find_backend("cpu")
    monkeypatch.setattr(libcuda, "driver_version", lambda: None)
    assert no_device_message().startswith(
        "no CUDA device: this machine has no NVIDIA driver; splits run on"
    )
    monkeypatch.setattr(libcuda, "driver_version", lambda: 13000)
    monkeypatch.setattr(find, "default_backend", lambda: (cpu, "why. Fix: this"))
    assert no_device_message() == "NVML lists no device; splits run on cpu: why. Fix: this"
    monkeypatch.setattr(find, "default_backend", lambda: (SimpleNamespace(device="cuda:0"), None))
    assert no_device_message() == "NVML lists no device; splits run on cuda:0"


def test_the_json_of_devices_has_the_assumptions_of_explain(fake_nvml: FakeNvml) -> None:
    known_device, unknown_device = json.loads(device_json(listed()))["devices"]
    assert known_device["assumed"] == []
    assert "1024 threads and 16 blocks" in unknown_device["assumed"][0]


def test_the_real_nvml_library_can_be_queried() -> None:
    assert isinstance(cuda_devices(), list)


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_devices(), reason="there is no CUDA device")
def test_the_first_real_device_has_a_name_and_a_bandwidth() -> None:
    device = cuda_devices()[0]
    assert device.name
    assert device.peak_bandwidth
