"""Small blocks, so that small arrays have many of them."""

from pathlib import Path
from typing import Any

import pytest

from dmlsplit.storage import resumable, worker, zarr_arrays
from dmlsplit.storage.resumable import split_store
from tests.support.stores import StopError, make_store, stop_after


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zarr_arrays, "BLOCK_BYTES", 2048)
    monkeypatch.setattr(zarr_arrays, "CHUNK_BYTES", 1024)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of fifteen chunks, each of which is a block."""
    return make_store(tmp_path / "in.zarr", chunks=(4, 33, 7))


@pytest.fixture
def begun(store: Path, tmp_path: Path) -> Path:
    """The journal of a run that was interrupted after some blocks."""
    with pytest.raises(StopError):
        split_store(store, (1, 6), 2, tmp_path, progress=stop_after(6))
    return tmp_path / ".in.unfinished" / "journal"


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the blocks that are moved, in order."""
    blocks: list[int] = []

    def counted(*arguments: Any) -> tuple[int, int]:
        blocks.append(arguments[-1])
        return worker.move_block(*arguments)

    monkeypatch.setattr(resumable, "move_block", counted)
    return blocks
