"""Plans for packed splits: rows of bytes, cut at the same columns in every row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import accumulate

from dmlsplit.backends.cuda.launch import (
    CONSTANT_BYTES,
    COUNT_64,
    LOADS,
    THREADS,
    VECTOR,
    Assumptions,
    Constant,
    KernelLaunch,
    blocks,
    index_type,
    power_of_two,
)
from dmlsplit.backends.cuda.planner.columns import Columns
from dmlsplit.backends.cuda.planner.elements import transposed_elements
from dmlsplit.backends.cuda.planner.tiles import TILE_ROWS, takes_whole_rows, tile
from dmlsplit.geometry import RowSplit

BLOCK_BYTES = THREADS * LOADS * VECTOR

# Outputs of at least this width gain from not going through shared memory, if they fill a block:
# in rows of 512 bytes, one vector in 32 holds the end of a row and is copied byte by byte.
WIDE_BYTES = 512
# Lanes of a warp that read different entries of a constant table, such as the outputs' addresses,
# are served one entry after the other (CUDA C++ Programming Guide, "Constant memory"). Up to this
# many outputs per warp cost nothing measurable.
WARP_BYTES, WARP_OUTPUTS = 32 * VECTOR, 4
# Narrow outputs among wide ones are not worth a launch of their own below this share of the bytes:
# `shift` copies them correctly but slowly, and a second launch reads their sectors once more.
NARROW_SHARE = 1 / 16
# Bytes of input for which a thread of `deinterleave` has registers to spare.
DEINTERLEAVE_BYTES = 128


def row_launches(split: RowSplit, assumed: Assumptions) -> Iterator[KernelLaunch]:
    """Yield launches for a packed split, by the first rule of the planner's table that fits."""
    present = [i for i, width in enumerate(split.widths) if width]
    columns = Columns(
        split.rows, split.pitch, tuple(range(len(split.widths))), split.offsets, split.widths
    ).take(present)
    is_aligned = min(assumed.input_alignment, assumed.output_alignment) == VECTOR
    unit = power_of_two(
        VECTOR, *columns.widths, columns.first_byte, split.pitch if split.rows > 1 else VECTOR
    )
    # An output is wide if a launch of `shift` can fill blocks with it.
    least = max(WIDE_BYTES, BLOCK_BYTES // columns.rows)
    narrow = [i for i, width in enumerate(columns.widths) if width < least]
    narrow_bytes = sum(columns.widths[i] for i in narrow)
    if is_aligned and unit == VECTOR and not _is_crowded(columns):
        yield from _each(columns, assumed, _vector)
    elif is_aligned and _is_interleaved(columns):
        yield _deinterleave(columns, assumed)
    elif (squares := transposed_elements(columns, assumed)) is not None:
        yield squares
    elif takes_whole_rows(columns) and len(present) <= assumed.most_outputs and split.rows > 1:
        yield tile(columns, assumed)
    elif narrow_bytes <= NARROW_SHARE * columns.row_bytes:
        yield from _each(columns, assumed, _shift)
    else:
        wide = [i for i, width in enumerate(columns.widths) if width >= least]
        yield from _each(columns.take(wide), assumed, _shift)
        yield from _each(columns.take(narrow), assumed, tile)


def _is_crowded(columns: Columns) -> bool:
    """Whether outputs are narrow, and what a warp reads belongs to too many of them."""
    outputs = min(len(columns.outputs), len(columns.outputs) * WARP_BYTES / columns.row_bytes)
    is_narrow = max(columns.widths) < WIDE_BYTES and columns.rows >= TILE_ROWS
    return is_narrow and outputs > WARP_OUTPUTS


def _each(
    columns: Columns, assumed: Assumptions, make: Callable[[Columns, Assumptions], KernelLaunch]
) -> Iterator[KernelLaunch]:
    """Yield launches of as many outputs each as parameters and constant memory hold."""
    count, most = len(columns.outputs), assumed.most_outputs
    for first in range(0, count, most):
        part = columns.take(range(first, min(first + most, count)))
        launch = make(part, assumed)
        if launch.constant_bytes <= CONSTANT_BYTES:
            yield launch
        else:
            # Tables grow with the outputs, by a factor that depends on the kernel: try half.
            half = blocks(len(part.outputs), 2)
            yield from _each(part, replace(assumed, most_outputs=half), make)


def _vector(columns: Columns, assumed: Assumptions) -> KernelLaunch:
    row_vectors = columns.row_bytes // VECTOR
    index = index_type(row_vectors + THREADS * LOADS)
    starts = tuple(start // VECTOR for start in columns.starts)
    return KernelLaunch(
        "vector",
        columns.outputs,
        columns.total_bytes,
        assumed,
        (
            Constant("int", "kLoads", LOADS),
            Constant("using", "Column", index),
            Constant(COUNT_64, "kPitch", columns.pitch),
            Constant(COUNT_64, "kFirstByte", columns.first_byte),
            Constant("Column", "kRowVectors", row_vectors),
            Constant("Column", "kEqualVectors", columns.equal_width // VECTOR),
            Constant("Column", "kStarts", starts),
        ),
        blocks(columns.rows * row_vectors, THREADS * LOADS),
        bytes_in_flight=LOADS * VECTOR,
        reason="every width, offset and address is a multiple of 16 bytes",
        arguments=(columns.row_count,),
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


def _deinterleave(columns: Columns, assumed: Assumptions) -> KernelLaunch:
    width = columns.equal_width
    groups = columns.rows // (VECTOR // width)
    return KernelLaunch(
        "deinterleave",
        columns.outputs,
        columns.total_bytes,
        assumed,
        (Constant("int", "kWidth", width),),
        max(1, blocks(groups, THREADS)),
        bytes_in_flight=len(columns.outputs) * VECTOR,
        reason=f"rows of {len(columns.outputs)} elements of {width} bytes fit in registers",
        arguments=(columns.row_count,),
    )


def _shift(columns: Columns, assumed: Assumptions) -> KernelLaunch:
    widest, narrowest = max(columns.widths), min(columns.widths)
    # A chunk has enough rows to fill a block with the narrowest output, but fits 32-bit indices.
    rows = min(columns.rows, blocks(BLOCK_BYTES, narrowest))
    if rows * widest >= 2**31:
        rows = 1
    # The bytes of a chunk reach at most two vectors more than they fill, one at each end.
    vectors = [rows * width // VECTOR + 2 for width in columns.widths]
    tiles = [blocks(count, THREADS * LOADS) for count in vectors]
    shares = tuple(blocks(count, tile) for count, tile in zip(vectors, tiles, strict=True))
    span = index_type(rows * widest + VECTOR)
    chunk_tiles = sum(tiles)
    return KernelLaunch(
        "shift",
        columns.outputs,
        columns.total_bytes,
        assumed,
        (
            Constant("int", "kLoads", LOADS),
            Constant("using", "Span", span),
            Constant(COUNT_64, "kPitch", columns.pitch),
            Constant(COUNT_64, "kChunkRows", rows),
            Constant("unsigned", "kChunkTiles", chunk_tiles),
            Constant("unsigned", "kTileStarts", (0, *accumulate(tiles))),
            Constant("unsigned", "kShares", shares),
            Constant("Span", "kWidths", columns.widths),
            Constant(index_type(columns.offsets[-1]), "kOffsets", columns.offsets),
        ),
        blocks(columns.rows, rows) * chunk_tiles,
        bytes_in_flight=LOADS * VECTOR,
        reason="wide outputs, at any alignment",
        arguments=(columns.row_count,),
    )
