"""The driver's errors on machines without CUDA. Its calls: simulated_card/cases_driver.py."""

import builtins
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import dmlsplit as dml
from dmlsplit.backends.cuda import cupy_driver as driver
from tests.support.command import ran


class CudaError(RuntimeError):
    """A CUDARuntimeError that says why there is no device."""


@pytest.fixture
def afresh() -> Any:
    """CuPy is looked for again, in this test and in the next."""
    driver.load.cache_clear()
    yield
    driver.load.cache_clear()


def test_without_cupy_the_extras_are_named(afresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name == "cupy":
            raise ImportError("No module named 'cupy'")
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(dml.UnsupportedError, match=r"'dmlsplit\[cuda13\]'.*cuda12") as error:
        dml.Device("cuda")
    assert error.value.hresult == 0x887A0004
    device = dml.Device()
    assert device.name == "cpu"
    assert device.reason is not None
    assert "'dmlsplit[cuda13]'" in repr(device)
    assert dml.Device("cpu").reason is None


def test_if_cupy_cannot_write_its_cache_the_cpu_works_and_the_error_names_the_cause() -> None:
    """CuPy makes its cache folder when it is imported, so it fails with a read-only home."""
    pytest.importorskip("cupy", reason="CuPy is not installed")
    text = (
        "import dmlsplit as dml\nassert dml.Device().name == 'cpu'\n"
        "try: dml.Device('cuda')\nexcept dml.UnsupportedError as error: print(error)"
    )
    process = ran(sys.executable, "-c", text, env={"CUPY_CACHE_DIR": "/dev/null/kernels"})
    assert "CUPY_CACHE_DIR" in process.stdout, process.stderr


@pytest.mark.parametrize("count", [0, None])
def test_the_error_says_that_there_is_no_device_or_why_the_driver_failed(
    afresh: None, monkeypatch: pytest.MonkeyPatch, count: int | None
) -> None:
    def ask() -> int:
        if count is None:
            raise CudaError("status 35")
        return count

    runtime = SimpleNamespace(
        getDeviceCount=ask,
        CUDARuntimeError=CudaError,
        runtimeGetVersion=lambda: 13020,
        driverGetVersion=lambda: 13020,
    )
    nvrtc = SimpleNamespace(getVersion=lambda: (13, 2))
    cuda = SimpleNamespace(runtime=runtime, nvrtc=nvrtc)
    cupy = SimpleNamespace(cuda=cuda, __version__="14.2.0")
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    text = "no CUDA device" if count == 0 else "no usable CUDA device: status 35.*Fix: check"
    with pytest.raises(dml.UnsupportedError, match=text):
        dml.Device("cuda:0")
