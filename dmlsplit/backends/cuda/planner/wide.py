"""Plans for `rows`: wide outputs, copied along their own bytes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from dmlsplit.backends.cuda.launch import (
    COUNT_64,
    DIVISOR,
    LOADS,
    POINTER_BYTES,
    THREADS,
    VECTOR,
    Assumptions,
    Constant,
    KernelLaunch,
    blocks,
    divisor,
    index_type,
)
from dmlsplit.backends.cuda.planner.columns import Columns

# Outputs that the tables of one launch are made for: few sizes, because each is a program.
CAPACITIES = (4, 16, 64, 256, 1024, 4096)
# What a block copies with all threads, and a warp.
TILE_BYTES, WARP_BYTES = THREADS * LOADS * VECTOR, 32 * LOADS * VECTOR
# Of a chunk: enough tiles to fill the last of each output well, and not so many that what outputs
# share has left the cache before all have read it.
CHUNK_BYTES = 256 * TILE_BYTES
# Indices in a chunk have 32 bits, of which the division of common.cuh takes 31.
MOST_CHUNK_BYTES = 1 << 30
# Share of threads with something to copy at which one row at a time is as good as many.
FULL = 0.97
# Bytes of parameters beside tables: the input's address and the largest set of single numbers.
OTHER_BYTES = 64


def rows_launches(columns: Columns, assumed: Assumptions, aligned: bool) -> Iterator[KernelLaunch]:
    """Yield the launches for wide outputs, as many outputs each as parameters hold."""
    entry = _entry_bytes(columns)
    most = (assumed.parameter_bytes - OTHER_BYTES) // entry
    count = len(columns.outputs)
    for first in range(0, count, most):
        part = columns.take(range(first, min(first + most, count)))
        yield _launch(part, assumed, aligned, most)


def _entry_bytes(columns: Columns) -> int:
    if columns.equal_width:
        return POINTER_BYTES
    wide = 8 if max(columns.offsets[-1], max(columns.widths)) >= 2**32 else 4
    return POINTER_BYTES + 2 * wide + 4 + 8


def _launch(columns: Columns, assumed: Assumptions, aligned: bool, most: int) -> KernelLaunch:
    count = len(columns.outputs)
    capacity = min(most, next(size for size in CAPACITIES if size >= count))
    threads = THREADS
    tile = threads * LOADS * VECTOR
    chunk_rows, one_row = _chunk(columns, tile)
    tiles = [blocks(chunk_rows * width, tile) for width in columns.widths]
    grid = blocks(columns.rows, chunk_rows) * sum(tiles)
    fill = (0,) * (capacity - count)
    place = COUNT_64 if one_row else "unsigned"
    bytes_ = index_type(max(columns.offsets[-1], max(columns.widths)))
    return KernelLaunch(
        "rows",
        columns.outputs,
        columns.total_bytes,
        assumed,
        (
            Constant("int", "kLoads", LOADS),
            Constant("bool", "kAligned", int(aligned)),
            Constant("bool", "kOneRow", int(one_row)),
        ),
        grid,
        bytes_in_flight=LOADS * VECTOR,
        reason="wide outputs",
        capacity=capacity,
        arguments=(
            Constant(place, "pitch", columns.pitch),
            Constant(place, "chunk_pitch", chunk_rows * columns.pitch),
            Constant(bytes_, "offsets", (*columns.offsets, *fill)),
            Constant(bytes_, "widths", (*columns.widths, *fill)),
            Constant(DIVISOR, "by_chunk_tiles", divisor(sum(tiles))),
            Constant("unsigned", "chunk_rows", chunk_rows),
            Constant("unsigned", "last_chunk", (columns.rows - 1) // chunk_rows),
            Constant("unsigned", "last_rows", (columns.rows - 1) % chunk_rows + 1),
            Constant("unsigned", "chunk_tiles", sum(tiles)),
            Constant("unsigned", "tile_starts", (*accumulate(tiles[:-1], initial=0), *(2**32 - 1 for _ in fill))),
            *([] if one_row else [Constant(DIVISOR, "by_width", sum((divisor(w) for w in columns.widths), ()) + 2 * fill)]),
        ),
    )


def _chunk(columns: Columns, tile: int) -> tuple[int, bool]:
    """Return the rows of a chunk, and whether it is treated as a single row."""
    def full(rows: int) -> float:
        sizes = [rows * width for width in columns.widths]
        return sum(sizes) / (sum(blocks(size, tile) for size in sizes) * tile)

    if columns.rows == 1 or full(1) >= FULL or max(columns.widths) >= MOST_CHUNK_BYTES // 2:
        return 1, True
    most = min(columns.rows, MOST_CHUNK_BYTES // max(columns.widths))
    least = min(most, max(1, blocks(CHUNK_BYTES, columns.row_bytes) // 2))
    step = max(1, least // 16)
    choices = range(least, min(most, 2 * least) + 1, step)
    return max(choices, key=full), False
