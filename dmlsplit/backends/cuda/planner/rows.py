"""Plans for `rows`, the kernel of wide outputs, to which a split's columns are arguments."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from math import ceil, inf
from typing import Any, NamedTuple

import numpy as np

from dmlsplit.backends.cuda.launch import (
    COUNT_64,
    DIVISOR,
    IN_FLIGHT_BYTES,
    LOADS,
    POINTER_BYTES,
    THREADS,
    UNUSED_TILE,
    VECTOR,
    Assumptions,
    DeviceLimits,
    KernelLaunch,
    TypedValue,
    capacity,
    divisor,
    divisors,
    index_type,
    padded_table,
    specialize,
)
from dmlsplit.backends.cuda.occupancy import resident_blocks, tail_bytes
from dmlsplit.geometry import RowSplit, ceil_div

# The narrowest output for `rows`, unless there is a single row: a vector may extend into the next
# row of an output, but no further.
MIN_WIDTH = VECTOR
# For more equal outputs than this, a block finds its output by a division. For fewer, searching the
# tables is about as fast (an estimate), and needs no other specialization. With short rows, a block
# divides if there are two equal outputs or more.
FEW_OUTPUTS = 16
# Candidates: the threads of a block, and the rounds in which each thread copies `LOADS` vectors. A
# block finds its output once for all rounds, but waits for memory in each of them.
BLOCKS: tuple[tuple[int, int], ...] = (256, 4), (256, 2), (128, 2), (64, 2), (64, 1)
# The most registers of a thread, by whether memory is aligned. Of blocks of THREADS, six fit an SM
# with 40 registers, and four with 64.
THREAD_REGISTERS = {True: 40, False: 64}
# Rows are short if they fit a slot of at most 32 vectors in shared memory. A slot has room for a
# row at any phase (15 bytes more) and the word after it (4), rounded up (15), as in rows.cu.
SLOT_MORE = 15 + 4 + 15
MAX_SHORT = 33 * VECTOR - SLOT_MORE - 1
# In a round, a thread has at most one vector per load, and a load of the block an even number of
# rows. In smaller blocks, more threads would have no vector; larger blocks would wait longer.
SHORT_LOADS, SHORT_THREADS = 2 * LOADS, THREADS // 2
SHORT_BLOCKS = tuple((SHORT_THREADS, rounds) for rounds in (4, 2, 1))
# 4 / 3: the narrowest rows have slots of 3 vectors and a spare one. 64: a margin. Whatever the
# width, slots take at most 1,344 of these 1,429 vectors.
SHORT_BYTES = (SHORT_THREADS * SHORT_LOADS * 4 // 3 + 64) * VECTOR
# By (is_aligned, is_short): two costs, if a plain copy of the same bytes takes 1. The first is that
# of the instructions that copy, beyond the plain copy's; the second that of the instructions that
# set up a block, if it has one round. An instruction or a sector costs 1 / 470 for the 512 bytes of
# a warp (layouts.INSTRUCTION_TIME). The comments have their numbers, which are estimates from
# counts by `python -m tests.counts.model`.
INSTRUCTION_TIMES = {
    (True, False): (-1 / 66, 1 / 30),  # 7 fewer than a plain copy; 16
    (False, False): (1 / 14, 1 / 14),  # 34 more; 34
    (False, True): (1 / 11, 1 / 40),  # 43 more; 12
}
# The planner stops at the first candidate that takes at most CHEAP_RATIO times as long as its bytes
# and their instructions would without set-up and waiting. Each later candidate, with smaller tiles,
# must save MIN_GAIN of the time of the best so far. Both are estimates.
CHEAP_RATIO, MIN_GAIN = 1.03, 0.01
# Python counts tiles faster than NumPy for up to this many pairs of an output and a number of rows.
MAX_IN_PYTHON = 32
# A chunk of several rows has half to all of the bytes that as many SMs of an H200 have in flight,
# or more if two rows, or the rows of the largest tile of short rows, have more. Blocks thus copy
# its outputs at about the same time, while sectors that outputs share are in the L2 cache.
SM_CHUNK_BYTES = IN_FLIGHT_BYTES
# The division of common.cuh takes numbers below 2^31. Threads without a vector calculate positions,
# too, up to a tile after the end of a chunk.
MAX_CHUNK_BYTES = 1 << 30
# Chunks of a single row need fewer instructions. The planner therefore multiplies the number of
# their tiles by ONE_ROW_WEIGHT, an estimate. It tries about ROW_CHOICES other numbers of rows.
ONE_ROW_WEIGHT = 0.97
ROW_CHOICES = 16
# The most bytes of parameters outside tables: the input's address, pitches, divisors, numbers of
# rows and tiles. From them the planner calculates how many outputs fit a launch. `launches_within`
# would plan a split of too many outputs once more for every halving, while a call with new sizes
# waits.
NUMBERS_BYTES = 96


def rows_launches(
    split: RowSplit, assumptions: Assumptions, is_aligned: bool
) -> Iterator[KernelLaunch]:
    """Launches with as many outputs each as the parameters can hold.

    `is_aligned`: all widths, offsets, addresses and the pitch are multiples of 16 bytes.
    """
    count = len(split.outputs)
    is_short = not is_aligned and split.rows > 1 and max(split.widths) <= MAX_SHORT
    is_short = is_short and split.pitch < MAX_CHUNK_BYTES
    # Along axis 0, outputs may be equal by chance, because empty ones are left out.
    is_equal = split.rows > 1 or count == assumptions.output_count
    is_equal = is_equal and count > (1 if is_short else FEW_OUTPUTS) and _are_equal(split)
    table_type = index_type(max(split.offsets[-1], *split.widths))
    mode = _mode(is_aligned, is_short, is_equal, table_type, assumptions.limits.parameter_bytes)
    step = ceil_div(count, ceil_div(count, mode.capacity))
    for first in range(0, count, step):
        part = split if step == count else split.take(range(first, min(first + step, count)))
        yield _launch(part, assumptions, mode, _chunks(part, assumptions.limits, mode))


class _Mode(NamedTuple):
    """What selects a specialization for some outputs, besides the number of rows."""

    is_aligned: bool
    is_short: bool  # whether rows are short; chunks of one row are copied as wide ones
    is_equal: bool
    table_type: str  # of the offsets and widths in tables, if there is one for each output
    capacity: int  # outputs that fit a launch


@lru_cache
def _mode(aligned: bool, short: bool, equal: bool, table_type: str, parameter_bytes: int) -> _Mode:
    entry_bytes = 4 if table_type == "unsigned" else 8
    tables_bytes = 0 if equal else 2 * entry_bytes + 8 + 4 + 8 * short  # as in `_tables`
    outputs = (parameter_bytes - NUMBERS_BYTES) // (POINTER_BYTES + tables_bytes)
    return _Mode(aligned, short, equal, table_type, outputs)


class _Chunks(NamedTuple):
    """How rows and outputs are distributed over blocks."""

    threads: int  # of a block
    tile_bytes: int
    rows: int  # of a chunk
    is_one_row: bool  # kOneRow
    tiles: list[int]  # of each output in a chunk
    chunk_tiles: int  # their sum
    grid: int  # tiles of all chunks


def _launch(
    split: RowSplit, assumptions: Assumptions, mode: _Mode, chunks: _Chunks
) -> KernelLaunch:
    rows, pitch, outputs, *_ = split
    is_one_row, limits = chunks.is_one_row, assumptions.limits
    is_short = mode.is_short and not is_one_row
    # In a mixture of experts, other outputs are empty in each call; there is room for all of them.
    count = max(len(outputs), assumptions.output_count) if rows == 1 else len(outputs)
    slots, loads = min(mode.capacity, capacity(count)), SHORT_LOADS if is_short else LOADS
    position_type, last = COUNT_64 if is_one_row else "unsigned", ceil_div(rows, chunks.rows) - 1
    constants = (
        TypedValue("int", "kLoads", loads),
        TypedValue("bool", "kAligned", int(mode.is_aligned)),
        TypedValue("bool", "kShort", int(is_short)),
        TypedValue("bool", "kOneRow", int(is_one_row)),
        TypedValue("bool", "kEqual", int(mode.is_equal)),
        TypedValue("using", "Position", position_type),
    )
    arguments = [
        TypedValue(position_type, "pitch", pitch),
        TypedValue(position_type, "chunk_pitch", pitch * chunks.rows),
        TypedValue(DIVISOR, "by_chunk_tiles", divisor(chunks.chunk_tiles)),
        TypedValue("unsigned", "tile_bytes", chunks.tile_bytes),
        TypedValue("unsigned", "chunk_tiles", chunks.chunk_tiles),
        TypedValue("unsigned", "chunk_rows", chunks.rows),
        TypedValue("unsigned", "last_chunk", last),
        TypedValue("unsigned", "last_rows", rows - last * chunks.rows),
        *_tables(split, chunks, mode, slots, position_type),
    ]
    resident = resident_blocks(limits, THREADS, THREAD_REGISTERS[mode.is_aligned])
    rows_text = "a single row" if rows == 1 else "wide outputs"
    launch = KernelLaunch(
        *specialize("rows", slots, resident, constants, arguments),
        outputs,
        split.total_bytes,
        assumptions.is_streaming,
        chunks.grid,
        bytes_in_flight=loads * VECTOR,
        reason=f"{rows_text}, {'not ' * (not mode.is_aligned)}aligned to {VECTOR} bytes",
        shared_bytes=SHORT_BYTES * is_short,
        threads=chunks.threads,
    )
    if rows == 1 or pitch >= MAX_CHUNK_BYTES:
        return launch
    other = chunks._replace(is_one_row=not is_one_row)
    return launch._replace(siblings=lambda: [_launch(split, assumptions, mode, other)])


def _tables(
    split: RowSplit, chunks: _Chunks, mode: _Mode, slots: int, position_type: str
) -> Iterator[TypedValue]:
    """The tables of outputs. Outputs that are equal and contiguous in the input share an entry."""
    table_type, entries = position_type if mode.is_equal else mode.table_type, slots
    widths, offsets = split.widths, split.offsets
    if mode.is_equal:
        entries, widths, offsets, output_tiles = 1, widths[:1], offsets[:1], chunks.tiles[0]
        yield TypedValue(DIVISOR, "by_output_tiles", divisor(output_tiles))
        yield TypedValue("unsigned", "output_tiles", output_tiles)
    else:
        starts = accumulate(chunks.tiles[:-1], initial=0)
        yield TypedValue("unsigned", "tile_starts", padded_table(starts, slots, UNUSED_TILE))
    yield TypedValue(table_type, "offsets", padded_table(offsets, entries, 0))
    yield TypedValue(table_type, "widths", padded_table(widths, entries, 0))
    # The width of a single row may be too large for a divisor.
    if not chunks.is_one_row:
        yield TypedValue(DIVISOR, "by_width", padded_table(divisors(widths), entries, divisor(1)))
        if mode.is_short:
            by_slot = divisors([*map(_slot_vectors, widths)])
            yield TypedValue(DIVISOR, "by_slot", padded_table(by_slot, entries, divisor(1)))


def _are_equal(split: RowSplit) -> bool:
    """Whether outputs are equal and contiguous in the input, so that they can share an entry."""
    width, count, (first, *_, last) = split.equal_width, len(split.widths), split.offsets
    return width > 0 and last - first == width * (count - 1)


def _slot_vectors(width: int) -> int:
    return (width + SLOT_MORE) // VECTOR


def _chunks(split: RowSplit, limits: DeviceLimits, mode: _Mode) -> _Chunks:
    """The chunks and blocks that take the least time."""
    candidates = SHORT_BLOCKS if mode.is_short else BLOCKS
    short_rows = [*map(_short_rows, split.widths)] if mode.is_short else []
    multiple = max(short_rows) * candidates[0][1] if short_rows else 1
    choices = _row_choices(split, limits, multiple)
    amounts = _amounts(split.widths, choices, short_rows)
    row_amount = sum([1 / rows for rows in short_rows]) if short_rows else split.row_bytes
    sm_bytes, best = split.total_bytes / limits.sm_count, inf
    cheap = CHEAP_RATIO * (1 + INSTRUCTION_TIMES[mode[:2]][0]) * sm_bytes
    for threads, rounds in candidates:
        tile_bytes = threads * rounds * (SHORT_LOADS if mode.is_short else LOADS) * VECTOR
        tile_amount = rounds if mode.is_short else tile_bytes
        chunks = _chunked(split.rows, choices, amounts, (threads, tile_bytes), tile_amount)
        fill = split.rows * row_amount / tile_amount / chunks.grid  # used share of the tiles
        cost = _cost(chunks, rounds, fill, sm_bytes, limits, mode)
        if cost < best * (1 - MIN_GAIN):
            best, best_chunks = cost, chunks
        if cost <= cheap:
            break
    return best_chunks


def _short_rows(width: int) -> int:
    """The rows of an output that a block copies in a round."""
    return SHORT_THREADS // _slot_vectors(width) // 2 * (2 * SHORT_LOADS)


def _amounts(widths: Sequence[int], choices: Sequence[int], short_rows: Sequence[int]) -> Any:
    """How much of each output a chunk has, by its rows: in bytes, or in rounds of short rows."""
    # Of numbers below 2^53, a float quotient is whole only if it is exact, so that `ceil` is right.
    if len(choices) * len(widths) > MAX_IN_PYTHON:
        rows = np.array(choices)[:, None]
        return rows / short_rows if short_rows else rows * widths
    if short_rows:
        return [[rows / round_rows for round_rows in short_rows] for rows in choices]
    return [[rows * width for width in widths] for rows in choices]


def _chunked(
    rows: int, choices: Sequence[int], amounts: Any, block: tuple[int, int], tile_amount: int
) -> _Chunks:
    """The chunks that need the fewest tiles; `block` has the threads and the bytes of a tile."""
    if in_python := isinstance(amounts, list):
        tiles: Any = [[ceil(amount / tile_amount) for amount in chunk] for chunk in amounts]
        sums = [*map(sum, tiles)]
    else:
        tiles = np.ceil(amounts / tile_amount).astype(np.int64)
        sums = np.add.reduce(tiles, -1).tolist()
    grids = [-(-rows // n) * count for n, count in zip(choices, sums, strict=True)]
    weights = [ONE_ROW_WEIGHT * grids[0], *grids[1:]]
    choice = weights.index(min(weights))
    chosen = tiles[choice] if in_python else tiles[choice].tolist()
    return _Chunks(*block, choices[choice], choice == 0, chosen, sums[choice], grids[choice])


def _cost(
    chunks: _Chunks, rounds: int, fill: float, sm_bytes: float, limits: DeviceLimits, mode: _Mode
) -> float:
    """The time of a launch, as the bytes that an SM copies in it while memory is busy."""
    shared = SHORT_BYTES * mode.is_short
    resident = resident_blocks(limits, chunks.threads, THREAD_REGISTERS[mode.is_aligned], shared)
    sm_blocks = chunks.grid / limits.sm_count
    # The time if too few bytes are in flight to keep memory busy, as in `layouts`.
    blocks = min(resident, sm_blocks)
    latency_time = limits.in_flight_bytes * rounds / (chunks.tile_bytes * fill * blocks)
    copy_time, setup_time = INSTRUCTION_TIMES[mode[:2]]
    cost = sm_bytes * max(1, latency_time, 1 + copy_time + setup_time / (rounds * fill))
    return cost + (tail_bytes(rounds, latency_time) if sm_blocks > resident else 0)


def _row_choices(split: RowSplit, limits: DeviceLimits, multiple: int) -> list[int]:
    """The rows that a chunk may have: a single row, and multiples of `multiple` if possible."""
    if split.rows == 1 or (largest := max(max(split.widths), split.pitch)) >= MAX_CHUNK_BYTES:
        return [1]
    limit = min(split.rows, (MAX_CHUNK_BYTES - 1) // largest)
    multiple = multiple if multiple <= limit else 1
    half_rows = ceil_div(limits.sm_count * SM_CHUNK_BYTES // 2, split.pitch)
    min_rows = min(limit // multiple, ceil_div(half_rows, multiple)) * multiple
    step = ceil_div(min_rows, ROW_CHOICES * multiple) * multiple
    return [1, *range(min_rows, min(limit, 2 * min_rows) + 1, step)]
