"""Plans for packed splits: rows of bytes, cut at the same columns in every row."""

from collections.abc import Iterator
from math import gcd

from dmlsplit.backends.cuda.launch import (
    THREADS,
    VECTOR,
    Assumptions,
    Constant,
    KernelLaunch,
    blocks,
)
from dmlsplit.backends.cuda.planner.columns import Columns
from dmlsplit.backends.cuda.planner.elements import transposed_elements
from dmlsplit.backends.cuda.planner.layouts import TILE_ROWS, takes_whole_rows
from dmlsplit.backends.cuda.planner.tiles import tile_launches
from dmlsplit.backends.cuda.planner.wide import LEAST_WIDTH, wide_launches
from dmlsplit.geometry import RowSplit

# Outputs of at least this width gain from not going through shared memory: in rows of 512 bytes,
# one vector in 32 holds the end of a row and is copied apart.
WIDE_BYTES = 512
# Lanes of a warp that look up different entries of a table of the parameters are served one entry
# after the other (CUDA C++ Programming Guide, "Constant memory"), and read as many pieces of input
# far from each other. This many outputs per warp are few.
WARP_BYTES, WARP_OUTPUTS = 32 * VECTOR, 4
# Narrow outputs among wide ones are not worth a launch of their own below this share of the bytes:
# it would read their sectors once more.
NARROW_SHARE = 1 / 16
# Bytes of input for which a thread of `deinterleave` has registers to spare.
DEINTERLEAVE_BYTES = 128


def row_launches(split: RowSplit, assumed: Assumptions) -> Iterator[KernelLaunch]:
    """Launches for a packed split, by the first rule of the planner's table that fits."""
    present = [i for i, width in enumerate(split.widths) if width]
    columns = Columns(
        split.rows, split.pitch, tuple(range(len(split.widths))), split.offsets, split.widths
    ).take(present)
    unit = gcd(
        VECTOR, *columns.widths, columns.first_byte, split.pitch if split.rows > 1 else VECTOR
    )
    has_aligned_memory = min(assumed.input_alignment, assumed.output_alignment) == VECTOR
    if has_aligned_memory and unit == VECTOR and not _is_crowded(columns):
        yield from wide_launches(columns, assumed, is_aligned=True)
    elif has_aligned_memory and _is_interleaved(columns):
        yield _deinterleave(columns, assumed)
    elif (squares := transposed_elements(columns, assumed)) is not None:
        yield squares
    elif takes_whole_rows(columns) and len(present) <= assumed.most_outputs and split.rows > 1:
        yield from tile_launches(columns, assumed)
    else:
        yield from _by_width(columns, assumed)


def _by_width(columns: Columns, assumed: Assumptions) -> Iterator[KernelLaunch]:
    """Launches for wide and narrow outputs apart."""
    narrow = [i for i, width in enumerate(columns.widths) if width < WIDE_BYTES]
    if sum(columns.widths[i] for i in narrow) <= NARROW_SHARE * columns.row_bytes:
        least = 1 if columns.rows == 1 else LEAST_WIDTH
        narrow = [i for i in narrow if columns.widths[i] < least]
    wide = sorted(set(range(len(columns.outputs))).difference(narrow))
    if wide:
        yield from wide_launches(columns.take(wide), assumed, is_aligned=False)
    if narrow:
        yield from tile_launches(columns.take(narrow), assumed)


def _is_crowded(columns: Columns) -> bool:
    """Whether outputs are narrow, and what a warp reads belongs to too many of them."""
    outputs = min(len(columns.outputs), len(columns.outputs) * WARP_BYTES / columns.row_bytes)
    is_narrow = max(columns.widths) < WIDE_BYTES and columns.rows >= TILE_ROWS
    return is_narrow and outputs > WARP_OUTPUTS


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
        slots=len(columns.outputs),
        arguments=(columns.row_count,),
    )
