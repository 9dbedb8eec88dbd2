"""A fake NVML with two GPUs."""

import sys

import pytest

from tests.support.fake_nvml import FakeNvml


@pytest.fixture
def fake_nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """NVML of a machine with two GPUs, instead of the real one."""
    nvml = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return nvml
