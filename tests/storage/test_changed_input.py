"""Input that changes: noticed by a resumed run, and by a run that is under way."""

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import zarr

import dmlsplit as dml
from dmlsplit.cli import main
from dmlsplit.storage import marks
from dmlsplit.storage.npy import split_file
from dmlsplit.storage.resumable import split_store
from tests.support.stores import (
    VALUES,
    StopError,
    assert_pieces,
    contents,
    finished_blocks,
    make_store,
    stop_after,
)

pytestmark = pytest.mark.usefixtures("small_blocks")


@pytest.fixture
def begun(store: Path, tmp_path: Path) -> set[int]:
    """A run that was interrupted after some blocks."""
    with pytest.raises(StopError):
        split_store(store, (1, 6), 2, tmp_path, progress=stop_after(6))
    journal = (tmp_path / ".in.unfinished" / "journal").read_text().splitlines()
    return finished_blocks(journal[1:])


def test_blocks_whose_chunks_changed_are_done_again(
    store: Path, tmp_path: Path, begun: set[int], moved: list[int]
) -> None:
    again = min(begun)  # a block is a chunk of four rows
    values = VALUES.copy()
    values[4 * again : 4 * again + 4] += 1
    zarr.open_array(str(store))[4 * again : 4 * again + 4] = values[4 * again : 4 * again + 4]
    done = split_store(store, (1, 6), 2, tmp_path)
    assert sorted(moved) == sorted(set(range(15)) - begun | {again})
    assert_pieces(tmp_path, values, 2, (1, 6))
    assert done.notes == (f"1 block of {store} had changed: done again",)


def test_input_that_is_rewritten_is_read_again_as_a_whole(
    store: Path, tmp_path: Path, begun: set[int], moved: list[int]
) -> None:
    zarr.open_array(str(store))[:] = VALUES + 1
    split_store(store, (1, 6), 2, tmp_path)
    assert sorted(moved) == list(range(15))
    assert_pieces(tmp_path, VALUES + 1, 2, (1, 6))


def test_chunks_that_became_empty_are_empty_in_the_pieces(
    store: Path, tmp_path: Path, begun: set[int]
) -> None:
    values = VALUES.copy()
    values[4 * min(begun) : 4 * min(begun) + 4] = 0
    (store / f"c/{min(begun)}/0/0").unlink()
    split_store(store, (1, 6), 2, tmp_path)
    assert_pieces(tmp_path, values, 2, (1, 6))


def test_another_array_in_its_place_is_refused(
    store: Path, tmp_path: Path, begun: set[int]
) -> None:
    before = contents(tmp_path / ".in.unfinished")
    shutil.rmtree(store)
    make_store(store, VALUES + 1, chunks=(4, 33, 7))
    with pytest.raises(dml.InvalidArgumentError, match="was replaced or changed") as error:
        split_store(store, (1, 6), 2, tmp_path)
    assert f"{tmp_path / '.in.unfinished'} began. Fix: remove that folder" in str(error.value)
    assert contents(tmp_path / ".in.unfinished") == before
    shutil.rmtree(tmp_path / ".in.unfinished")
    split_store(store, (1, 6), 2, tmp_path)
    assert_pieces(tmp_path, VALUES + 1, 2, (1, 6))


@pytest.mark.parametrize("copy", [shutil.copy, shutil.copy2], ids=["new times", "old times"])
def test_after_a_corrupt_chunk_the_store_can_be_copied_again(
    copy: object, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(store, tmp_path / "whole")
    (store / "c/9/0/0").write_bytes(b"short")
    line = ["run", str(store), "--axis", "2", "--split", "1,6", "-o", str(tmp_path / "out")]
    assert main(line) == 2
    said = capsys.readouterr().err
    assert f"{store}: the chunks of [36:40, 0:33, 0:7] cannot be read" in said
    assert "Fix: copy the store again, and start the same run again" in said
    shutil.rmtree(store)
    shutil.copytree(tmp_path / "whole", store, copy_function=copy)  # type: ignore[arg-type]
    assert main(line) == 0
    assert_pieces(tmp_path / "out", VALUES, 2, (1, 6))
    assert [p.name for p in (tmp_path / "out").glob(".*")] == []


def test_a_changed_input_is_refused_when_pieces_have_their_names(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dmlsplit.storage import workspace

    take_name = workspace._take_name

    def stop_at_last(draft: Path, target: Path, old: Path) -> None:
        if target.name == "in_1.zarr":
            raise StopError
        take_name(draft, target, old)

    with monkeypatch.context() as patch:
        patch.setattr(workspace, "_take_name", stop_at_last)
        with pytest.raises(StopError):
            split_store(store, (1, 6), 2, tmp_path)
    zarr.open_array(str(store))[:] = VALUES + 1
    with pytest.raises(dml.InvalidArgumentError, match="changed after pieces of the unfinished"):
        split_store(store, (1, 6), 2, tmp_path)


def test_a_change_during_a_run_is_noticed(store: Path, tmp_path: Path) -> None:
    changed = threading.Event()

    def change_late(done: int, total: int) -> None:
        if done == total and not changed.is_set():
            changed.set()
            zarr.open_array(str(store))[:4] = VALUES[:4] + 1

    with pytest.raises(dml.InvalidArgumentError, match="1 of 15 blocks are old") as error:
        split_store(store, (1, 6), 2, tmp_path, progress=change_late)
    assert "Fix: start the same run again" in str(error.value)
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
        before = marks.input_state(path)
        path.write_bytes(b"two")
        assert marks.input_state(path) != before, count


def test_a_pipe_or_device_as_a_chunk_is_refused_and_not_waited_for(
    store: Path, tmp_path: Path
) -> None:
    import os

    chunk = store / "c/3/0/0"
    chunk.unlink()
    os.mkfifo(chunk)
    with pytest.raises(dml.InvalidArgumentError, match="c/3/0/0: is not a regular file"):
        split_store(store, (1, 6), 2, tmp_path)
    chunk.unlink()
    chunk.symlink_to("/dev/zero")
    with pytest.raises(dml.InvalidArgumentError, match="c/3/0/0: is not a regular file"):
        split_store(store, (1, 6), 2, tmp_path)
    (store / "zarr.json").unlink()
    os.mkfifo(store / "zarr.json")
    with pytest.raises(dml.InvalidArgumentError, match=r"its zarr.json is not a regular file"):
        split_store(store, (1, 6), 2, tmp_path / "other")
