"""`dmlsplit run` on .npy files of any layout, in blocks; pieces appear complete or not at all."""

import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.storage import npy
from dmlsplit.storage.npy import split_file
from dmlsplit.storage.npy_file import npy_header
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
    done = split_file(
        tmp_path / "a.npy", sizes, axis, out, progress=lambda *step: steps.append(step)
    )
    found = [np.load(path, allow_pickle=False) for path in done.paths]
    assert_same(found, np.split(array, np.cumsum(sizes)[:-1], axis))
    assert [path.name for path in done.paths] == [f"a_{i}.npy" for i in range(len(sizes))]
    assert steps[-1] == (array.nbytes, array.nbytes)
    assert max(np.diff([0, *(done for done, _ in steps)])) <= max(block, array.itemsize)
    assert sorted(p.name for p in out.iterdir()) == [p.name for p in done.paths]


def test_an_array_without_elements_is_split(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.empty((3, 0, 4), "i2"))
    done = split_file(tmp_path / "a.npy", (1, 2), 0, tmp_path)
    assert [np.load(path).shape for path in done.paths] == [(1, 0, 4), (2, 0, 4)]


def test_more_pieces_than_the_soft_limit_of_open_files_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda file: None)  # these are only read again
    np.save(tmp_path / "a.npy", np.arange(1500, dtype="u2"))
    done = split_file(tmp_path / "a.npy", 1500, 0, tmp_path / "out")
    assert [int(np.load(path)[0]) for path in done.paths] == list(range(1500))


def test_a_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    """test_npy_file.py has damaged headers."""
    header = npy_header((6, 2), False, np.dtype("f4"))
    (tmp_path / "a.npy").write_bytes(header + bytes(47))
    with pytest.raises(dml.InvalidArgumentError, match=r"a\.npy: has 175 bytes; its header says"):
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
    done = ran(sys.executable, "-c", code, *line)
    assert re.search(r"error: .*out/a_\d+\.npy: Too many open files$", done.stderr.strip())
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
