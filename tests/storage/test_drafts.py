"""What a run may replace, how pieces get their names, and what it removes."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import dmlsplit as dml
from dmlsplit.cli import main
from dmlsplit.storage import drafts
from dmlsplit.storage.npy import split_file
from dmlsplit.storage.stores import split_store
from tests.support.command import refused
from tests.support.stores import VALUES, assert_pieces, contents, make_store

pytestmark = pytest.mark.usefixtures("small_blocks")

INPUT = np.arange(24, dtype="f4").reshape(6, 4)
HALVES = np.split(INPUT, 2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    np.save(tmp_path / "q.npy", INPUT)
    return tmp_path / "q.npy"


def assert_halves(folder: Path) -> None:
    for index, half in enumerate(HALVES):
        np.testing.assert_array_equal(np.load(folder / f"q_{index}.npy"), half)
    assert [entry.name for entry in folder.glob(".*")] == []


@pytest.mark.parametrize("how", ["link", "link to metadata", "inside", "around"])
def test_an_input_store_is_never_replaced(how: str, tmp_path: Path) -> None:
    folder, name = tmp_path, tmp_path / "in.zarr"
    if how == "inside":
        make_store(name)
        folder = name
    elif how == "around":
        name = make_store(tmp_path / "in_0.zarr") / "in.zarr"
        make_store(name)
    else:
        real = make_store(tmp_path / "in_0.zarr")
        if how == "link":
            name.symlink_to(real)
        else:
            name.mkdir()
            for entry in real.iterdir():
                (name / entry.name).symlink_to(entry)
    before = contents(tmp_path)
    with pytest.raises(
        dml.InvalidArgumentError,
        match=r"(is|contains, or is part of,) the input.*; name another output",
    ):
        split_store(name, (1, 6), 2, folder, overwrite=True)
    assert contents(tmp_path) == before


def test_pieces_are_replaced_only_when_asked(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"run {path} --axis 0 --count 2 -o {path.parent}"
    path.with_name("q_1.npy").write_text("precious")
    said = "q_1.npy exists; it is not replaced. Fix: add --overwrite"
    assert said in refused(capsys, line)
    assert path.with_name("q_1.npy").read_text() == "precious"
    assert not path.with_name("q_0.npy").exists()
    assert main([*line.split(), "--overwrite"]) == 0
    assert_halves(path.parent)
    refused(capsys, line)
    assert_halves(path.parent)


def test_zarr_pieces_are_replaced_only_when_asked(store: Path, tmp_path: Path) -> None:
    split_store(store, (3, 4), 2, tmp_path)
    with pytest.raises(dml.InvalidArgumentError, match=r"in_0.zarr exists; it is not replaced"):
        split_store(store, (1, 6), 2, tmp_path)
    assert_pieces(tmp_path, VALUES, 2, (3, 4))
    # A folder that is not an array is not replaced either, and nothing is written beside it.
    (tmp_path / "out" / "in_1.zarr").mkdir(parents=True)
    (tmp_path / "out" / "in_1.zarr" / "thesis.txt").write_text("precious")
    with pytest.raises(dml.InvalidArgumentError, match="it is not replaced"):
        split_store(store, (1, 6), 2, tmp_path / "out")
    assert contents(tmp_path / "out") == {"in_1.zarr/thesis.txt": b"precious"}


def test_a_link_at_the_path_of_a_piece_is_replaced_and_its_target_is_not(
    path: Path, store: Path, tmp_path: Path
) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis").write_text("text")
    out = tmp_path / "out"
    out.mkdir()
    (out / "q_0.npy").symlink_to(tmp_path / "precious" / "thesis")
    (out / "in_0.zarr").symlink_to(tmp_path / "precious")
    split_file(path, 2, 0, out, overwrite=True)
    split_store(store, (1, 6), 2, out, overwrite=True)
    assert_halves(out)
    assert_pieces(out, VALUES, 2, (1, 6))
    assert contents(tmp_path / "precious") == {"thesis": b"text"}


@pytest.mark.parametrize("name", ["q_0.npy", "q_1.npy"])
def test_a_folder_at_the_path_of_a_piece_is_refused_before_anything_is_written(
    name: str, path: Path, tmp_path: Path
) -> None:
    (tmp_path / "out" / name).mkdir(parents=True)
    with pytest.raises(dml.InvalidArgumentError, match=f"{name} exists and is not a regular file"):
        split_file(path, 2, 0, tmp_path / "out", overwrite=True)
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == [name]


def test_the_error_of_a_failed_renaming_counts_the_pieces_in_place(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Path.replace

    def fail_at_last(draft: Path, target: Path) -> Path:
        if target.name == "q_1.npy":
            raise OSError(errno.EIO, "Input/output error", str(draft), None, str(target))
        return replace(draft, target)

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fail_at_last)
        with pytest.raises(OSError, match=r"1 of 2 pieces are in place\. Fix: run") as error:
            split_file(path, 2, 0, out)
    assert error.value.filename == str(out / "q_1.npy")
    assert [entry.name for entry in out.iterdir()] == ["q_0.npy"]
    np.testing.assert_array_equal(np.load(out / "q_0.npy"), HALVES[0])
    split_file(path, 2, 0, out, overwrite=True)
    assert_halves(out)


@pytest.mark.parametrize("killed", [False, True])
def test_an_old_piece_moved_aside_by_a_failed_run_is_restored(
    killed: bool, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where names cannot be exchanged, an old piece has no name between two renames."""
    split_store(store, (3, 4), 2, tmp_path)
    rename = Path.rename

    def fail(draft: Path, target: Path) -> Path:
        if target.name == "in_1.zarr" and not draft.name.startswith("old-"):
            raise OSError(errno.EIO, "Input/output error")
        return rename(draft, target)

    with monkeypatch.context() as patch:
        patch.setattr(drafts, "_exchange_names", lambda one, other: False)
        patch.setattr(Path, "rename", fail)
        if killed:
            patch.setattr(drafts, "_release", lambda folder, handle: os.close(handle))
        with pytest.raises(OSError, match="1 of 2 pieces are in place"):
            split_store(store, (1, 6), 2, tmp_path, overwrite=True)
    if killed:
        assert not (tmp_path / "in_1.zarr").exists()
        np.save(tmp_path / "other.npy", INPUT)
        split_file(tmp_path / "other.npy", 2, 0, tmp_path)
    piece: Any = zarr.open_array(str(tmp_path / "in_1.zarr"), mode="r")
    np.testing.assert_array_equal(piece[:], VALUES[:, :, 3:])
    assert not list(tmp_path.glob(".*"))


def test_a_piece_that_does_not_fit_is_refused_before_the_disk_is_full(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Full:
        f_bavail, f_bfree, f_frsize, f_blocks = 1, 1, 90, 100

    monkeypatch.setattr(os, "statvfs", lambda folder: Full)
    line = f"run {path} --axis 0 --count 2 -o {tmp_path / 'out'}"
    said = refused(capsys, line)
    assert f"{tmp_path}/out: does not fit: 96 bytes are needed, 90 are free" in said
    assert list((tmp_path / "out").iterdir()) == []
    # It just fits; and a file system that does not know its size.
    for name, value in (("f_frsize", 96), ("f_blocks", 0)):
        with monkeypatch.context() as patch:
            patch.setattr(Full, name, value)
            assert main([*line.split(), "--overwrite"]) == 0


def test_the_next_run_removes_the_drafts_of_killed_runs(path: Path, tmp_path: Path) -> None:
    """A run of the same name left some, a run of another name, and a worker that wrote too late."""
    out, run = tmp_path / "out", "0123456789abcdef" * 2
    for name in (".q.unfinished", ".other.unfinished", ".late.unfinished"):
        (out / name / f"0-{run}").mkdir(parents=True)
        (out / name / f"1-{run}").write_bytes(bytes(1000))
        if name != ".late.unfinished":
            (out / name / "lock").touch()
    (out / ".user.unfinished").mkdir()
    split_file(path, 2, 0, out)
    assert sorted(p.name for p in out.iterdir()) == [".user.unfinished", "q_0.npy", "q_1.npy"]


def test_the_drafts_of_a_live_run_are_left_alone(path: Path, store: Path, tmp_path: Path) -> None:
    def second(done: int, total: int) -> None:
        if not (tmp_path / "q_0.npy").exists():
            split_file(path, 2, 0, tmp_path)
            with pytest.raises(dml.InvalidArgumentError, match="another run writes the same"):
                split_store(store, (1, 6), 2, tmp_path)

    split_store(store, (1, 6), 2, tmp_path, progress=second)
    assert_pieces(tmp_path, VALUES, 2, (1, 6))


def test_a_folder_of_the_user_is_not_taken_for_drafts(path: Path, tmp_path: Path) -> None:
    (tmp_path / ".q.unfinished").mkdir()
    (tmp_path / ".q.unfinished" / "poem.txt").write_text("first line")
    with pytest.raises(dml.InvalidArgumentError, match="holds other files than a run's drafts"):
        split_file(path, 2, 0, tmp_path)
    assert contents(tmp_path / ".q.unfinished") == {"poem.txt": b"first line"}


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EXDEV, errno.ENOSYS])
def test_an_old_folder_is_moved_aside_if_names_cannot_be_exchanged(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()

    class Library:
        def renameat2(self, *arguments: object) -> int:
            drafts.ctypes.set_errno(number)
            return -1

    monkeypatch.setattr(drafts.ctypes, "CDLL", lambda *a, **k: Library())
    drafts._take_name(tmp_path / "new", tmp_path / "old", tmp_path / "aside")
    assert set(contents(tmp_path)) == {"old/new", "aside/old"}
    shutil.rmtree(tmp_path / "aside")
