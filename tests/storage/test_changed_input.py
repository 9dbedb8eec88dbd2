"""A changed input is noticed, by a resumed run and by a run that is still going."""

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import dmlsplit as dml
from dmlsplit.cli import main
from dmlsplit.storage import journal, resumable, worker
from dmlsplit.storage.npy import split_file
from dmlsplit.storage.resumable import split_store
from tests.support.command import refused
from tests.support.stores import (
    VALUES,
    StopError,
    assert_pieces,
    contents,
    finished_blocks,
    make_store,
    publishing_stops_at,
)

pytestmark = pytest.mark.usefixtures("small_blocks")


def test_blocks_whose_chunks_changed_are_done_again(
    store: Path, tmp_path: Path, begun: Path, moved: list[int]
) -> None:
    finished = finished_blocks(begun)
    again = min(finished)  # a block is a chunk of four rows
    values = VALUES.copy()
    values[4 * again : 4 * again + 4] += 1
    zarr.open_array(str(store))[4 * again : 4 * again + 4] = values[4 * again : 4 * again + 4]
    done = split_store(store, (1, 6), 2, tmp_path)
    assert sorted(moved) == sorted(set(range(15)) - finished | {again})
    assert_pieces(tmp_path, values, 2, (1, 6))
    assert done.notes == (f"1 block of {store} had changed and were split again",)


def test_an_old_chunk_that_comes_back_is_read_again(
    store: Path, tmp_path: Path, begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill right after a block was written from newer data leaves that data in the pieces."""
    again = min(finished_blocks(begun))
    chunk = store / f"c/{again}/0/0"
    shutil.copy2(chunk, tmp_path / "backup")
    zarr.open_array(str(store))[4 * again : 4 * again + 4] = 0xBAD

    def written_and_killed(*arguments: Any) -> tuple[int, int]:
        worker.move_block(*arguments)
        raise StopError

    with monkeypatch.context() as patch:
        patch.setattr(resumable, "move_block", written_and_killed)
        with pytest.raises(dml.UnsupportedError, match="StopError"):
            split_store(store, (1, 6), 2, tmp_path)
    shutil.copy2(tmp_path / "backup", chunk)
    split_store(store, (1, 6), 2, tmp_path)
    assert_pieces(tmp_path, VALUES, 2, (1, 6))


def test_chunks_that_became_empty_are_empty_in_the_pieces(
    store: Path, tmp_path: Path, begun: Path
) -> None:
    values, again = VALUES.copy(), min(finished_blocks(begun))
    values[4 * again : 4 * again + 4] = 0
    (store / f"c/{again}/0/0").unlink()
    split_store(store, (1, 6), 2, tmp_path)
    assert_pieces(tmp_path, values, 2, (1, 6))


@pytest.mark.parametrize("layout", [{}, {"fill_value": 9, "dtype": "u4"}, {"chunks": (9, 9, 7)}])
def test_a_replaced_input_is_split_from_the_beginning(
    layout: dict[str, Any], store: Path, tmp_path: Path, begun: Path, moved: list[int]
) -> None:
    """The old pieces are removed too, because they have the old data type and fill value."""
    finished = finished_blocks(begun)
    shutil.rmtree(store)
    make_store(store, VALUES + 1, **{"chunks": (4, 33, 7), **layout})
    done = split_store(store, (1, 6), 2, tmp_path)
    assert done.notes == (f"{store} was replaced or changed; the split starts over",)
    for piece in assert_pieces(tmp_path, VALUES + 1, 2, (1, 6)):
        assert (piece.dtype, piece.fill_value) == (done.dtype, layout.get("fill_value", 0))
    assert set(moved) >= finished
    assert [entry.name for entry in tmp_path.glob(".*")] == []


@pytest.mark.parametrize("copy", [shutil.copy, shutil.copy2], ids=["new times", "old times"])
def test_after_a_corrupt_chunk_the_store_can_be_copied_again(
    copy: object, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(store, tmp_path / "whole")
    (store / "c/9/0/0").write_bytes(b"short")
    line = f"run {store} --axis 2 --split 1,6 -o {tmp_path / 'out'}"
    said = refused(capsys, line)
    assert f"{store}: the chunks of [36:40, 0:33, 0:7] cannot be read" in said
    assert "Fix: copy the store again, then run the same command again" in said
    shutil.rmtree(store)
    shutil.copytree(tmp_path / "whole", store, copy_function=copy)  # type: ignore[arg-type]
    assert main(line.split()) == 0
    assert_pieces(tmp_path / "out", VALUES, 2, (1, 6))
    assert [p.name for p in (tmp_path / "out").glob(".*")] == []


def test_a_changed_input_is_refused_when_pieces_have_their_names(
    store: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "in.npy", VALUES)
    for path, split in ((store, split_store), (tmp_path / "in.npy", split_file)):
        with publishing_stops_at("in_1" + path.suffix):
            split(path, (1, 6), 2, tmp_path / path.suffix)
    zarr.open_array(str(store))[:] = VALUES + 1
    np.save(tmp_path / "in.npy", VALUES + 1)
    for path, split in ((store, split_store), (tmp_path / "in.npy", split_file)):
        before = contents(tmp_path / path.suffix)
        with pytest.raises(dml.InvalidArgumentError, match="changed after some pieces of the"):
            split(path, (1, 6), 2, tmp_path / path.suffix, overwrite=True)
        assert contents(tmp_path / path.suffix) == before


def test_a_npy_file_that_changed_before_its_pieces_got_names_is_split_again(tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", VALUES)
    with publishing_stops_at("in_0.npy"):
        split_file(tmp_path / "in.npy", (1, 6), 2, tmp_path / "out")
    np.save(tmp_path / "in.npy", VALUES + 1)
    done = split_file(tmp_path / "in.npy", (3, 4), 2, tmp_path / "out")
    assert done.notes == (f"{tmp_path / 'in.npy'} was replaced or changed; the split starts over",)
    for piece, right in zip(done.paths, np.split(VALUES + 1, [3], 2), strict=True):
        np.testing.assert_array_equal(np.load(piece), right)
    assert [entry.name for entry in (tmp_path / "out").glob(".*")] == []


def test_a_change_during_a_run_is_noticed(store: Path, tmp_path: Path) -> None:
    changed = threading.Event()

    def change_late(done: int, total: int) -> None:
        if done == total and not changed.is_set():
            changed.set()
            zarr.open_array(str(store))[:4] = VALUES[:4] + 1

    with pytest.raises(dml.InvalidArgumentError, match="1 of 15 blocks are outdated") as error:
        split_store(store, (1, 6), 2, tmp_path, progress=change_late)
    assert "Fix: run the same command again" in str(error.value)
    assert not (tmp_path / "in_0.zarr").exists()
    split_store(store, (1, 6), 2, tmp_path)
    assert_pieces(tmp_path, np.concatenate([VALUES[:4] + 1, VALUES[4:]]), 2, (1, 6))


@pytest.mark.parametrize("change", ["rewritten", "replaced", "cut short"])
def test_a_npy_file_that_changes_during_a_run_gives_no_pieces(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dmlsplit.storage.npy.BLOCK_BYTES", 2048)
    path = tmp_path / "a.npy"
    np.save(path, VALUES)

    def change_once(done: int, total: int) -> None:
        if done < total // 2:
            if change == "replaced":
                np.save(tmp_path / "b.npy", VALUES + 1)
                (tmp_path / "b.npy").replace(path)
            elif change == "rewritten":
                np.save(path, VALUES + 1)
            else:
                with path.open("r+b") as file:
                    file.truncate(1000)

    with pytest.raises(dml.InvalidArgumentError, match=r"changed while|became shorter") as error:
        split_file(path, (1, 6), 2, tmp_path / "out", progress=change_once)
    assert "a.npy" in str(error.value)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_file_that_was_written_just_now_gets_a_mark_that_the_next_write_changes(
    tmp_path: Path,
) -> None:
    """Two writes within a tick of the file system's clock leave the same time."""
    path = tmp_path / "a.npy"
    for count in range(20):
        path.write_bytes(b"one")
        before = journal.input_mark(path)
        path.write_bytes(b"two")
        assert journal.input_mark(path) != before, count


def test_a_pipe_or_device_as_a_chunk_is_refused_and_not_waited_for(
    store: Path, tmp_path: Path
) -> None:
    chunk = store / "c/3/0/0"
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        chunk.unlink()
        make(chunk)
        with pytest.raises(dml.InvalidArgumentError, match="c/3/0/0: is not a regular file"):
            split_store(store, (1, 6), 2, tmp_path)
    (store / "zarr.json").unlink()
    os.mkfifo(store / "zarr.json")
    with pytest.raises(dml.InvalidArgumentError, match=r"its zarr.json is not a regular file"):
        split_store(store, (1, 6), 2, tmp_path / "other")
