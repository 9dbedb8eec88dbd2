"""The calls that `driver.py` makes to CuPy, and its use of the results."""

import cupy
import pytest

import dmlsplit as dml
from dmlsplit.backends.cuda import driver
from dmlsplit.backends.cuda.driver import Driver
from tests.simulated_card import card
from tests.support.gpu_arrays import bound, problem, same


@pytest.mark.parametrize(
    ("version", "nvrtc", "limit"),
    [(13000, (13, 0), 32764), (12010, (12, 1), 32764), (12000, (12, 9), 4096),
     (12040, (12, 0), 4096), (11080, (11, 8), 4096)],
)  # fmt: skip
def test_parameters_are_as_large_as_driver_and_compiler_allow(
    version: int, nvrtc: tuple[int, int], limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cupy.cuda.runtime, "driverGetVersion", lambda: version)
    monkeypatch.setattr(cupy.cuda.nvrtc, "getVersion", lambda: nvrtc)
    assert Driver(cupy, 1).limits(0).parameter_bytes == limit


@pytest.mark.parametrize(("major", "limit"), [(5, 4096), (6, 4096), (7, 32764), (12, 32764)])
def test_parameters_are_as_large_as_the_gpu_allows(
    major: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = cupy.cuda.runtime.getDeviceProperties(0)
    monkeypatch.setattr(
        cupy.cuda.runtime, "getDeviceProperties", lambda device: known | {"major": major}
    )
    assert Driver(cupy, 1).limits(0).parameter_bytes == limit


def test_limits_are_read_once() -> None:
    found = Driver(cupy, 1)
    with card.calls() as recorded:
        first = found.limits(0)
    assert (first.sm_count, first.registers_per_sm, first.blocks_per_sm) == (132, 65536, 32)
    assert recorded.names.count("cudaGetDeviceProperties") == 1
    with card.calls() as recorded:
        assert found.limits(0) is first
    assert recorded.names == []


def test_the_second_failure_in_a_row_is_an_error() -> None:
    """The first means that the thread has no context: it gets one, and the launch is repeated."""
    source, outs = problem()
    operator = bound(source, outs)
    card.fail("cuLaunchKernel", 201)  # CUDA_ERROR_INVALID_CONTEXT
    card.fail("cuLaunchKernel", 719)
    with pytest.raises(dml.DeviceRemovedError, match="LAUNCH_FAILED"):
        operator.dispatch()
    operator.dispatch()
    assert same(source, outs)


def test_a_cupy_with_another_launch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from cupy_backends.cuda.api import driver as api

    monkeypatch.setattr(api, "launchKernel", lambda function, dimensions: None)
    with pytest.raises(dml.UnsupportedError, match=r"another launchKernel .*Fix: install CuPy"):
        driver.Driver(cupy, 1)


def test_a_message_omits_free_memory_that_cannot_be_queried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise cupy.cuda.runtime.CUDARuntimeError(999)

    found, full = driver.load(), MemoryError()
    free, total = cupy.cuda.runtime.memGetInfo()
    assert f"{free} of {total} bytes are free" in str(found.translated(full, 0, "a copy"))
    monkeypatch.setattr(cupy.cuda.runtime, "memGetInfo", fail)
    assert str(found.translated(full, 0, "a copy")) == "a copy on cuda:0: out of memory"
