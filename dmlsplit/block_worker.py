"""One block of a stored array, wherever it is done: read it, split it, write its parts."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from dmlsplit.block_plan import Block, BlockPlan
from dmlsplit.eager import split
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.journal import read_header
from dmlsplit.zarr_files import describe, needed, open_source


@dataclass(frozen=True)
class _Run:
    """One run as a worker sees it: the open source and pieces."""

    source: Any
    pieces: tuple[Any, ...]
    plan: BlockPlan


def _plan(header: dict[str, Any]) -> BlockPlan:
    values: dict[str, Any] = {}
    for field in fields(BlockPlan):
        value = header[field.name]
        values[field.name] = tuple(value) if isinstance(value, list) else value
    return BlockPlan(**values)


@lru_cache(maxsize=4)
def _opened(draft: str, run: str) -> _Run:
    """Open a run once per process; `run` tells it from an earlier one in the same folder."""
    folder = Path(draft)
    header = read_header(folder / "journal")
    source, plan = open_source(Path(header["source"])), _plan(header)
    zarr = needed("zarr", draft)
    pieces = [zarr.open_array(str(folder / str(i)), mode="r+") for i in range(len(plan.sizes))]
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
        opened.pieces[part.piece][part.region] = pieces.pop(0)
    return index


def _pieces(opened: _Run, block: Block, device: str) -> list[np.ndarray]:
    data = _read(opened.source, block)
    if len(block.parts) == 1:
        return [data]
    return _split(data, [part.size for part in block.parts], opened.plan.axis, device)


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


def _split(data: np.ndarray, sizes: list[int], axis: int, device: str) -> list[np.ndarray]:
    if device == "cpu":
        return split(data, sizes, axis)
    import cupy

    # As bytes, since CuPy lacks some of NumPy's data types.
    flat = np.ascontiguousarray(data).view(np.uint8).reshape(*data.shape, data.itemsize)
    with cupy.cuda.Device(int(device.partition(":")[2] or 0)):
        parts = [cupy.asnumpy(part) for part in split(cupy.asarray(flat), sizes, axis)]
    return [part.reshape(-1).view(data.dtype).reshape(part.shape[:-1]) for part in parts]
