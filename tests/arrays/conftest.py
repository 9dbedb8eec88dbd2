"""A CUDA driver that records what it is asked."""

from collections.abc import Iterator

import pytest

from dmlsplit.backends.cuda import driver
from tests.support.fake_cuda import FakeDriver
from tests.support.gpu_arrays import forget_programs


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    fake = FakeDriver()
    monkeypatch.setattr(driver, "load", lambda: fake)
    forget_programs()
    yield fake
    forget_programs()
