"""How many threads a split may use."""

import os
from pathlib import Path

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.backends.cpu import threads
from dmlsplit.errors import InvalidArgumentError


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5", "1025", "9" * 5000, "²"])
def test_an_invalid_thread_count_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(threads.VARIABLE, value)
    with pytest.raises(InvalidArgumentError, match="whole number from 1 to 1024"):
        threads.thread_count()
    untouched = np.zeros((1 << 22, 2), np.uint8)
    with pytest.raises(InvalidArgumentError, match=threads.VARIABLE):
        dml.split(untouched + 1, 2, 1, out=[untouched[:, :1], untouched[:, 1:]])
    assert not untouched.any()


def test_the_thread_count_is_the_variable_or_the_processors_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(threads.VARIABLE, " 3 ")
    assert threads.thread_count() == 3
    monkeypatch.delenv(threads.VARIABLE)
    assert 1 <= threads.thread_count() <= (os.cpu_count() or 1)
    monkeypatch.setattr(threads, "processors", lambda: set(range(64)))
    monkeypatch.setattr(threads, "_quota", lambda: 6)
    assert threads.thread_count() == 6


@pytest.mark.parametrize(
    ("text", "count"), [("max 100000", None), ("150000 100000", 2), ("1 100000", 1), ("", None)]
)
def test_the_control_group_quota_limits_the_threads(
    text: str, count: int | None, tmp_path: Path
) -> None:
    (tmp_path / "cpu.max").write_text(text)
    threads._quota.cache_clear()
    assert threads._quota(tmp_path) == count
    threads._quota.cache_clear()
