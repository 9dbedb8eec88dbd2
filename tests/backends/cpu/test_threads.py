"""How many threads a split may use."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

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
    zeros = np.zeros((1 << 22, 2), np.uint8)
    with pytest.raises(InvalidArgumentError, match=threads.VARIABLE):
        dml.split(zeros + 1, 2, 1, out=[zeros[:, :1], zeros[:, 1:]])
    assert not zeros.any()


def test_the_thread_count_is_the_variable_or_the_processors_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(threads.VARIABLE, " 3 ")
    assert threads.thread_count() == 3
    monkeypatch.delenv(threads.VARIABLE)
    assert 1 <= threads.thread_count() <= (os.cpu_count() or 1)
    monkeypatch.setattr(threads, "processors", lambda: set(range(64)))
    monkeypatch.setattr(threads, "_quota", lambda: 6)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert threads.thread_count() == 6


def test_torch_limits_the_threads_where_the_variable_does_not_say_how_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(threads.VARIABLE, raising=False)
    monkeypatch.setattr(threads, "processors", lambda: set(range(64)))
    monkeypatch.setattr(threads, "_quota", lambda: None)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(get_num_threads=lambda: 1))
    assert threads.thread_count() == 1
    monkeypatch.setenv(threads.VARIABLE, "3")
    assert threads.thread_count() == 3
    monkeypatch.delenv(threads.VARIABLE)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())  # which is being imported
    assert threads.thread_count() == 64


@pytest.fixture(autouse=True)
def forgotten_quota() -> Iterator[None]:
    """The quota is read once; a test must not read what another one wrote."""
    threads._quota.cache_clear()
    yield
    threads._quota.cache_clear()


def quota(root: Path, table: str) -> int | None:
    """The processors that control groups below `root` allow a process in the groups of `table`."""
    (root / "groups").write_text(table)
    return threads._quota(root, root / "groups")


@pytest.mark.parametrize(
    ("text", "count"),
    [("max 100000", None), ("150000 100000", 2), ("1 100000", 1), ("", None), ("1 0", None)],
)
def test_the_control_group_quota_limits_the_threads(
    text: str, count: int | None, tmp_path: Path
) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert quota(tmp_path, "0::/\n") == count


@pytest.mark.parametrize(
    ("table", "files", "count"),
    [
        ("0::/user.slice/job", {"user.slice/job/cpu.max": "300000 100000"}, 3),
        ("0::/user.slice/job", {"user.slice/cpu.max": "2 1", "user.slice/job/cpu.max": "5 1"}, 2),
        ("0::/only/outside/this/container", {"cpu.max": "4 1"}, 4),
        (
            "4:memory:/job\n1:cpu,cpuacct:/job\n0::/",
            {
                "cpu,cpuacct/job/cpu.cfs_quota_us": "250000",
                "cpu,cpuacct/job/cpu.cfs_period_us": "100000",
                "cpu,cpuacct/cpu.cfs_quota_us": "-1",
                "cpu,cpuacct/cpu.cfs_period_us": "100000",
            },
            3,
        ),
        (
            "1:cpu:/\n2:cpuacct:/",
            {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "9"},
            None,
        ),
        ("nonsense", {"cpu.max": "1 1"}, None),
    ],
    ids=["own group", "outer group", "container", "version 1", "unlimited", "unreadable"],
)
def test_the_quota_is_that_of_the_process_s_own_group_and_of_those_around_it(
    table: str, files: dict[str, str], count: int | None, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert quota(tmp_path, table) == count


def test_without_control_groups_there_is_no_quota(tmp_path: Path) -> None:
    assert threads._quota(tmp_path, tmp_path / "absent") is None
