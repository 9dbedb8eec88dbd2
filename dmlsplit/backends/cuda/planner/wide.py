"""Plans for `rows`, the kernel of wide outputs, which is not compiled for a split's columns."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate

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
    Constant,
    DeviceLimits,
    KernelLaunch,
    blocks,
    capacity,
    divisor,
    filled,
    index_type,
)
from dmlsplit.backends.cuda.planner.forms import Columns

# A vector may extend into the next row of an output, but no further.
LEAST_WIDTH = VECTOR
# Longer tables of tiles come with an index, `nearby`; rows.cu has the same number.
FEW_OUTPUTS = 16
# Threads of a block, and rounds in which each copies `LOADS` vectors. Rounds share what a block
# finds out about its output, which is up to half of the instructions of a single one.
BLOCKS = (256, 4), (256, 2), (128, 2), (64, 2), (64, 1)
REGISTERS = {True: 40, False: 64}  # of a thread, for aligned memory or not
# If at least this share of the GPU's thread slots does useful work, no smaller blocks are tried,
# as fewer rounds take more instructions.
BUSY = 7 / 8
# Bytes of input in a chunk, for each multiprocessor: at most what it has under way. So all
# outputs of a chunk are copied at the same time, and the input that they share is in the L2 cache.
CHUNK_BYTES = IN_FLIGHT_BYTES
# The division of common.cuh takes numbers of 31 bits.
MOST_CHUNK_BYTES = 1 << 30
# Chunks of a single row are simpler, and preferred if they fill this share of their tiles.
FULL_ROW = 0.97
CHOICES = 16
# Parameters outside tables: the input's address, pitches, divisors, numbers of rows and tiles.
NUMBERS_BYTES = 96


def wide_launches(
    columns: Columns, assumed: Assumptions, is_aligned: bool
) -> Iterator[KernelLaunch]:
    """Launches with as many outputs each as the parameters can hold.

    `is_aligned`: all widths, offsets, addresses and the pitch are multiples of 16 bytes.
    """
    count = len(columns.outputs)
    # Along axis 0, the outputs that are not empty may be equal by chance.
    is_equal = _is_equal(columns) and (columns.rows > 1 or count == assumed.outputs)
    place_bytes = 4 if _place(columns) == "unsigned" else 8
    tables_bytes = 0 if is_equal else 2 * place_bytes + 8 + 4 + 2
    most = (assumed.limits.parameter_bytes - NUMBERS_BYTES) // (POINTER_BYTES + tables_bytes)
    each = blocks(count, blocks(count, most))
    for first in range(0, count, each):
        part = columns.take(range(first, min(first + each, count)))
        chunks = _chunks(part, assumed.limits)
        yield _launch(part, assumed, is_aligned, is_equal, most, chunks)


@dataclass(frozen=True, slots=True)
class _Chunks:
    """How rows and outputs are distributed over blocks."""

    threads: int  # of a block
    rounds: int
    rows: int  # of a chunk
    is_one_row: bool  # kOneRow
    tiles: tuple[int, ...]  # of each output in a chunk
    count: int

    @property
    def grid(self) -> int:
        return self.count * sum(self.tiles)

    @property
    def tile_bytes(self) -> int:
        return self.rounds * self.threads * LOADS * VECTOR


def _launch(
    columns: Columns,
    assumed: Assumptions,
    is_aligned: bool,
    is_equal: bool,
    most: int,
    chunks: _Chunks,
) -> KernelLaunch:
    count = len(columns.outputs)
    # In a mixture of experts, which outputs are empty changes with each call; their total does not.
    wanted = min(most, max(count, assumed.outputs)) if columns.rows == 1 else count
    slots = capacity(wanted, most)
    place = COUNT_64 if chunks.is_one_row else "unsigned"
    tables = _equal if is_equal else _tables

    def siblings() -> list[KernelLaunch]:
        if columns.rows == 1 or columns.pitch >= MOST_CHUNK_BYTES:
            return []
        other = replace(chunks, is_one_row=not chunks.is_one_row)
        return [_launch(columns, assumed, is_aligned, is_equal, most, other)]

    aligned = "and every width, offset and address is a multiple of 16 bytes"
    return KernelLaunch(
        "rows",
        columns.outputs,
        columns.total_bytes,
        assumed.bypasses_cache,
        (
            Constant("int", "kLoads", LOADS),
            Constant("bool", "kAligned", int(is_aligned)),
            Constant("bool", "kOneRow", int(chunks.is_one_row)),
            Constant("bool", "kEqual", int(is_equal)),
        ),
        chunks.grid,
        block=chunks.threads,
        bytes_in_flight=LOADS * VECTOR,
        least_resident=resident_blocks(assumed.limits, REGISTERS[is_aligned], THREADS),
        reason=f"outputs are wide, {aligned if is_aligned else 'at any alignment'}",
        slots=slots,
        arguments=(
            Constant(place, "pitch", columns.pitch),
            Constant(place, "chunk_pitch", columns.pitch * chunks.rows),
            Constant(DIVISOR, "by_chunk_tiles", divisor(sum(chunks.tiles))),
            Constant("unsigned", "tile_bytes", chunks.tile_bytes),
            Constant("unsigned", "chunk_tiles", sum(chunks.tiles)),
            Constant("unsigned", "chunk_rows", chunks.rows),
            Constant("unsigned", "last_chunk", chunks.count - 1),
            Constant("unsigned", "last_rows", columns.rows - (chunks.count - 1) * chunks.rows),
            *tables(columns, chunks, slots),
        ),
        siblings=siblings,
    )


def _tables(columns: Columns, chunks: _Chunks, slots: int) -> Iterator[Constant]:
    """The tables of outputs."""
    kind = _place(columns)
    starts = accumulate(chunks.tiles[:-1], initial=0)
    yield Constant(kind, "offsets", filled(columns.offsets, slots, 0))
    yield Constant(kind, "widths", filled(columns.widths, slots, 0))
    if not chunks.is_one_row:
        by_width = filled(map(divisor, columns.widths), slots, divisor(1))
        yield Constant(DIVISOR, "by_width", by_width)
    yield Constant("unsigned", "tile_starts", filled(starts, slots, UNUSED_TILE))
    if slots > FEW_OUTPUTS:
        yield from _nearby(chunks.tiles, slots)


def _equal(columns: Columns, chunks: _Chunks, slots: int) -> Iterator[Constant]:
    """The arguments that replace the tables if outputs are equal and contiguous in the input."""
    place = COUNT_64 if chunks.is_one_row else "unsigned"
    yield Constant(place, "width", columns.equal_width)
    yield Constant(place, "first_byte", columns.offsets[0])
    yield Constant(DIVISOR, "by_output_tiles", divisor(chunks.tiles[0]))
    yield Constant("unsigned", "output_tiles", chunks.tiles[0])
    if not chunks.is_one_row:
        yield Constant(DIVISOR, "by_width", divisor(columns.equal_width))


def _nearby(output_tiles: tuple[int, ...], slots: int) -> Iterator[Constant]:
    """The outputs of every 2^n-th tile, between which `find_near` searches."""
    *starts, tiles = accumulate(output_tiles, initial=0)
    shift = max(0, (blocks(tiles, slots) - 1).bit_length())
    near = np.arange(0, tiles + (1 << shift), 1 << shift)
    nearby = (np.searchsorted(starts, near, "right") - 1).tolist()
    yield Constant("unsigned", "nearby_shift", shift)
    yield Constant("unsigned short", "nearby", filled(nearby, slots + 1, 0))


def _place(columns: Columns) -> str:
    return index_type(max(columns.offsets[-1], columns.widest))


def _is_equal(columns: Columns) -> bool:
    """Whether outputs need no table. Few are found as fast in a table, and share its program."""
    follow = columns.offsets[-1] - columns.offsets[0] == columns.row_bytes - columns.widths[-1]
    return bool(columns.equal_width) and follow and len(columns.outputs) > FEW_OUTPUTS


def _chunks(columns: Columns, limits: DeviceLimits) -> _Chunks:
    """The largest blocks that keep (nearly) all multiprocessors busy to the end."""
    best = 0.0
    for threads, rounds in BLOCKS:
        chunks = _chunks_of(columns, limits, threads, rounds)
        # Blocks that keep memory busy; that more fit makes the last of them no shorter.
        at_once = limits.sm_count * blocks(IN_FLIGHT_BYTES, threads * LOADS * VECTOR)
        full = columns.total_bytes / (chunks.grid * chunks.tile_bytes)
        busy = full * evenness(chunks.grid, at_once, limits.sm_count)
        if busy > best:
            best, found = busy, chunks
        if busy >= BUSY:
            break
    return found


@lru_cache
def resident_blocks(limits: DeviceLimits, registers: int, threads: int) -> int:
    """The blocks of a kernel without shared memory that a multiprocessor holds."""
    by_registers = limits.registers_per_sm // (registers * threads)
    return min(limits.blocks_per_sm, limits.threads_per_sm // threads, by_registers)


def evenness(grid: int, at_once: int, sm_count: int) -> float:
    """The mean share of multiprocessors, or of their block slots, that are in use.

    Blocks end at different times: while the last ones run, half of the slots are.
    """
    if grid > at_once:
        return grid / (grid + at_once / 2)
    return grid / (blocks(grid, sm_count) * sm_count)


def _chunks_of(columns: Columns, limits: DeviceLimits, threads: int, rounds: int) -> _Chunks:
    tile, widths, widest = rounds * threads * LOADS * VECTOR, columns.widths, columns.widest

    def tiles(rows: int) -> list[int]:
        """The tiles of each output in a chunk of so many rows."""
        return [-(-rows * width // tile) for width in widths]

    def full(rows: int) -> float:
        """The share of all tiles that is filled."""
        return columns.total_bytes / (blocks(columns.rows, rows) * sum(tiles(rows)) * tile)

    is_one_row = (
        columns.rows == 1
        or max(widest, columns.pitch) >= MOST_CHUNK_BYTES
        or (widest >= tile and full(1) >= FULL_ROW)
    )
    if is_one_row:
        rows = 1
    else:
        most = min(columns.rows, (MOST_CHUNK_BYTES - 1) // max(widest, columns.pitch))
        # At least half a chunk, for few of its tiles to be partly filled.
        least = min(most, blocks(limits.sm_count * CHUNK_BYTES // 2, columns.pitch))
        choices = range(least, min(most, 2 * least) + 1, blocks(least, CHOICES))
        rows = max(choices, key=full)
    return _Chunks(
        threads, rounds, rows, is_one_row, tuple(tiles(rows)), blocks(columns.rows, rows)
    )
