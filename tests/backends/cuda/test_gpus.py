"""Known GPUs, and the one of this machine."""

import sys

import pytest

import dmlsplit as dml
from dmlsplit.backends.cuda.gpus import GPUS, find_gpu, gpu_of_device, this_gpu
from dmlsplit.backends.cuda.nvml import cuda_devices
from fake_nvml import FakeNvml


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    nvml = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return nvml


@pytest.mark.parametrize(
    ("asked", "found"),
    [("H200", "H200"), ("NVIDIA H200", "H200"), ("l4", "L4"), ("a100", "A100-SXM4-80GB")],
)
def test_gpus_are_found_by_name(asked: str, found: str) -> None:
    assert find_gpu(asked).name == found


@pytest.mark.parametrize("name", ["", "NVIDIA", "Voodoo 2"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(dml.InvalidArgumentError, match="it must be one of H200"):
        find_gpu(name)


def test_a_device_brings_its_own_bandwidth(fake: FakeNvml) -> None:
    first, second = map(gpu_of_device, cuda_devices())
    assert (first.bandwidth, first.limits) == (4_916_736_000_000, GPUS[0].limits)
    assert (second.name, second.bandwidth) == ("unknown", GPUS[0].bandwidth)


def test_this_gpu_is_the_first_device_or_an_h200(fake: FakeNvml) -> None:
    assert this_gpu().bandwidth == 4_916_736_000_000
    for failure in (9, 999):
        fake.failure = failure
        assert this_gpu() is GPUS[0]
