"""The record of a run: only blocks whose mark matches their files count as done."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

import dmlsplit as dml
from dmlsplit.storage.blocks import BlockGrid
from dmlsplit.storage.journal import Run, create_journal, open_journal, read_run
from dmlsplit.storage.resumable import split_store
from tests.support.stores import VALUES, assert_pieces, finished_blocks

pytestmark = pytest.mark.usefixtures("small_blocks")

GRID = BlockGrid((13, 4), 1, (1, 3), (1, 4), (1, 1), 2, 8)
RUN = Run("/data/in.zarr", "zarr", GRID, 0xFEDCBA9876543210, (7, 1 << 60))


def test_a_journal_is_continued_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    create_journal(path, RUN)
    right = [0] * 13
    for blocks in ((3, 12), (1,), (3,)):
        with open_journal(path) as journal:
            assert journal.run == RUN
            assert journal.marks.tolist() == right
            for block in blocks:
                right[block] = (1 << 64) - 1 - block - right[block]
                journal.record(block, right[block])
                # The mark is written at once, not when the run ends.
                with open_journal(path) as other:
                    assert other.marks.tolist() == journal.marks.tolist() == right
    assert read_run(path) == RUN
    assert list(tmp_path.iterdir()) == [path]


def test_a_half_written_mark_does_not_count(
    begun: Path, store: Path, tmp_path: Path, moved: list[int]
) -> None:
    done = finished_blocks(begun)
    begun.write_bytes(begun.read_bytes()[:-4])
    split_store(store, (1, 6), 2, tmp_path)
    assert set(moved) == set(range(15)) - done | {max(done)}
    assert_pieces(tmp_path, VALUES, 2, (1, 6))


@pytest.mark.parametrize("rest", [b"", b"3 f\n1", b"\n" * 1000, bytes(range(256))])
def test_garbage_after_the_first_line_marks_no_block_as_done(
    rest: bytes, begun: Path, store: Path, tmp_path: Path, moved: list[int]
) -> None:
    begun.write_bytes(begun.read_bytes().partition(b"\n")[0] + b"\n" + rest)
    split_store(store, (1, 6), 2, tmp_path)
    assert sorted(moved) == list(range(15))
    assert_pieces(tmp_path, VALUES, 2, (1, 6))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[1]\n",
        b"\xff\n",
        b"[" * 100_000,
        b'{"grid": 3}\n',
        json.dumps({**asdict(RUN), "grid": {}}).encode(),
        json.dumps({**asdict(RUN), "pieces": 3}).encode(),
        json.dumps({**asdict(RUN), "data_type": "<f4"}).encode(),  # of an earlier version
    ],
)
def test_a_damaged_journal_is_named_and_left_unchanged(
    content: bytes, begun: Path, store: Path, tmp_path: Path
) -> None:
    begun.write_bytes(content)
    with pytest.raises(dml.InvalidArgumentError) as error:
        split_store(store, (1, 6), 2, tmp_path)
    fix = f"Fix: remove {begun.parent} and start again"
    assert str(error.value) == f"{begun} is damaged, or another version of dmlsplit wrote it. {fix}"
    assert begun.read_bytes() == content
