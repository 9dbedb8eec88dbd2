"""Chunked arrays on disk: what can be read block by block, and the zarr pieces to write.

Needs zarr, of the extra ``dmlsplit[dask]``; nothing here is imported before a store is met.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from dmlsplit.errors import InvalidArgumentError, UnsupportedError
from dmlsplit.storage.blocks import BlockGrid, row_blocks
from dmlsplit.storage.npy import open_npy

# Small enough for a few blocks per thread, large enough that a block costs more than its task.
BLOCK_BYTES = 8 << 20
# Counting the chunks that a store holds means listing its files.
COUNTED_CHUNKS = 1_000_000
# Chunks of the pieces of a .npy file, which has none itself.
CHUNK_BYTES = 4 << 20


def needed(module: str, purpose: str) -> Any:
    """Import a module of the extra ``dask``.

    Raises
    ------
    UnsupportedError
        If it is not installed.
    """
    try:
        return import_module(module)
    except ImportError:
        raise UnsupportedError(
            f'{purpose} needs {module}, which is missing. Fix: pip install "dmlsplit[dask]"'
        ) from None


def is_store(path: Path) -> bool:
    """Whether a path is to be read as a zarr store, going by its name and kind."""
    return path.is_dir() or path.name.endswith((".zarr", ".zarr.zip"))


def open_source(path: Path) -> Any:
    """Open a zarr array or map a .npy file, for reading.

    Raises
    ------
    InvalidArgumentError
        If it is neither, is damaged, is a group of arrays, or holds Python objects.
    OSError
        If it cannot be read.
    """
    return open_store(path) if is_store(path) else open_npy(path)


def open_store(path: Path) -> Any:
    """Open the array in a zarr store, format 2 or 3, for reading."""
    zarr = needed("zarr", f"{path}")
    path.stat()
    try:
        store = zarr.storage.ZipStore(path, mode="r") if path.is_file() else str(path)
        node = zarr.open(store, mode="r")
    except FileNotFoundError:
        raise InvalidArgumentError(
            f"{path} is not a zarr store: it has no zarr.json, .zarray or .zgroup"
        ) from None
    except Exception as error:  # zarr's errors about metadata have no common root
        raise InvalidArgumentError(
            f"{path} has damaged zarr metadata: {describe(error)}. Fix: copy the store again"
        ) from None
    if not isinstance(node, zarr.Array):
        raise InvalidArgumentError(f"{path} is a zarr group; {_fix_for_group(path, node)}")
    if node.dtype.hasobject:
        raise InvalidArgumentError(
            f"{path} has data type {node.dtype}; its elements have no fixed size, so they cannot "
            "be split as bytes"
        )
    return node


def _fix_for_group(path: Path, group: Any) -> str:
    try:
        names = [name for name, node in group.members(max_depth=None) if hasattr(node, "shape")]
    except Exception as error:  # as above
        return f"its members cannot be read: {describe(error)}"
    if not names:
        return "it holds no array"
    shown = ", ".join(sorted(names)[:16]) + (f" and {len(names) - 16} more" * (len(names) > 16))
    return f"it must be one array. It holds {shown}. Fix: give {path / sorted(names)[0]}"


def plan_for(
    source: Any, axis: int, sizes: tuple[int, ...], block_bytes: int | None = None
) -> BlockGrid:
    """Return the blocks in which to split a zarr array or a mapped .npy file."""
    wanted = BLOCK_BYTES if block_bytes is None else block_bytes
    if wanted < 1:
        raise InvalidArgumentError(f"block_bytes is {wanted}; it must be at least 1")
    shape, width = tuple(source.shape), max(1, source.dtype.itemsize)
    if isinstance(source, np.ndarray):
        grid, inner = row_blocks(shape, width, CHUNK_BYTES), (1,) * len(shape)
    elif source.shards is None:
        grid, inner = tuple(source.chunks), (1,) * len(shape)
    else:
        grid, inner = tuple(source.shards), tuple(source.chunks)
    return BlockGrid(shape, axis, sizes, grid, inner, width, wanted)


def absent_chunks(path: Path, source: Any) -> tuple[str, ...]:
    """Say so if chunks are not stored: the array may be sparse, or a copy of it cut short."""
    if isinstance(source, np.ndarray) or source.nchunks > COUNTED_CHUNKS:
        return ()
    absent = source.nchunks - source.nchunks_initialized
    if not absent:
        return ()
    return (
        f"{absent} of {source.nchunks} chunks of {path} are not stored; zarr reads them as the "
        f"fill value, {source.fill_value}",
    )


def create_piece(path: Path, source: Any, plan: BlockGrid, piece: int) -> None:
    """Create the zarr array of one piece, with the format and codecs of the source."""
    zarr = needed("zarr", f"{path}")
    shape = (*plan.shape[: plan.axis], plan.sizes[piece], *plan.shape[plan.axis + 1 :])
    grid = plan.grid_of(piece)
    kept: dict[str, Any] = {}
    if not isinstance(source, np.ndarray):
        kept = _kept(source)
    sharded = any(side > 1 for side in plan.inner)
    try:
        zarr.create_array(
            str(path),
            shape=shape,
            dtype=source.dtype,
            chunks=plan.inner if sharded else grid,
            shards=grid if sharded else None,
            **kept,
        )
    except (ValueError, TypeError) as error:
        raise InvalidArgumentError(
            f"{path}: zarr cannot hold {source.dtype} {shape}: {describe(error)}"
        ) from None


def _kept(source: Any) -> dict[str, Any]:
    kept = {
        "zarr_format": source.metadata.zarr_format,
        "compressors": source.compressors or None,
        "filters": source.filters or None,
        "fill_value": source.fill_value,
        "attributes": dict(source.attrs),
    }
    if source.metadata.zarr_format == 2:
        return {**kept, "order": source.order}
    names = source.metadata.dimension_names
    return {**kept, "serializer": source.serializer, "dimension_names": names}


def describe(error: Exception) -> str:
    """Return an error of another library in one short line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
