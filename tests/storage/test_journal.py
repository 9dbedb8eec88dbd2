"""The record of a run: only whole lines count, and nothing that is damaged."""

from pathlib import Path

import pytest

import dmlsplit as dml
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


@pytest.mark.parametrize("content", [b"", b"\n", b"{}\nx\n", b"[1]\n", b"\xff\n"])
def test_a_damaged_journal_is_not_believed(content: bytes, store: Path, tmp_path: Path) -> None:
    with pytest.raises(StopError):
        split_store(store, (1, 6), 2, tmp_path, progress=stop_after(3))
    (tmp_path / ".in.unfinished" / "journal").write_bytes(content)
    with pytest.raises(dml.InvalidArgumentError, match="is damaged"):
        split_store(store, (1, 6), 2, tmp_path)
