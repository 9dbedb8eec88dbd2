"""The record of a run: only whole lines count, and nothing that is damaged."""

from pathlib import Path

import pytest

import dmlsplit as dml
from dmlsplit.storage.journal import RunHeader, create_journal, open_journal, read_header
from dmlsplit.storage.resumable import split_store
from stores import VALUES, StopError, assert_pieces, stop_after

pytestmark = pytest.mark.usefixtures("small_blocks")


def test_a_line_that_was_cut_short_does_not_count(
    store: Path, tmp_path: Path, moved: list[int]
) -> None:
    """A journal that ends in the first digit of 12 must not say that block 1 is done."""
    with pytest.raises(StopError):
        split_store(store, (1, 6), 2, tmp_path, progress=stop_after(4))
    journal = tmp_path / ".in.unfinished" / "journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    missing = set(range(15)) - set(map(int, lines[1:-1]))
    journal.write_bytes(b"".join(lines[:-1]) + lines[-1][:-1])
    moved.clear()
    split_store(store, (1, 6), 2, tmp_path)
    assert set(moved) == missing
    assert_pieces(tmp_path, VALUES, 2, (1, 6))


HEADER: RunHeader = {
    "input": "/data/in.zarr",
    "state": [["zarr.json", 1, 2]],
    "data_type": "<f4",
    "grid": {"shape": [4]},
    "run": "0123",
}


def test_a_journal_is_continued_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    create_journal(path, HEADER)
    for blocks in ((3, 12), (1,)):
        with open_journal(path) as journal:
            assert journal.header == HEADER
            for block in blocks:
                journal.add(block)
                # At once, not when the run ends.
                assert path.read_bytes().endswith(b"\n%d\n" % block)
                assert block in journal.done
    assert path.read_bytes().split(b"\n", 1)[1] == b"3\n12\n1\n"
    assert read_header(path) == HEADER
    assert list(tmp_path.iterdir()) == [path]
    with open_journal(path) as journal:
        assert journal.done == {1, 3, 12}


def test_what_follows_the_last_whole_line_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    create_journal(path, HEADER)
    header = path.read_bytes()
    path.write_bytes(header + b"3\n1")
    with open_journal(path) as journal:
        assert journal.done == {3}
        journal.add(7)
    assert path.read_bytes() == header + b"3\n7\n"


@pytest.mark.parametrize("content", [b"{}\n", b'{"grid": 3}\n', b'{"grid": {}}\n1\nx\n'])
def test_a_damaged_journal_is_named_and_left_as_it_is(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run" / "journal"
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(dml.InvalidArgumentError) as error, open_journal(path):
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
