"""The record of a run: only whole lines count, and nothing that is damaged."""

import json
from pathlib import Path

import pytest

import dmlsplit as dml
from dmlsplit.storage.journal import RunHeader, create_journal, open_journal, read_header
from dmlsplit.storage.resumable import split_store
from tests.support.stores import VALUES, StopError, assert_pieces, finished_blocks, stop_after

pytestmark = pytest.mark.usefixtures("small_blocks")


def test_a_line_that_was_cut_short_does_not_count(
    store: Path, tmp_path: Path, moved: list[int]
) -> None:
    """A journal that ends in the first digit of 12 must not say that block 1 is done."""
    with pytest.raises(StopError):
        split_store(store, (1, 6), 2, tmp_path, progress=stop_after(4))
    journal = tmp_path / ".in.unfinished" / "journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    missing = set(range(15)) - finished_blocks(lines[1:-1])
    journal.write_bytes(b"".join(lines[:-1]) + lines[-1][:-1])
    moved.clear()
    split_store(store, (1, 6), 2, tmp_path)
    assert set(moved) == missing
    assert_pieces(tmp_path, VALUES, 2, (1, 6))


HEADER: RunHeader = {
    "input": "/data/in.zarr",
    "format": "zarr",
    "state": [["zarr.json", 1, 2, "ab"]],
    "data_type": "<f4",
    "grid": {"shape": [4]},
    "pieces": [7],
    "run": "0123",
}


def test_a_journal_is_continued_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    create_journal(path, HEADER)
    for blocks in ((3, 12), (1,)):
        with open_journal(path, 13) as journal:
            assert journal.header == HEADER
            for block in blocks:
                journal.add(block, 0xAB00 + block)
                # At once, not when the run ends.
                assert path.read_bytes().endswith(b"\n%d ab%02x\n" % (block, block))
                assert journal.marks[block]
    assert path.read_bytes().split(b"\n", 1)[1] == b"3 ab03\n12 ab0c\n1 ab01\n"
    assert read_header(path) == HEADER
    assert list(tmp_path.iterdir()) == [path]
    with open_journal(path, 13) as journal:
        assert {n: int(mark) for n, mark in enumerate(journal.marks) if mark} == {
            1: 0xAB01,
            3: 0xAB03,
            12: 0xAB0C,
        }


def test_what_follows_the_last_whole_line_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    create_journal(path, HEADER)
    header = path.read_bytes()
    path.write_bytes(header + b"3 f\n1")
    with open_journal(path, 8) as journal:
        assert journal.marks.tolist() == [0, 0, 0, 15, 0, 0, 0, 0]
        journal.add(7, 1)
    assert path.read_bytes() == header + b"3 f\n7 1\n"


def test_the_last_mark_of_a_block_counts(tmp_path: Path) -> None:
    """A block is done again when its input has changed."""
    path = tmp_path / "journal"
    create_journal(path, HEADER)
    with open_journal(path, 2) as journal:
        journal.add(1, 5)
        journal.add(1, 6)
    with open_journal(path, 2) as journal:
        assert journal.marks.tolist() == [0, 6]


WRONG_HEADERS = [b"{}\n", b'{"grid": 3}\n', b'{"grid": {}}\n', b'{"grid": {}, "pieces": 3}\n']
WRONG_LINES = b"x,1,1 x,-1 5,4 5,99999999999 5,1 -5,1 5 5,1 fffffffffffffffff".split(b",")


@pytest.mark.parametrize(
    "content",
    [*WRONG_HEADERS, *(json.dumps(HEADER).encode() + b"\n%b\n" % line for line in WRONG_LINES)],
)
def test_a_damaged_journal_is_named_and_left_as_it_is(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run" / "journal"
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(dml.InvalidArgumentError) as error, open_journal(path, 4):
        pytest.fail("the journal must not open")
    fix = f"Fix: remove {path.parent} and start again"
    assert str(error.value) == f"{path} is damaged. {fix}"
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"\n", b"{}\nx\n", b"[1]\n", b"\xff\n"])
def test_a_damaged_journal_is_not_believed(content: bytes, store: Path, tmp_path: Path) -> None:
    with pytest.raises(StopError):
        split_store(store, (1, 6), 2, tmp_path, progress=stop_after(3))
    (tmp_path / ".in.unfinished" / "journal").write_bytes(content)
    with pytest.raises(dml.InvalidArgumentError, match="is damaged"):
        split_store(store, (1, 6), 2, tmp_path)
