"""Small blocks, so that small arrays have many of them."""

from pathlib import Path

import pytest

from dmlsplit.storage import stores, zarr_arrays
from tests.support.stores import make_store


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "BLOCK_BYTES", 2048)
    monkeypatch.setattr(zarr_arrays, "CHUNK_BYTES", 1024)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of fifteen chunks, each of which is a block."""
    return make_store(tmp_path / "in.zarr", chunks=(4, 33, 7))
