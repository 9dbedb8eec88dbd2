"""Differences between operating systems; both variants run on the system that runs the tests."""

import os
import sys
from pathlib import Path

import pytest

from dmlsplit.system import OPEN_FLAGS, closing_locked_file, lock_file


@pytest.fixture
def handle(tmp_path: Path) -> int:
    return os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT | OPEN_FLAGS)


def test_a_locked_file_cannot_be_locked_again_until_it_is_closed(
    tmp_path: Path, handle: int
) -> None:
    other = os.open(tmp_path / "file", os.O_RDWR | OPEN_FLAGS)
    assert lock_file(handle)
    assert not lock_file(other)
    os.close(handle)
    assert lock_file(other)
    os.close(other)


@pytest.mark.parametrize(("system", "is_open"), [("linux", True), ("win32", False)])
def test_a_lock_is_closed_when_its_file_can_be_removed(
    system: str, is_open: bool, handle: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    with closing_locked_file(handle):
        assert Path(f"/proc/self/fd/{handle}").exists() == is_open
    assert not Path(f"/proc/self/fd/{handle}").exists()
