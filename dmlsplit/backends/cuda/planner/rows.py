"""Plans for `rows`, the kernel of wide outputs, to which a split's columns are arguments."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from math import inf
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
from dmlsplit.backends.cuda.planner.estimates import FEW_OUTPUTS
from dmlsplit.geometry import RowSplit, ceil_div

# The narrowest output for `rows`, unless there is a single row: a vector may extend into the next
# row of an output, but no further.
MIN_WIDTH = VECTOR
# Candidates: the threads of a block, and the rounds in which each thread copies `LOADS` vectors. A
# block finds its output once for all rounds, but waits for memory in each of them.
BLOCKS: tuple[tuple[int, int], ...] = (256, 4), (256, 2), (128, 2), (64, 2), (64, 1)
# The most registers of a thread, by whether memory is aligned. Of blocks of THREADS, six fit an SM
# with 40 registers, and four with 64.
THREAD_REGISTERS = {True: 40, False: 64}
# The planner stops at the first candidate that takes at most CHEAP_RATIO times as long as memory
# needs for its bytes. Each later candidate, with smaller tiles, must save MIN_GAIN of the time of
# the best so far. Both are estimates.
CHEAP_RATIO, MIN_GAIN = 1.03, 0.01
# Python counts tiles faster than NumPy for up to this many pairs of an output and a number of rows.
MAX_IN_PYTHON = 32
# A chunk of several rows has half to all of the bytes that as many SMs of an H200 have in flight,
# or more if two rows have more. Blocks thus copy its outputs at about the same time, while sectors
# that outputs share are in the L2 cache.
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
    # Along axis 0, outputs may be equal by chance, because empty ones are left out.
    is_equal = split.rows > 1 or count == assumptions.output_count
    is_equal = is_equal and count > FEW_OUTPUTS and _are_equal(split)
    table_type = index_type(max(split.offsets[-1], *split.widths))
    specialization = _specialization(
        is_aligned, is_equal, table_type, assumptions.limits.parameter_bytes
    )
    step = ceil_div(count, ceil_div(count, specialization.capacity))
    for first in range(0, count, step):
        part = split if step == count else split.take(range(first, min(first + step, count)))
        yield _launch(
            part, assumptions, specialization, _chunks(part, assumptions.limits, specialization)
        )


class _Specialization(NamedTuple):
    """What selects a specialization for some outputs, besides the number of rows."""

    is_aligned: bool
    is_equal: bool
    table_type: str  # of the offsets and widths in tables, if there is one for each output
    capacity: int  # outputs that fit a launch


@lru_cache
def _specialization(
    aligned: bool, equal: bool, table_type: str, parameter_bytes: int
) -> _Specialization:
    entry_bytes = 4 if table_type == "unsigned" else 8
    tables_bytes = 0 if equal else 2 * entry_bytes + 8 + 4  # as in `_tables`
    outputs = (parameter_bytes - NUMBERS_BYTES) // (POINTER_BYTES + tables_bytes)
    return _Specialization(aligned, equal, table_type, outputs)


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
    split: RowSplit, assumptions: Assumptions, specialization: _Specialization, chunks: _Chunks
) -> KernelLaunch:
    """The launch for outputs that fit its parameters, and its sibling for chunks of other rows.

    Some sizes of a split have chunks of one row, and others of several, so both are compiled.
    """
    rows, pitch, outputs, *_ = split
    is_one_row, limits = chunks.is_one_row, assumptions.limits
    # In a mixture of experts, other outputs are empty in each call; there is room for all of them.
    count = max(len(outputs), assumptions.output_count) if rows == 1 else len(outputs)
    slots = min(specialization.capacity, capacity(count))
    position_type, last = COUNT_64 if is_one_row else "unsigned", ceil_div(rows, chunks.rows) - 1
    constants = (
        TypedValue("int", "kLoads", LOADS),
        TypedValue("bool", "kAligned", int(specialization.is_aligned)),
        TypedValue("bool", "kOneRow", int(is_one_row)),
        TypedValue("bool", "kEqual", int(specialization.is_equal)),
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
        *_tables(split, chunks, specialization, slots, position_type),
    ]
    resident = resident_blocks(limits, THREADS, THREAD_REGISTERS[specialization.is_aligned])
    rows_text = "a single row" if rows == 1 else "wide outputs"
    code, packed = specialize("rows", slots, resident, constants, arguments)
    launch = KernelLaunch(
        code=code,
        packed=packed,
        outputs=outputs,
        total_bytes=split.total_bytes,
        is_streaming=assumptions.is_streaming,
        grid=chunks.grid,
        bytes_in_flight=LOADS * VECTOR,
        reason=f"{rows_text}, {'not ' * (not specialization.is_aligned)}aligned to {VECTOR} bytes",
        threads=chunks.threads,
    )
    if rows == 1 or pitch >= MAX_CHUNK_BYTES:
        return launch
    other = chunks._replace(is_one_row=not is_one_row)
    return launch._replace(siblings=lambda: [_launch(split, assumptions, specialization, other)])


def _tables(
    split: RowSplit,
    chunks: _Chunks,
    specialization: _Specialization,
    slots: int,
    position_type: str,
) -> Iterator[TypedValue]:
    """The tables of outputs. Outputs that are equal and contiguous in the input share an entry."""
    table_type, entries = specialization.table_type, slots
    widths, offsets = split.widths, split.offsets
    if specialization.is_equal:
        table_type = position_type
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


def _are_equal(split: RowSplit) -> bool:
    """Whether outputs are equal and contiguous in the input, so that they can share an entry."""
    width, count, (first, *_, last) = split.equal_width, len(split.widths), split.offsets
    return width > 0 and last - first == width * (count - 1)


def _chunks(split: RowSplit, limits: DeviceLimits, specialization: _Specialization) -> _Chunks:
    """The chunks and blocks that take the least time."""
    choices = _row_choices(split, limits)
    chunk_bytes = _chunk_bytes(split.widths, choices)
    sm_bytes, best = split.total_bytes / limits.sm_count, inf
    for threads, rounds in BLOCKS:
        block = threads, threads * rounds * LOADS * VECTOR
        chunks = _chunked(split.rows, choices, chunk_bytes, block)
        cost = _cost(chunks, rounds, sm_bytes, limits, specialization)
        if cost < best * (1 - MIN_GAIN):
            best, best_chunks = cost, chunks
        if cost <= CHEAP_RATIO * sm_bytes:
            break
    return best_chunks


def _chunk_bytes(widths: Sequence[int], choices: Sequence[int]) -> Any:
    """The bytes of each output in a chunk, by the chunk's rows."""
    if len(choices) * len(widths) > MAX_IN_PYTHON:
        return np.array(choices)[:, None] * widths
    return [[rows * width for width in widths] for rows in choices]


def _chunked(
    rows: int, choices: Sequence[int], chunk_bytes: Any, block: tuple[int, int]
) -> _Chunks:
    """The chunks that need the fewest tiles; `block` has the threads and the bytes of a tile."""
    if in_python := isinstance(chunk_bytes, list):
        tiles: Any = [[ceil_div(part, block[1]) for part in chunk] for chunk in chunk_bytes]
        sums = [*map(sum, tiles)]
    else:
        # Of numbers below 2^53, a float quotient is whole only if it is exact, so `ceil` is right.
        tiles = np.ceil(chunk_bytes / block[1]).astype(np.int64)
        sums = np.add.reduce(tiles, -1).tolist()
    grids = [-(-rows // n) * count for n, count in zip(choices, sums, strict=True)]
    weights = [ONE_ROW_WEIGHT * grids[0], *grids[1:]]
    choice = weights.index(min(weights))
    chosen = tiles[choice] if in_python else tiles[choice].tolist()
    return _Chunks(*block, choices[choice], choice == 0, chosen, sums[choice], grids[choice])


def _cost(
    chunks: _Chunks,
    rounds: int,
    sm_bytes: float,
    limits: DeviceLimits,
    specialization: _Specialization,
) -> float:
    """The time of a launch, as the bytes that an SM copies in it while memory is busy."""
    resident = resident_blocks(limits, chunks.threads, THREAD_REGISTERS[specialization.is_aligned])
    sm_blocks = chunks.grid / limits.sm_count
    # The time if too few bytes are in flight to keep memory busy, as in `layouts`.
    round_bytes = sm_bytes / sm_blocks / rounds
    latency_time = limits.in_flight_bytes / (round_bytes * min(resident, sm_blocks))
    tail = tail_bytes(rounds, latency_time) if sm_blocks > resident else 0
    return sm_bytes * max(1, latency_time) + tail


def _row_choices(split: RowSplit, limits: DeviceLimits) -> list[int]:
    """The rows that a chunk may have: a single row, or so many that SMs copy them together."""
    if split.rows == 1 or (largest := max(max(split.widths), split.pitch)) >= MAX_CHUNK_BYTES:
        return [1]
    limit = min(split.rows, (MAX_CHUNK_BYTES - 1) // largest)
    min_rows = min(limit, ceil_div(limits.sm_count * SM_CHUNK_BYTES // 2, split.pitch))
    step = ceil_div(min_rows, ROW_CHOICES)
    return [1, *range(min_rows, min(limit, 2 * min_rows) + 1, step)]
