"""Plans for packed splits: rows of bytes, cut at the same columns in every row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate

from dmlsplit.backends.cuda.launch import (
    CONSTANT_BYTES,
    LOADS,
    THREADS,
    VECTOR,
    WIDE,
    Constant,
    KernelLaunch,
    blocks,
    index_type,
    power_of_two,
)
from dmlsplit.backends.cuda.planner.columns import Columns, row_launch
from dmlsplit.backends.cuda.planner.tiles import TILE_ROWS, takes_whole_rows, tile
from dmlsplit.geometry import RowSplit

BLOCK_BYTES = THREADS * LOADS * VECTOR

# Outputs of at least this width gain from staying out of shared memory, if they fill a block.
WIDE_BYTES = 512
# Lanes of a warp that read different entries of a constant table, such as the outputs' addresses,
# do so in turns (CUDA C++ Programming Guide, "Constant memory"). These many outputs are few enough.
WARP_BYTES, WARP_OUTPUTS = 32 * VECTOR, 4
# Narrow outputs among wide ones are not worth a launch of their own below this share of the bytes.
NARROW_SHARE = 1 / 16
# Registers that a thread of `deinterleave` can spare for its input.
DEINTERLEAVE_BYTES = 128


def row_launches(
    split: RowSplit, source: int, target: int, common: list[Constant], most: int
) -> Iterator[KernelLaunch]:
    """Yield launches for a packed split; parameters as in `box_plans.box_launches`."""
    places = [i for i, width in enumerate(split.widths) if width]
    columns = Columns(
        split.rows, split.pitch, tuple(range(len(split.widths))), split.offsets, split.widths
    ).take(places)
    aligned = min(source, target) == VECTOR
    unit = power_of_two(
        VECTOR, *columns.widths, columns.first_byte, split.pitch if split.rows > 1 else VECTOR
    )
    if aligned and unit == VECTOR and not _is_crowded(columns):
        yield from _each(columns, most, lambda part: _vector(part, common))
    elif aligned and _is_interleaved(columns):
        yield _deinterleave(columns, common)
    elif takes_whole_rows(columns) and len(places) <= most and split.rows > 1:
        yield tile(columns, source, target, common)
    elif _narrow_bytes(columns) <= NARROW_SHARE * columns.row_bytes:
        yield from _each(columns, most, lambda part: _shift(part, common))
    else:
        least = _wide_bytes(columns)
        wide = [i for i, width in enumerate(columns.widths) if width >= least]
        narrow = [i for i, width in enumerate(columns.widths) if width < least]
        if wide:
            yield from _each(columns.take(wide), most, lambda part: _shift(part, common))
        yield from _each(
            columns.take(narrow), most, lambda part: tile(part, source, target, common)
        )


def _wide_bytes(columns: Columns) -> int:
    """Return the least width at which an output is better off outside shared memory."""
    return max(WIDE_BYTES, BLOCK_BYTES // columns.rows)


def _is_crowded(columns: Columns) -> bool:
    """Whether a warp's share of a row lies in too many outputs, all of them narrow."""
    outputs = min(len(columns.outputs), len(columns.outputs) * WARP_BYTES / columns.row_bytes)
    is_narrow = max(columns.widths) < WIDE_BYTES and columns.rows >= TILE_ROWS
    return is_narrow and outputs > WARP_OUTPUTS


def _narrow_bytes(columns: Columns) -> int:
    least = _wide_bytes(columns)
    return sum(width for width in columns.widths if width < least)


def _each(
    columns: Columns, most: int, make: Callable[[Columns], KernelLaunch]
) -> Iterator[KernelLaunch]:
    """Yield one launch for as many outputs as parameters and constant memory hold."""
    count = len(columns.outputs)
    for first in range(0, count, most):
        part = columns.take(range(first, min(first + most, count)))
        launch = make(part)
        if launch.constant_bytes <= CONSTANT_BYTES:
            yield launch
        else:
            yield from _each(part, blocks(len(part.outputs), 2), make)


def _vector(columns: Columns, common: list[Constant]) -> KernelLaunch:
    row_vectors = columns.row_bytes // VECTOR
    index = index_type(row_vectors + THREADS * LOADS)
    starts = tuple(start // VECTOR for start in columns.starts)
    return row_launch(
        "vector",
        columns,
        [
            *common,
            Constant("int", "kLoads", LOADS),
            Constant("using", "Column", index),
            Constant(WIDE, "kRows", columns.rows),
            Constant(WIDE, "kPitch", columns.pitch),
            Constant(WIDE, "kFirstByte", columns.first_byte),
            Constant("Column", "kRowVectors", row_vectors),
            Constant("Column", "kEqualVectors", columns.equal_width // VECTOR),
            Constant("Column", "kStarts", starts),
        ],
        blocks(columns.rows * row_vectors, THREADS * LOADS),
        in_flight=LOADS * VECTOR,
        reason="every width, offset and address is a multiple of 16 bytes",
    )


def _is_interleaved(columns: Columns) -> bool:
    width, count = columns.equal_width, len(columns.outputs)
    return (
        width in (1, 2, 4, 8)
        and 2 <= count <= DEINTERLEAVE_BYTES // VECTOR
        and columns.row_bytes == columns.pitch
        and columns.first_byte == 0
        and columns.rows >= VECTOR
    )


def _deinterleave(columns: Columns, common: list[Constant]) -> KernelLaunch:
    width = columns.equal_width
    groups = columns.rows // (VECTOR // width)
    return row_launch(
        "deinterleave",
        columns,
        [*common, Constant(WIDE, "kRows", columns.rows), Constant("int", "kWidth", width)],
        max(1, blocks(groups, THREADS)),
        in_flight=len(columns.outputs) * VECTOR,
        reason=f"rows of {len(columns.outputs)} elements of {width} bytes fit in registers",
    )


def _shift(columns: Columns, common: list[Constant]) -> KernelLaunch:
    widest, narrowest = max(columns.widths), min(columns.widths)
    rows = min(columns.rows, -(-BLOCK_BYTES // narrowest))
    if rows * widest >= 2**31:
        rows = 1
    # A chunk of an output spans at most two vectors more than its bytes fill.
    vectors = [rows * width // VECTOR + 2 for width in columns.widths]
    tiles = [blocks(count, THREADS * LOADS) for count in vectors]
    shares = tuple(blocks(count, tile) for count, tile in zip(vectors, tiles, strict=True))
    span = index_type(rows * widest + VECTOR)
    chunk_tiles = sum(tiles)
    return row_launch(
        "shift",
        columns,
        [
            *common,
            Constant("int", "kLoads", LOADS),
            Constant("using", "Span", span),
            Constant(WIDE, "kRows", columns.rows),
            Constant(WIDE, "kPitch", columns.pitch),
            Constant(WIDE, "kChunkRows", rows),
            Constant("unsigned", "kChunkTiles", chunk_tiles),
            Constant("unsigned", "kTileStarts", (0, *accumulate(tiles))),
            Constant("unsigned", "kShares", shares),
            Constant("Span", "kWidths", columns.widths),
            Constant(index_type(columns.offsets[-1]), "kOffsets", columns.offsets),
        ],
        blocks(columns.rows, rows) * chunk_tiles,
        in_flight=LOADS * VECTOR,
        reason="wide outputs, at any alignment",
    )
