"""Compiled kernels on disk: they are checked, and processes share them."""

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from dmlsplit.backends.cuda import images


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("CUPY_CACHE_IN_MEMORY", raising=False)
    return tmp_path / "dmlsplit"


def test_a_written_image_is_read_back(folder: Path) -> None:
    assert images.read("a.image") is None
    images.write("a.image", b"code")
    assert images.read("a.image") == b"code"
    assert [path.name for path in folder.iterdir()] == ["a.image"]


def test_each_source_with_its_options_and_compiler_has_its_own_file_name() -> None:
    given = [("source", ("90", "13")), ("source", ("9", "013")), ("source", ("90", "14")),
             ("other", ("90", "13")), ("source90", ("13",))]  # fmt: skip
    names = {images.file_name(*one) for one in given}
    assert len(names) == len(given)
    assert images.file_name(*given[0]) in names


@pytest.mark.parametrize("damage", ["empty", "short", "changed", "no file"])
def test_a_damaged_file_is_not_read_and_is_written_again(folder: Path, damage: str) -> None:
    images.write("a.image", b"code of a kernel")
    path = folder / "a.image"
    content = path.read_bytes()
    if damage == "no file":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(
            {"empty": b"", "short": content[:-1], "changed": content[:-1] + b"L"}[damage]
        )
    assert images.read("a.image") is None
    images.write("a.image", b"code of a kernel")
    assert images.read("a.image") == (None if damage == "no file" else b"code of a kernel")


@pytest.mark.parametrize("kind", ["fifo", "device", "long"])
def test_only_regular_files_of_a_bounded_size_are_read(
    folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind != "long" and not hasattr(os, "mkfifo"):
        pytest.skip("this system has no FIFOs and devices")
    monkeypatch.setattr(images, "MAX_BYTES", 36)
    images.write("a.image", b"1234")
    assert images.read("a.image") == b"1234"
    path = folder / "a.image"
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        images.write("a.image", b"12345")
    # In a process that can be ended.
    code = (
        "from dmlsplit.backends.cuda import images; images.MAX_BYTES = 36; "
        "print(images.read('a.image'))"
    )
    limit = "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30,) * 2); "
    line = [sys.executable, "-c", (limit if kind == "device" else "") + code]
    done = subprocess.run(line, capture_output=True, text=True, timeout=30, check=False)
    assert (done.stdout, done.stderr) == ("None\n", "")


def test_no_images_are_written_or_read_if_cupy_caches_in_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images.write("a.image", b"code")
    monkeypatch.setenv("CUPY_CACHE_IN_MEMORY", "1")
    assert images.read("a.image") is None
    images.write("b.image", b"code")
    assert [path.name for path in folder.iterdir()] == ["a.image"]


def test_a_folder_that_cannot_be_written_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUPY_CACHE_DIR", "/dev/null/kernels")
    images.write("a.image", b"code")
    assert images.read("a.image") is None


def test_by_default_images_are_in_the_kernel_cache_of_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUPY_CACHE_DIR", raising=False)
    monkeypatch.delenv("CUPY_CACHE_IN_MEMORY", raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    assert images.folder() == Path("/home/someone/.cupy/kernel_cache/dmlsplit")


def test_without_a_home_no_images_are_written_or_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container may run under a user number without a user, and without HOME."""
    for variable in ("CUPY_CACHE_DIR", "CUPY_CACHE_IN_MEMORY", "HOME"):
        monkeypatch.delenv(variable, raising=False)
    users = pytest.importorskip("pwd", reason="this system has no password database")
    monkeypatch.setattr(users, "getpwuid", Mock(side_effect=KeyError("uid not found: 4321")))
    monkeypatch.chdir(tmp_path)
    assert images.folder() is None
    images.write("a.image", b"code")
    assert images.read("a.image") is None
    assert not list(tmp_path.iterdir())


def test_processes_that_share_the_files_read_only_complete_ones(folder: Path) -> None:
    """Each reads only complete files, whatever the others write."""
    text = (
        "from dmlsplit.backends.cuda import images\n"
        "for i in range(150):\n"
        "    name, content = f'{i % 7}.image', bytes([i % 7]) * 20_000\n"
        "    assert images.read(name) in (None, content)\n"
        "    images.write(name, content)\n"
    )
    workers = [subprocess.Popen([sys.executable, "-c", text]) for _ in range(3)]
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    assert len(list(folder.iterdir())) == 7
