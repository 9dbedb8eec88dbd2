"""The calls that `driver.py` makes to CuPy, and its use of the results."""

import cupy
import pytest

from dmlsplit.backends.cuda import cupy_driver as driver
from dmlsplit.backends.cuda.cupy_driver import Driver
from tests.simulated_card import card


@pytest.mark.parametrize(
    ("version", "nvrtc", "major", "limit"),
    [(13000, (13, 0), 9, 32764), (12010, (12, 1), 9, 32764), (12000, (12, 9), 9, 4096),
     (12040, (12, 0), 9, 4096), (11080, (11, 8), 9, 4096), (13000, (13, 0), 5, 4096),
     (13000, (13, 0), 6, 4096), (13000, (13, 0), 7, 32764), (13000, (13, 0), 12, 32764)],
)  # fmt: skip
def test_parameters_are_as_large_as_driver_compiler_and_gpu_allow(
    version: int, nvrtc: tuple[int, int], major: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = cupy.cuda.runtime.getDeviceProperties(0) | {"major": major}
    monkeypatch.setattr(cupy.cuda.runtime, "driverGetVersion", lambda: version)
    monkeypatch.setattr(cupy.cuda.nvrtc, "getVersion", lambda: nvrtc)
    monkeypatch.setattr(cupy.cuda.runtime, "getDeviceProperties", lambda device: properties)
    assert Driver(cupy, 1).limits(0).parameter_bytes == limit


def test_device_limits_are_read_once() -> None:
    new_driver = Driver(cupy, 1)
    with card.calls() as cuda_calls:
        first = new_driver.limits(0)
    assert (first.sm_count, first.registers_per_sm, first.blocks_per_sm) == (132, 65536, 32)
    assert (first.shared_per_sm, first.in_flight_bytes) == (228 << 10, 48 << 10)
    assert cuda_calls.count("cudaGetDeviceProperties") == 1
    with card.calls() as cuda_calls:
        assert new_driver.limits(0) is first
    assert cuda_calls == []


def test_a_message_omits_free_memory_that_cannot_be_queried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise cupy.cuda.runtime.CUDARuntimeError(999)

    loaded_driver, full = driver.load(), MemoryError()
    free, total = cupy.cuda.runtime.memGetInfo()
    assert f"{free} of {total} bytes are free" in str(loaded_driver.dml_error(full, 0, "a copy"))
    monkeypatch.setattr(cupy.cuda.runtime, "memGetInfo", fail)
    assert str(loaded_driver.dml_error(full, 0, "a copy")) == "a copy on cuda:0: out of memory"
