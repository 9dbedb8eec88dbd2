"""A CUDA driver that records what it is asked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dmlsplit import device, eager
from dmlsplit.backends import find
from dmlsplit.backends.cuda import driver
from fake_cuda import FakeDriver


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    caches = find.compiled, device._compile, eager._plan, eager._plan_of_many
    fake = FakeDriver()
    monkeypatch.setattr(driver, "load", lambda: fake)
    for cache in caches:
        cache.cache_clear()
    yield fake
    for cache in caches:
        cache.cache_clear()
