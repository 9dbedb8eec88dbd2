"""One block of a stored array, wherever it is done: read it, split it, write its parts."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from dmlsplit.errors import InvalidArgumentError
from dmlsplit.storage.blocks import Block, BlockGrid
from dmlsplit.storage.journal import read_header
from dmlsplit.storage.transfer import split_on
from dmlsplit.storage.zarr_arrays import describe, needed, open_source


@dataclass(frozen=True)
class _Run:
    """One run as a worker sees it: the open source and pieces."""

    source: Any
    pieces: tuple[Any, ...]
    plan: BlockGrid


def _plan(header: dict[str, Any]) -> BlockGrid:
    values: dict[str, Any] = {}
    for field in fields(BlockGrid):
        value = header[field.name]
        values[field.name] = tuple(value) if isinstance(value, list) else value
    return BlockGrid(**values)


@lru_cache(maxsize=4)
def _opened(draft: str, run: str) -> _Run:
    """Open a run once per process; `run` tells it from an earlier one in the same folder."""
    folder = Path(draft)
    header = read_header(folder / "journal")
    source, plan = open_source(Path(header["source"])), _plan(header)
    zarr = needed("zarr", draft)
    pieces = [
        # Zarr's own search for chunks of the fill value is slow, and takes -0j for 0j.
        zarr.open_array(str(folder / str(piece)), mode="r+").with_config(
            {"write_empty_chunks": True}
        )
        for piece in range(len(plan.sizes))
    ]
    return _Run(source, tuple(pieces), plan)


def move_block(draft: str, run: str, device: str, index: int) -> int:
    """Read one block, split it in one dispatch, write its parts; return its number.

    Safe to repeat: it writes the same bytes to chunks that no other block touches.
    """
    opened = _opened(draft, run)
    block = opened.plan[index]
    pieces = _pieces(opened, block, device)
    for part in block.parts:
        # Taken out of the list, so that each piece is freed when it is written.
        grid = opened.plan.grid_of(part.piece)
        _write(opened.pieces[part.piece], part.region, pieces.pop(0), grid)
    return index


def _pieces(opened: _Run, block: Block, device: str) -> list[np.ndarray]:
    data = _read(opened.source, block)
    if len(block.parts) == 1:
        return [data]
    return split_on(device, data, [part.size for part in block.parts], opened.plan.axis)


def _read(source: Any, block: Block) -> np.ndarray:
    try:
        return np.asarray(source[block.region])
    except OSError:
        raise
    except Exception as error:  # codecs have no common error
        where = ", ".join(f"{side.start}:{side.stop}" for side in block.region)
        raise InvalidArgumentError(
            f"{getattr(source, 'store', 'source')}: the chunks of [{where}] cannot be read: "
            f"{describe(error)}. Fix: copy the store again, and start the same run again"
        ) from None


def _write(piece: Any, region: tuple[slice, ...], data: np.ndarray, grid: tuple[int, ...]) -> None:
    """Write a part of a piece, but no chunk that holds the fill value only, bit by bit.

    `region` begins between chunks of `grid`, so a stride of `grid` meets each chunk's first
    element: unless one of them is the fill value, no chunk is.
    """
    if not _fill_bits(data[tuple(slice(None, None, side) for side in grid)], piece).any():
        piece[region] = data
        return
    shape = data.shape
    for start in product(*(range(0, n, side) for n, side in zip(shape, grid, strict=True))):
        inside = [slice(a, min(a + g, n)) for a, g, n in zip(start, grid, shape, strict=True)]
        chunk = data[tuple(inside)]
        if not _fill_bits(chunk, piece).all():
            place = [
                slice(outer.start + side.start, outer.start + side.stop)
                for outer, side in zip(region, inside, strict=True)
            ]
            piece[tuple(place)] = chunk


def _fill_bits(data: np.ndarray, piece: Any) -> np.ndarray:
    """Return which elements have the bits of the fill value."""
    if piece.fill_value is None or not data.dtype.itemsize:
        return np.zeros(1, bool)
    fill = np.frombuffer(np.array(piece.fill_value, data.dtype).tobytes(), np.uint8)
    elements = np.ascontiguousarray(data).reshape(-1).view(np.uint8).reshape(-1, fill.size)
    return np.asarray((elements == fill).all(axis=1))
