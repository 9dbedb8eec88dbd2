"""`dmlsplit run` on .npy files of any layout, in blocks; pieces appear complete or not at all."""

import os
import re
import shutil
import sys
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.files.npy_header import npy_header
from dmlsplit.storage import npy
from dmlsplit.storage.npy import split_file
from tests.support.arrays import assert_same
from tests.support.command import ran


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("block", [1, 9, 64, 160, 1 << 20])
def test_pieces_are_those_of_numpy_whatever_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, axis: int, block: int
) -> None:
    monkeypatch.setattr(npy, "BLOCK_BYTES", block)
    array = np.random.default_rng(0).normal(size=(6, 4, 8)).astype("f4")
    np.save(tmp_path / "a.npy", np.asarray(array, order=order))  # type: ignore[call-overload]
    sizes = {6: (1, 5), 4: (3, 0, 1), 8: (2, 2, 4)}[array.shape[axis]]
    steps: list[tuple[int, int]] = []
    out = tmp_path / "out"
    result = split_file(
        tmp_path / "a.npy", sizes, axis, out, progress=lambda *step: steps.append(step)
    )
    pieces = [np.load(path, allow_pickle=False) for path in result.paths]
    assert_same(pieces, np.split(array, np.cumsum(sizes)[:-1], axis))
    assert [path.name for path in result.paths] == [f"a_{i}.npy" for i in range(len(sizes))]
    assert steps[-1] == (array.nbytes, array.nbytes)
    assert max(np.diff([0, *(bytes_done for bytes_done, _ in steps)])) <= max(block, array.itemsize)
    assert sorted(p.name for p in out.iterdir()) == [p.name for p in result.paths]


class Disk(NamedTuple):
    total: int
    used: int
    free: int


VALUES = np.random.default_rng(0).integers(0, 1 << 16, (60, 33, 7), dtype="u2")


@pytest.mark.parametrize("change", ["rewritten", "replaced", "touched", "cut short"])
def test_a_file_that_changes_during_a_run_gives_no_pieces(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(npy, "BLOCK_BYTES", 2048)
    path = tmp_path / "a.npy"
    np.save(path, VALUES)

    def change_once(bytes_done: int, total: int) -> None:
        if bytes_done < total // 2:
            if change == "replaced":
                status = path.stat()
                np.save(tmp_path / "b.npy", VALUES + 1)
                (tmp_path / "b.npy").replace(path)
                os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
            elif change == "rewritten":
                with path.open("ab") as file:
                    file.write(b"more")
            elif change == "touched":
                os.utime(path, (0, 0))
            else:
                with path.open("r+b") as file:
                    file.truncate(1000)

    message = "became shorter while it was read" if change == "cut short" else "changed while"
    with pytest.raises(dml.InvalidArgumentError, match=message) as error:
        split_file(path, (1, 6), 2, tmp_path / "out", progress=change_once)
    assert "a.npy" in str(error.value)
    assert list((tmp_path / "out").iterdir()) == []


class Slow(FileIO):
    """A file whose calls move a part of the bytes."""

    def readinto(self, buffer: Any) -> int:
        return super().readinto(buffer[:7])

    def write(self, data: Any) -> int:
        return super().write(data[:7])


def test_reading_and_writing_continue_after_a_partial_read_or_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(npy, "FileIO", Slow)
    np.save(tmp_path / "a.npy", VALUES[:3])
    result = split_file(tmp_path / "a.npy", (10, 23), 1, tmp_path)
    assert_same(list(map(np.load, result.paths)), np.split(VALUES[:3], [10], 1))


def test_field_names_outside_latin_1_are_kept(tmp_path: Path) -> None:
    array = np.ones((4, 2), [("имя", "f4")])
    with pytest.warns(UserWarning, match="format 3.0"):
        np.save(tmp_path / "a.npy", array)
    result = split_file(tmp_path / "a.npy", (1, 3), 0, tmp_path)
    assert_same(list(map(np.load, result.paths)), np.split(array, [1]))


def test_pieces_must_fit_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "a.npy", np.zeros((4, 8), "u1"))
    free = 31
    monkeypatch.setattr("dmlsplit.files.atomic.disk_usage", lambda folder: Disk(1000, 969, free))
    with pytest.raises(OSError, match="does not fit: 32 bytes are needed, 31 are free"):
        split_file(tmp_path / "a.npy", 2, 0, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    free = 32
    split_file(tmp_path / "a.npy", 2, 0, tmp_path / "out")


def test_every_piece_is_on_the_disk_before_the_first_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "a.npy", np.arange(6))
    events: list[str] = []
    sync, replace = os.fsync, Path.replace

    def logged_sync(number: int) -> None:
        events.append(f"sync {Path(f'/proc/self/fd/{number}').readlink().name}")
        sync(number)

    def logged_replace(path: Path, target: Path) -> Path:
        events.append(f"name {target.name}")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", logged_sync)
    monkeypatch.setattr(Path, "replace", logged_replace)
    split_file(tmp_path / "a.npy", 2, 0, tmp_path)
    assert events == [f"{event} a_{index}.npy" for event in ("sync", "name") for index in (0, 1)]


@pytest.mark.parametrize("failure", [OSError(5, "Input/output error"), KeyboardInterrupt()])
def test_a_stop_between_two_renames_says_how_many_pieces_are_in_place(
    failure: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "a.npy", np.arange(6))
    replace = Path.replace

    def fail_at_the_last(path: Path, target: Path) -> Path:
        if target.name == "a_2.npy":
            raise failure
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", fail_at_the_last)
    with pytest.raises(type(failure)) as error:
        split_file(tmp_path / "a.npy", 3, 0, tmp_path / "out")
    message = " ".join([str(error.value), *getattr(error.value, "__notes__", ())])
    assert "2 of 3 pieces are in place. Fix: run the same command again with --overwrite" in message
    assert isinstance(failure, KeyboardInterrupt) or "out/a_2.npy" in message
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a_0.npy", "a_1.npy"]


@pytest.mark.parametrize("stop", ["made", "removed"])
def test_an_interrupt_while_the_hidden_folder_is_made_or_removed_leaves_nothing(
    stop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "a.npy", np.arange(6))
    calls = []

    def interrupted(work: Any, stops_before: bool) -> Any:
        def run(path: Path, *arguments: Any, **options: Any) -> None:
            if not stops_before:
                work(path, *arguments, **options)
            if path.name.startswith(".dmlsplit-") and not calls:
                calls.append(path)
                raise KeyboardInterrupt
            if stops_before:
                work(path, *arguments, **options)

        return run

    if stop == "made":
        monkeypatch.setattr(Path, "mkdir", interrupted(Path.mkdir, stops_before=False))
    else:
        monkeypatch.setattr("dmlsplit.files.atomic.rmtree", interrupted(shutil.rmtree, True))
    with pytest.raises(KeyboardInterrupt):
        split_file(tmp_path / "a.npy", 3, 0, tmp_path / "out")
    assert calls
    assert not list((tmp_path / "out").glob(".*"))


def test_the_device_is_used_before_anything_is_written(tmp_path: Path) -> None:
    """A signal during an import, such as that of CuPy, ends the process without cleaning up."""
    np.save(tmp_path / "a.npy", np.arange(6))
    with pytest.raises((dml.UnsupportedError, dml.InvalidArgumentError)):
        split_file(tmp_path / "a.npy", 3, 0, tmp_path / "out", device="cuda:99")
    assert not (tmp_path / "out").exists()


def test_a_name_that_is_too_long_is_refused_before_anything_is_copied(tmp_path: Path) -> None:
    path = tmp_path / f"{'a' * 249}.npy"  # only ten pieces have names of at most 255 bytes
    np.save(path, np.arange(22))
    steps: list[tuple[int, int]] = []
    with pytest.raises(OSError, match=r"File name too long.*a_10\.npy") as error:
        split_file(path, 22, 0, tmp_path / "out", progress=lambda *step: steps.append(step))
    assert "Fix: run the same command again" not in str(error.value)
    assert steps == list((tmp_path / "out").iterdir()) == []


def test_an_array_without_elements_is_split(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.empty((3, 0, 4), "i2"))
    result = split_file(tmp_path / "a.npy", (1, 2), 0, tmp_path)
    assert [np.load(path).shape for path in result.paths] == [(1, 0, 4), (2, 0, 4)]


def test_more_pieces_than_the_soft_limit_of_open_files_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = pytest.importorskip("resource", reason="Windows has no such limit")
    monkeypatch.setattr(os, "fsync", lambda file: None)  # these are only read again
    np.save(tmp_path / "a.npy", np.arange(400, dtype="u2"))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, limits[1]))
    try:
        result = split_file(tmp_path / "a.npy", 400, 0, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert [int(np.load(path)[0]) for path in result.paths] == list(range(400))


def test_a_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    """test_npy_header.py has damaged headers."""
    header = npy_header((6, 2), False, np.dtype("f4"))
    cut_off = header + bytes(6 * 2 * 4 - 1)
    (tmp_path / "a.npy").write_bytes(cut_off)
    message = rf"a\.npy: has {len(cut_off)} bytes; its header says"
    with pytest.raises(dml.InvalidArgumentError, match=message):
        split_file(tmp_path / "a.npy", 2, 0, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_more_pieces_than_open_files_can_be_allowed_are_refused(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource", reason="Windows has no such limit")
    np.save(tmp_path / "a.npy", np.zeros(100, "u1"))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    code = (
        "import resource, sys; from dmlsplit.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 99))\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    line = f"run {tmp_path / 'a.npy'} --axis 0 --count 100 -o {tmp_path / 'out'}".split()
    process = ran(sys.executable, "-c", code, *line)
    assert re.search(r"error: .*out/a_\d+\.npy: Too many open files$", process.stderr.strip())
    assert list((tmp_path / "out").iterdir()) == []
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == limits


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.npy")
    with pytest.raises(dml.InvalidArgumentError, match="is not a regular file") as error:
        split_file(tmp_path / "a.npy", 2, 0, tmp_path / "out")
    assert error.value.path == str(tmp_path / "a.npy")


@pytest.mark.slow
def test_a_file_larger_than_the_memory_allowed_is_split(tmp_path: Path) -> None:
    """A process that may hold only 400 MB of its own data splits 1 GB."""
    rows, columns = 1 << 18, 1 << 10
    array = np.lib.format.open_memmap(tmp_path / "a.npy", "w+", np.float32, (rows, columns))
    array[::4096] = np.arange(columns)
    array.flush()
    code = (
        "import resource, sys; from dmlsplit.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (400 << 20, 400 << 20))\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    line = f"run {tmp_path / 'a.npy'} --axis 1 --split 1,1000,23 -o {tmp_path}".split()
    ran(sys.executable, "-c", code, *line, env={"OPENBLAS_NUM_THREADS": "1"}, check=True)
    piece = np.load(tmp_path / "a_1.npy", mmap_mode="r")
    np.testing.assert_array_equal(piece[4096 * 7], np.arange(1, 1001))
    assert not piece[4096 * 7 + 1].any()
