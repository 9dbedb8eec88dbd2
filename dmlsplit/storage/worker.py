"""Reads, splits and writes one block, on any thread or machine, as the run's journal says."""

from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from dmlsplit.atomic import naming
from dmlsplit.errors import DmlError, InvalidArgumentError
from dmlsplit.storage.blocks import Block, BlockGrid
from dmlsplit.storage.journal import block_mark, read_run
from dmlsplit.storage.npy import split_on
from dmlsplit.storage.zarr_arrays import describe, needed, open_stored


@lru_cache(maxsize=4)
def _input(workspace: str, run: str) -> tuple[Path, Any, BlockGrid]:
    """The input, opened once per process; `run` tells runs in the same workspace apart."""
    found = read_run(Path(workspace) / "journal")
    path = Path(found.input)
    return path, open_stored(path), found.grid


@lru_cache(maxsize=4)
def _pieces(workspace: str, run: str, count: int) -> list[Any]:
    zarr = needed("zarr", "a zarr store")
    found = []
    for draft in (Path(workspace) / str(piece) for piece in range(count)):
        with naming(draft):
            piece = zarr.open_array(str(draft), mode="r+")
        # Zarr's own search for chunks of the fill value is slow, and takes -0j for 0j.
        found.append(piece.with_config({"write_empty_chunks": True}))
    return found


def marks(workspace: str, run: str, blocks: list[int]) -> list[tuple[int, int]]:
    """For each block, its number and the current mark of its files."""
    path, stored, grid = _input(workspace, run)
    return [(index, block_mark(path, stored, grid, index)) for index in blocks]


def move_block(workspace: str, run: str, device: str, index: int) -> tuple[int, int]:
    """Read, split and write a block. It can be repeated, as no other block writes its chunks."""
    path, stored, grid = _input(workspace, run)
    pieces = _pieces(workspace, run, len(grid.sizes))
    block, mark = grid[index], block_mark(path, stored, grid, index)
    parts = [_read(path, stored, block)]
    if len(block.parts) > 1:
        parts = split_on(device, parts.pop(), [part.size for part in block.parts], grid.axis)
    for part in block.parts:
        with naming(Path(workspace) / str(part.piece)):
            # `pop` drops the reference, so that a part is freed once it is written.
            _write(pieces[part.piece], part.region, parts.pop(0), grid.piece_chunk(part.piece))
    return index, mark


def _read(path: Path, stored: Any, block: Block) -> np.ndarray:
    try:
        return np.asarray(stored[block.region])
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
    except DmlError:
        raise
    except Exception as error:  # codecs have no common error
        where = ", ".join(f"{side.start}:{side.stop}" for side in block.region)
        raise InvalidArgumentError(
            f"{path}: the chunks of [{where}] cannot be read: {describe(error)}. "
            "Fix: copy the store again, then run the same command again"
        ) from None


def _write(piece: Any, region: tuple[slice, ...], data: np.ndarray, chunk: tuple[int, ...]) -> None:
    """Write a part of a piece, except chunks that hold only the fill value, bit for bit.

    Striding by `chunk` visits each chunk's first element, because `region` starts at a chunk. If
    none of them is the fill value, no chunk can be all fill, and one write suffices.
    """
    if not _fill_bits(data[tuple(slice(None, None, side) for side in chunk)], piece).any():
        piece[region] = data
        return
    for start in product(*(range(0, n, side) for n, side in zip(data.shape, chunk, strict=True))):
        values = data[tuple(slice(a, a + side) for a, side in zip(start, chunk, strict=True))]
        corner = [side.start + a for side, a in zip(region, start, strict=True)]
        if _fill_bits(values, piece).all():
            # An earlier run may have written the chunk, before the input changed.
            place = tuple(a // side for a, side in zip(corner, chunk, strict=True))
            (piece.store.root / piece.metadata.encode_chunk_key(place)).unlink(missing_ok=True)
        else:
            sides = zip(corner, values.shape, strict=True)
            piece[tuple(slice(a, a + n) for a, n in sides)] = values


def _fill_bits(data: np.ndarray, piece: Any) -> np.ndarray:
    """For each element, whether it has the bits of the fill value."""
    if piece.fill_value is None or not data.dtype.itemsize:
        return np.zeros(1, bool)
    fill = np.frombuffer(np.array(piece.fill_value, data.dtype).tobytes(), np.uint8)
    elements = np.ascontiguousarray(data).reshape(-1).view(np.uint8).reshape(-1, fill.size)
    return np.asarray((elements == fill).all(axis=1))
