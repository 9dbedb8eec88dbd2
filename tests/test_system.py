"""Differences between operating systems; both variants run on the system that runs the tests."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dmlsplit.system import OPEN_FLAGS, closing, lock_file, read_at, reserve, write_at


@pytest.fixture
def handle(tmp_path: Path) -> int:
    return os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT | OPEN_FLAGS)


def test_a_file_is_locked_once(tmp_path: Path, handle: int) -> None:
    other = os.open(tmp_path / "file", os.O_RDWR | OPEN_FLAGS)
    assert lock_file(handle)
    assert not lock_file(other)
    os.close(handle)
    assert lock_file(other)
    os.close(other)


def test_threads_share_a_descriptor_even_if_seek_and_read_are_two_calls(
    handle: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("preadv", "pwrite", "posix_fallocate"):
        monkeypatch.delattr(os, name, raising=False)
    size, count = 64, 2000
    reserve(handle, size * count)
    assert os.fstat(handle).st_size == size * count

    def write_and_read(number: int) -> bool:
        data, found = number.to_bytes(size, "little"), bytearray(size)
        assert write_at(handle, memoryview(data), number * size) == size
        assert read_at(handle, memoryview(found), number * size) == size
        return found == data

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(write_and_read, range(count)))
    finally:
        sys.setswitchinterval(before)
    os.close(handle)


@pytest.mark.parametrize(("system", "is_open"), [("linux", True), ("win32", False)])
def test_a_lock_is_closed_when_its_file_can_be_removed(
    system: str, is_open: bool, handle: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    with closing(handle):
        assert Path(f"/proc/self/fd/{handle}").exists() == is_open
    assert not Path(f"/proc/self/fd/{handle}").exists()
