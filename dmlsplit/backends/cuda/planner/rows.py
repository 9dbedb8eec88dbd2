"""Plans for `rows`, the kernel of wide outputs, to which a split's columns are arguments.

=======  =====================================================================================
chunk    consecutive rows; blocks copy all outputs of one before those of the next (cuda/rows.cu)
tile     the bytes of an output in a chunk that a block copies
round    the vectors that all threads of a block load before they store any; a tile has several
entry    of the kernel's tables: an output, or all outputs if they are equal
=======  =====================================================================================
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from math import ceil
from typing import NamedTuple

import numpy as np

from dmlsplit.backends.cuda.launch import (
    IN_FLIGHT_BYTES,
    LOADS,
    VECTOR,
    Assumptions,
    DeviceLimits,
    KernelLaunch,
    even_parts,
    outputs_within,
)
from dmlsplit.backends.cuda.occupancy import resident_blocks
from dmlsplit.backends.cuda.planner.estimates import FEW_OUTPUTS
from dmlsplit.backends.cuda.planner.times import Blocks, launch_time
from dmlsplit.backends.cuda.specialization import (
    COUNT_64,
    DIVISOR,
    POINTER_BYTES,
    THREADS,
    UNUSED_TILE,
    Argument,
    capacity,
    divisor,
    divisors,
    index_type,
    padded_table,
    specialize,
)
from dmlsplit.geometry import RowSplit, ceil_div, indices


class Block(NamedTuple):
    """The threads of a block, and the rounds in which each of them copies `LOADS` vectors."""

    threads: int
    rounds: int

    @property
    def tile_bytes(self) -> int:
        """The bytes of a tile."""
        return self.threads * self.rounds * LOADS * VECTOR


# Candidates, those with the largest tiles first. A block finds its output once for all rounds, but
# waits for memory in each of them.
BLOCKS = Block(256, 4), Block(256, 2), Block(128, 2), Block(64, 2), Block(64, 1)
# The planner takes the first candidate whose time is at most this many times the best one: an
# estimate.
NEAR_BEST = 1.01
# The most registers of a thread, by whether memory is aligned. Of blocks of THREADS, six fit an SM
# with 40 registers, and four with 64.
THREAD_REGISTERS = {True: 40, False: 64}
# The clocks of the busiest unit of an SM for 512 bytes: its L1 cache, or the ALU, which shifts.
UNIT_CLOCKS = {True: 8, False: 12}
# A chunk of several rows has half to all of the bytes that as many SMs of an H200 have in flight,
# or more if two rows have more. Blocks thus copy its outputs at about the same time, while sectors
# that outputs share are in the L2 cache.
SM_CHUNK_BYTES = IN_FLIGHT_BYTES
# The division of common.cuh takes numbers below 2^31. Threads without a vector calculate positions,
# too, up to a tile after the end of a chunk.
MAX_CHUNK_BYTES = 1 << 30
# Chunks of a single row need fewer instructions. The planner therefore multiplies the number of
# their tiles by this estimate.
ONE_ROW_WEIGHT = 0.97
# About how many other numbers of rows the planner tries.
ROW_CHOICES = 16


class Columns(NamedTuple):
    """What selects a specialization for outputs, besides whether a chunk is a single row."""

    is_aligned: bool  # whether widths, offsets, addresses and the pitch are multiples of 16 bytes
    is_equal: bool  # whether outputs are equal and contiguous in the input: they share an entry
    table_type: str  # of their offsets and widths, if they do not

    def capacity(self, limits: DeviceLimits) -> int:
        """The outputs that fit the parameters of a launch."""
        index_bytes = 4 if self.table_type == "unsigned" else 8
        # The offset and the width, their divisor, and the first tile.
        entry_bytes = 0 if self.is_equal else 2 * index_bytes + 8 + 4
        return outputs_within(limits, POINTER_BYTES + entry_bytes)


class Chunks(NamedTuple):
    """How rows and outputs are distributed over blocks."""

    block: Block
    rows: int  # of a chunk
    is_one_row: bool  # kOneRow: whether a chunk is compiled as a single row
    output_tiles: list[int]  # of each output in a chunk
    tiles: int  # of a chunk: their sum
    grid: int  # tiles of all chunks

    @property
    def position_type(self) -> str:
        """The C++ type of positions in a chunk, of which a single row may have any number."""
        return COUNT_64 if self.is_one_row else "unsigned"


def rows_launches(
    split: RowSplit, assumptions: Assumptions, is_aligned: bool
) -> Iterator[KernelLaunch]:
    """Launches with as many outputs each as the parameters can hold.

    `is_aligned`: all widths, offsets, addresses and the pitch are multiples of 16 bytes.
    """
    count = len(split.outputs)
    # Along axis 0, outputs may be equal by chance, because empty ones are left out.
    may_be_equal = split.rows > 1 or count == assumptions.output_count
    is_equal = may_be_equal and count > FEW_OUTPUTS and _are_equal(split)
    table_type = index_type(max(split.offsets[-1], *split.widths))
    columns = Columns(is_aligned, is_equal, table_type)
    for part in even_parts(indices(count), columns.capacity(assumptions.limits)):
        yield _launch_with_sibling(split.take(part), assumptions, columns)


def _are_equal(split: RowSplit) -> bool:
    """Whether outputs are equal and contiguous in the input, so that they can share an entry."""
    width = split.equal_width
    first, *_, last = split.offsets
    return width > 0 and last - first == width * (len(split.outputs) - 1)


def _launch_with_sibling(
    split: RowSplit, assumptions: Assumptions, columns: Columns
) -> KernelLaunch:
    """The launch for outputs that fit its parameters, and its sibling for chunks of other rows.

    Some sizes of a split have chunks of one row, and others of several, so both are compiled.
    """
    chunks = _best_chunks(split, assumptions.limits, columns)
    if split.rows == 1 or split.pitch >= MAX_CHUNK_BYTES:
        return _launch(split, assumptions, columns, chunks)

    def siblings() -> Sequence[KernelLaunch]:
        other = chunks._replace(is_one_row=not chunks.is_one_row)
        return [_launch(split, assumptions, columns, other)]

    return _launch(split, assumptions, columns, chunks, siblings)


def _best_chunks(split: RowSplit, limits: DeviceLimits, columns: Columns) -> Chunks:
    """The chunks and blocks that take the least time."""
    row_choices = _row_choices(split, limits)
    chunk_bytes = row_choices[len(row_choices) // 2] * split.row_bytes
    work = split.total_bytes, chunk_bytes, len(split.outputs)
    return _chunks(split, row_choices, _best_block(*work, limits, columns.is_aligned))


# Cached, because new sizes often divide the same bytes among the same number of outputs.
@lru_cache(maxsize=1024)
def _best_block(
    total_bytes: int, chunk_bytes: int, outputs: int, limits: DeviceLimits, is_aligned: bool
) -> Block:
    """The block with the largest tiles that takes about the least time.

    The last tile of each output in a chunk is taken to be half full, the average.
    """
    registers = THREAD_REGISTERS[is_aligned]
    last_tiles = outputs * total_bytes / chunk_bytes
    times = []
    for block in BLOCKS:
        grid = ceil(total_bytes / block.tile_bytes + last_tiles / 2)
        round_bytes = total_bytes / grid / block.rounds
        resident = resident_blocks(limits, block.threads, registers)
        blocks = Blocks(grid, resident, round_bytes, block.rounds)
        times.append(launch_time(limits, total_bytes, blocks, UNIT_CLOCKS[is_aligned]))
    most = NEAR_BEST * min(times)
    return next(block for block, time in zip(BLOCKS, times, strict=True) if time <= most)


def _row_choices(split: RowSplit, limits: DeviceLimits) -> list[int]:
    """The rows that a chunk may have: a single row, or so many that SMs copy them together."""
    if split.rows == 1 or (largest := max(max(split.widths), split.pitch)) >= MAX_CHUNK_BYTES:
        return [1]
    limit = min(split.rows, (MAX_CHUNK_BYTES - 1) // largest)
    min_rows = min(limit, ceil_div(limits.sm_count * SM_CHUNK_BYTES // 2, split.pitch))
    step = ceil_div(min_rows, ROW_CHOICES)
    return [1, *range(min_rows, min(limit, 2 * min_rows) + 1, step)]


def _chunks(split: RowSplit, row_choices: Sequence[int], block: Block) -> Chunks:
    """The chunks with the fewest tiles."""
    choice = 0
    if len(row_choices) > 1:
        chunk_bytes = np.multiply.outer(row_choices, np.array(split.widths, np.int64))
        chunk_tiles = -(-chunk_bytes // block.tile_bytes).sum(axis=1)
        grids = -(-split.rows // np.array(row_choices)) * chunk_tiles
        if grids.min() < ONE_ROW_WEIGHT * grids[0]:
            choice = int(grids.argmin())
    rows = row_choices[choice]
    output_tiles = [ceil_div(rows * width, block.tile_bytes) for width in split.widths]
    tiles = sum(output_tiles)
    return Chunks(block, rows, choice == 0, output_tiles, tiles, ceil_div(split.rows, rows) * tiles)


def _launch(
    split: RowSplit,
    assumptions: Assumptions,
    columns: Columns,
    chunks: Chunks,
    siblings: Callable[[], Sequence[KernelLaunch]] = tuple,
) -> KernelLaunch:
    """The launch for outputs that fit its parameters, in these chunks."""
    slots = _slots(split, assumptions, columns)
    registers = THREAD_REGISTERS[columns.is_aligned]
    resident = resident_blocks(assumptions.limits, THREADS, registers)
    arguments = [*_numbers(split, chunks), *_tables(split, columns, chunks, slots)]
    return KernelLaunch(
        *specialize("rows", slots, resident, _constants(columns, chunks), arguments),
        outputs=split.outputs,
        total_bytes=split.total_bytes,
        is_streaming=assumptions.is_streaming,
        grid=chunks.grid,
        bytes_in_flight=LOADS * VECTOR,
        reason=_reason(split, columns),
        threads=chunks.block.threads,
        siblings=siblings,
    )


def _slots(split: RowSplit, assumptions: Assumptions, columns: Columns) -> int:
    """The outputs that the parameters have room for."""
    count = len(split.outputs)
    if split.rows == 1:
        # In a mixture of experts, other outputs are empty in each call; there is room for all.
        count = max(count, assumptions.output_count)
    return min(columns.capacity(assumptions.limits), capacity(count))


def _constants(columns: Columns, chunks: Chunks) -> tuple[Argument, ...]:
    """The constants of a launch, which select its specialization."""
    return (
        ("int", "kLoads", LOADS),
        ("bool", "kAligned", int(columns.is_aligned)),
        ("bool", "kOneRow", int(chunks.is_one_row)),
        ("bool", "kEqual", int(columns.is_equal)),
        ("using", "Position", chunks.position_type),
    )


def _numbers(split: RowSplit, chunks: Chunks) -> Iterator[Argument]:
    """The arguments about rows and chunks."""
    rows, pitch, *_ = split
    last_chunk = ceil_div(rows, chunks.rows) - 1
    yield chunks.position_type, "pitch", pitch
    yield chunks.position_type, "chunk_pitch", pitch * chunks.rows
    yield DIVISOR, "by_chunk_tiles", divisor(chunks.tiles)
    yield "unsigned", "tile_bytes", chunks.block.tile_bytes
    yield "unsigned", "chunk_tiles", chunks.tiles
    yield "unsigned", "chunk_rows", chunks.rows
    yield "unsigned", "last_chunk", last_chunk
    yield "unsigned", "last_rows", rows - last_chunk * chunks.rows


def _reason(split: RowSplit, columns: Columns) -> str:
    """Why outputs are copied by `rows`, in one line."""
    outputs = "a single row" if split.rows == 1 else "wide outputs"
    aligned = "aligned" if columns.is_aligned else "not aligned"
    return f"{outputs}, {aligned} to {VECTOR} bytes"


def _tables(split: RowSplit, columns: Columns, chunks: Chunks, slots: int) -> Iterator[Argument]:
    """The tables of outputs, which have a single entry if all outputs are equal."""
    if columns.is_equal:
        type_ = chunks.position_type
        offsets = split.offsets[:1]
        widths = split.widths[:1]
        output_tiles = chunks.output_tiles[0]
        yield DIVISOR, "by_output_tiles", divisor(output_tiles)
        yield "unsigned", "output_tiles", output_tiles
        slots = 1
    else:
        type_ = columns.table_type
        offsets = split.offsets
        widths = split.widths
        starts = accumulate(chunks.output_tiles[:-1], initial=0)
        yield "unsigned", "tile_starts", padded_table(starts, slots, UNUSED_TILE)
    yield type_, "offsets", padded_table(offsets, slots, 0)
    yield type_, "widths", padded_table(widths, slots, 0)
    # The width of a single row may be too large for a divisor.
    if not chunks.is_one_row:
        yield DIVISOR, "by_width", padded_table(divisors(widths), slots, divisor(1))
