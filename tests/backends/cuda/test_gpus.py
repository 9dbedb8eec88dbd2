"""Known GPUs, and the GPU of this machine."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlsplit as dml
from dmlsplit.backends.cuda import libcuda
from dmlsplit.backends.cuda.gpus import (
    GPUS,
    H200,
    MULTIPROCESSORS,
    Gpu,
    find_gpu,
    gpu_of_device,
    this_gpu,
)
from dmlsplit.backends.cuda.launch import DeviceLimits
from dmlsplit.backends.cuda.nvml import CudaDevice, cuda_devices
from dmlsplit.directml.operator import descriptor_geometry
from tests.support.descriptors import split_descriptors
from tests.support.fake_nvml import FakeNvml, cuda_device
from tests.support.plans import planned


@pytest.mark.parametrize(
    ("query", "gpu_name"),
    [("H200", "H200"), ("NVIDIA H200", "H200"), ("l4", "L4"), ("a100", "A100-SXM4-80GB")],
)
def test_gpus_are_found_by_name(query: str, gpu_name: str) -> None:
    assert find_gpu(query).name == gpu_name


@pytest.mark.parametrize("name", ["", "NVIDIA", "Voodoo 2"])
def test_an_unknown_gpu_name_is_refused(name: str) -> None:
    with pytest.raises(dml.InvalidArgumentError, match="it must be one of H200"):
        find_gpu(name)


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_a_known_gpu_has_a_source_and_no_assumed_figure(gpu: Gpu) -> None:
    assert gpu.source
    assert gpu.compute_capability in MULTIPROCESSORS
    assert not gpu.assumed


@pytest.mark.parametrize(
    ("name", "limit", "value"),
    [
        ("H200", "sm_count", 132),
        ("H200", "threads_per_sm", 2048),
        ("H200", "l2_bytes", 60 << 20),
        ("H200", "parameter_bytes", 32764),
        ("H200", "blocks_per_sm", 32),
        ("H200", "shared_per_sm", 228 << 10),
        ("H200", "in_flight_bytes", 48 << 10),
        ("B200", "in_flight_bytes", 64 << 10),
        ("H100 SXM", "registers_per_sm", 65536),
        ("RTX 5090", "blocks_per_sm", 24),
        ("L4", "shared_per_sm", 100 << 10),
    ],
)
def test_a_known_gpu_has_these_limits(name: str, limit: str, value: int) -> None:
    assert getattr(find_gpu(name).limits, limit) == value


@pytest.mark.parametrize("name", ["B200", "GB200", "B300"])
def test_blackwells_with_the_same_memory_have_the_same_bandwidth(name: str) -> None:
    """What CUDA and NVML report of a B200, in bytes per second."""
    assert find_gpu(name).bandwidth == 7_672_320_000_000


# Two transfers per clock of 3,201 MHz over 6,144 bits, which `FakeNvml` reports. The bandwidth that
# is known of an H200 is lower.
REPORTED_BANDWIDTH = 2 * 3_201_000_000 * 6144 // 8


def test_a_device_has_its_own_bandwidth(fake_nvml: FakeNvml) -> None:
    first, _ = map(gpu_of_device, cuda_devices())
    assert (first.bandwidth, first.limits) == (REPORTED_BANDWIDTH, H200.limits)


def device(name: str, capability: str | None, cores: int | None) -> CudaDevice:
    return cuda_device(name=name, compute_capability=capability, cuda_cores=cores)


@pytest.mark.parametrize(
    ("name", "capability", "sm_count", "gpu_name"),
    [
        ("NVIDIA H100 80GB HBM3", "9.0", 132, "H100 SXM"),
        ("NVIDIA A100 80GB PCIe", "8.0", 108, "A100-PCIE-80GB"),
        ("Tesla T4", "7.5", 40, "T4"),
        ("NVIDIA GeForce RTX 5090", "12.0", 170, "RTX 5090"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0", 188, "RTX PRO 6000 Blackwell"),
        ("NVIDIA B300 SXM6 AC", "10.3", 148, "B300"),
    ],
)
def test_a_device_is_known_by_the_name_that_nvml_gives_it(
    name: str, capability: str, sm_count: int, gpu_name: str
) -> None:
    cores = sm_count * MULTIPROCESSORS[capability].cores
    gpu = gpu_of_device(device(name, capability, cores))
    assert gpu == replace(find_gpu(gpu_name), name=name)


def test_an_unknown_device_is_planned_from_its_own_properties() -> None:
    gpu = gpu_of_device(device("NVIDIA GeForce RTX 5090 Laptop GPU", "12.0", 82 * 128))
    assert gpu.limits == find_gpu("RTX 5090").limits._replace(sm_count=82)
    assert gpu.bandwidth is None
    assert gpu.assumed == (
        "96 MiB of L2 cache, the least of the known GPUs of compute capability 12.0",
    )


def test_a_mig_instance_is_planned_as_the_whole_gpu_with_an_assumption(fake_nvml: FakeNvml) -> None:
    whole = cuda_devices()[0]
    gpu = gpu_of_device(replace(whole, is_divided=True))
    assert gpu.limits == gpu_of_device(whole).limits == H200.limits
    assert gpu.assumed == ("the whole GPU, of which MIG makes this device a part",)
    assert gpu_of_device(whole).assumed == ()


def test_minimums_are_assumed_for_a_device_without_properties(fake_nvml: FakeNvml) -> None:
    _, silent = map(gpu_of_device, cuda_devices())
    assert (silent.name, silent.bandwidth) == ("unknown", None)
    assert silent.limits == find_gpu("T4").limits
    assert silent.assumed == (
        "1024 threads and 16 blocks on an SM, as compute capability of the device is not known",
        "40 SMs, the fewest of any known GPU",
        "4 MiB of L2 cache, the least of the known GPUs of any compute capability",
    )


def test_this_gpu_is_cudas_first_device_or_an_h200(
    fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert this_gpu() is H200
    monkeypatch.setattr(libcuda, "bus_ids", lambda: [(0, 1, 0)])
    assert this_gpu().bandwidth == REPORTED_BANDWIDTH
    for failure in (FakeNvml.NVML_ERROR_DRIVER_NOT_LOADED, 999):  # or an error of any other kind
        fake_nvml.failure = failure
        assert this_gpu() is H200


INVENTED = (
    DeviceLimits(sm_count=1, threads_per_sm=1024, l2_bytes=1 << 20, parameter_bytes=4096),
    DeviceLimits(
        sm_count=7,
        threads_per_sm=1536,
        l2_bytes=2 << 20,
        parameter_bytes=4096,
        registers_per_sm=64 << 10,
        blocks_per_sm=24,
    ),
    DeviceLimits(
        sm_count=600,
        threads_per_sm=4096,
        l2_bytes=1 << 30,
        parameter_bytes=32764,
        registers_per_sm=128 << 10,
        blocks_per_sm=64,
    ),
)


@given(split_descriptors(), st.sampled_from([1, 2, 4, 8, 16]), st.sampled_from([1, 2, 4, 8, 16]))
def test_plans_are_legal_on_every_gpu(
    desc: dml.SplitOperatorDesc, input_alignment: int, output_alignment: int
) -> None:
    for limits in (*(gpu.limits for gpu in GPUS), *INVENTED):
        planned(descriptor_geometry(desc), input_alignment, output_alignment, limits)
