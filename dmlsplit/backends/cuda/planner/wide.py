"""Plans for `rows`, the kernel of wide outputs, which is not compiled for a split's columns."""

from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
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
    Constant,
    DeviceLimits,
    KernelLaunch,
    capacity,
    coded,
    divisor,
    filled,
    index_type,
)
from dmlsplit.backends.cuda.occupancy import resident_blocks
from dmlsplit.geometry import RowSplit, ceil_div

# A vector may extend into the next row of an output, but no further.
LEAST_WIDTH = VECTOR
# More equal outputs than this have a program without a search, which is about as fast for few.
FEW_OUTPUTS = 16
# Threads of a block, and rounds in which each copies `LOADS` vectors. Rounds share what a block
# finds out about its output, which is up to half of the instructions of a single one.
BLOCKS = (256, 4), (256, 2), (128, 2), (64, 2), (64, 1)
REGISTERS = {True: 40, False: 64}  # of a thread, for aligned memory or not
# Rows that fit a slot of shared memory, of up to 32 vectors, are short. A slot has room for a row
# at any phase and the word after it. A block reads a vector per load and thread, for an even number
# of rows at once, and does so twice; rows.cu has the same numbers.
SLOT_MORE = 2 * VECTOR + 2
MOST_SHORT = 33 * VECTOR - SLOT_MORE - 1
SHORT_LOADS = 2 * LOADS
SHORT_BLOCKS = (256, 4), (128, 4), (64, 4)
SHORT_BYTES = (THREADS * SHORT_LOADS * 4 // 3 + 64) * VECTOR
# Up to this many outputs of a single row are divided faster without NumPy.
FEW = 64
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
# How many outputs fit is calculated from these, because calls with new sizes wait for their plan,
# and `fitting` would plan a split of too many outputs twice.
NUMBERS_BYTES = 96


def wide_launches(
    split: RowSplit, assumed: Assumptions, is_aligned: bool
) -> Iterator[KernelLaunch]:
    """Launches with as many outputs each as the parameters can hold.

    `is_aligned`: all widths, offsets, addresses and the pitch are multiples of 16 bytes.
    """
    count = len(split.outputs)
    is_short = not is_aligned and split.rows > 1 and max(split.widths) <= MOST_SHORT
    is_short = is_short and split.pitch < MOST_CHUNK_BYTES
    # Along axis 0, the outputs that are not empty may be equal by chance.
    is_equal = split.rows > 1 or count == assumed.outputs
    is_equal = is_equal and count > (1 if is_short else FEW_OUTPUTS) and _are_equal(split)
    kind = index_type(max(split.offsets[-1], *split.widths))
    mode = _mode(is_aligned, is_short, is_equal, kind, assumed.limits.parameter_bytes)
    each = ceil_div(count, ceil_div(count, mode.most)) if count > mode.most else count
    for first in range(0, count, each):
        part = split if each == count else split.take(range(first, min(first + each, count)))
        yield _launch(part, assumed, mode, _chunks(part, assumed.limits, is_short))


class _Mode(NamedTuple):
    """The constants of a program for some outputs, whatever the number of rows."""

    is_aligned: bool
    is_short: bool  # but chunks of one row are not
    is_equal: bool
    kind: str  # the type of places in the tables
    most: int  # outputs that fit a launch


@lru_cache
def _mode(aligned: bool, short: bool, equal: bool, kind: str, parameter_bytes: int) -> _Mode:
    place_bytes = 4 if kind == "unsigned" else 8
    tables_bytes = 0 if equal else 2 * place_bytes + 8 + 4 + 8 * short
    most = (parameter_bytes - NUMBERS_BYTES) // (POINTER_BYTES + tables_bytes)
    return _Mode(aligned, short, equal, kind, most)


class _Chunks(NamedTuple):
    """How rows and outputs are distributed over blocks."""

    threads: int  # of a block
    tile_bytes: int
    rows: int  # of a chunk
    is_one_row: bool  # kOneRow
    tiles: list[int]  # of each output in a chunk
    chunk_tiles: int  # their sum
    grid: int  # tiles of all chunks


def _launch(split: RowSplit, assumed: Assumptions, mode: _Mode, chunks: _Chunks) -> KernelLaunch:
    rows, pitch, outputs, *_ = split
    is_one_row, limits = chunks.is_one_row, assumed.limits
    is_short = mode.is_short and not is_one_row
    # In a mixture of experts, which outputs are empty changes with each call; their total does not.
    count = max(len(outputs), assumed.outputs) if rows == 1 else len(outputs)
    slots, loads = min(mode.most, capacity(count)), SHORT_LOADS if is_short else LOADS
    place, last = COUNT_64 if is_one_row else "unsigned", ceil_div(rows, chunks.rows) - 1
    constants = (
        Constant("int", "kLoads", loads),
        Constant("bool", "kAligned", int(mode.is_aligned)),
        Constant("bool", "kShort", int(is_short)),
        Constant("bool", "kOneRow", int(is_one_row)),
        Constant("bool", "kEqual", int(mode.is_equal)),
        Constant("using", "Place", place),
    )
    arguments = [
        Constant(place, "pitch", pitch),
        Constant(place, "chunk_pitch", pitch * chunks.rows),
        Constant(DIVISOR, "by_chunk_tiles", divisor(chunks.chunk_tiles)),
        Constant("unsigned", "tile_bytes", chunks.tile_bytes),
        Constant("unsigned", "chunk_tiles", chunks.chunk_tiles),
        Constant("unsigned", "chunk_rows", chunks.rows),
        Constant("unsigned", "last_chunk", last),
        Constant("unsigned", "last_rows", rows - last * chunks.rows),
        *_tables(split, chunks, mode, slots, place),
    ]
    resident = resident_blocks(limits, THREADS, REGISTERS[mode.is_aligned])
    aligned = "and every width, offset and address is a multiple of 16 bytes"
    launch = KernelLaunch(
        *coded("rows", slots, resident, constants, arguments),
        outputs,
        split.total_bytes,
        assumed.bypasses_cache,
        chunks.grid,
        bytes_in_flight=loads * VECTOR,
        reason=f"outputs are wide, {aligned if mode.is_aligned else 'at any alignment'}",
        shared_bytes=SHORT_BYTES * is_short,
        block=chunks.threads,
    )
    if rows == 1 or pitch >= MOST_CHUNK_BYTES:
        return launch
    other = chunks._replace(is_one_row=not is_one_row)
    return launch._replace(siblings=lambda: [_launch(split, assumed, mode, other)])


def _tables(
    split: RowSplit, chunks: _Chunks, mode: _Mode, slots: int, place: str
) -> Iterator[Constant]:
    """The tables of outputs; those that are equal and contiguous in the input share an entry."""
    kind, entries = place if mode.is_equal else mode.kind, slots
    widths, offsets = split.widths, split.offsets
    if mode.is_equal:
        entries, widths, offsets, each = 1, widths[:1], offsets[:1], chunks.tiles[0]
        yield Constant(DIVISOR, "by_output_tiles", divisor(each))
        yield Constant("unsigned", "output_tiles", each)
    else:
        starts = accumulate(chunks.tiles[:-1], initial=0)
        yield Constant("unsigned", "tile_starts", filled(starts, slots, UNUSED_TILE))
    yield Constant(kind, "offsets", filled(offsets, entries, 0))
    yield Constant(kind, "widths", filled(widths, entries, 0))
    # The width of a single row may be too large for a divisor.
    if not chunks.is_one_row:
        yield Constant(DIVISOR, "by_width", filled(map(divisor, widths), entries, divisor(1)))
        if mode.is_short:
            divisors = map(divisor, map(_slot_vectors, widths))
            yield Constant(DIVISOR, "by_slot", filled(divisors, entries, divisor(1)))


def _are_equal(split: RowSplit) -> bool:
    """Whether outputs are equal and contiguous in the input, so that they can share an entry."""
    width, count, (first, *_, last) = split.equal_width, len(split.widths), split.offsets
    return width > 0 and last - first == width * (count - 1)


def _slot_vectors(width: Any) -> Any:
    return (width + SLOT_MORE) // VECTOR


def _chunks(split: RowSplit, limits: DeviceLimits, is_short: bool) -> _Chunks:
    """The largest blocks that keep (nearly) all multiprocessors busy to the end."""
    if split.rows == 1 and len(split.widths) <= FEW:
        return _few_chunks(split, limits.sm_count)
    choices, needed = _needed(split, limits, is_short)
    tiles = np.ceil(needed).astype(np.int64)
    # As many tiles of a row would do if none had an unused part.
    full = np.add.reduce(needed[:, 0], -1).tolist()
    best, all_blocks = 0.0, _sizes(SHORT_BLOCKS if is_short else BLOCKS)
    for at, sums in enumerate(np.add.reduce(tiles, -1).tolist()):
        threads, each, resident = all_blocks[at]
        choice, grid = 0, split.rows * sums[0]
        if len(sums) > 1 and (max(split.widths) < each or full[at] < FULL_ROW * sums[0]):
            pairs = zip(choices[1:], sums[1:], strict=True)
            grids = [ceil_div(split.rows, rows) * count for rows, count in pairs]
            grid = min(grids)
            choice = 1 + grids.index(grid)
        # That more blocks fit makes the last of them no shorter.
        even = evenness(grid, limits.sm_count * resident, limits.sm_count)
        busy = split.rows * full[at] / grid * even
        if busy > best:
            shape = threads, each, choices[choice], choice == 0
            best, found = busy, _Chunks(*shape, tiles[at, choice].tolist(), sums[choice], grid)
        if busy >= BUSY:
            break
    return found


def _few_chunks(split: RowSplit, sm_count: int) -> _Chunks:
    """The same for few outputs of a single row, in half the time without NumPy."""
    best, widths, row_bytes = 0.0, split.widths, split.row_bytes
    for threads, each, resident in _sizes(BLOCKS):
        tiles = [-(-width // each) for width in widths]
        grid = sum(tiles)
        busy = row_bytes / each / grid * evenness(grid, sm_count * resident, sm_count)
        if busy > best:
            best, found = busy, (threads, each, 1, True, tiles, grid, grid)
        if busy >= BUSY:
            break
    return _Chunks(*found)


@lru_cache
def _sizes(all_blocks: tuple[tuple[int, int], ...]) -> list[tuple[int, int, int]]:
    """The threads of each block, the bytes of a tile, and the blocks that fill a multiprocessor."""
    at_once = [(threads, rounds, threads * LOADS * VECTOR) for threads, rounds in all_blocks]
    return [(threads, n * rounds, ceil_div(IN_FLIGHT_BYTES, n)) for threads, rounds, n in at_once]


def _needed(split: RowSplit, limits: DeviceLimits, is_short: bool) -> tuple[list[int], np.ndarray]:
    """The rows that a chunk may have, and the tiles to fill: by block, these rows, and output.

    Rows and widths are below 2^53, so a float quotient is whole only if the division is exact.
    """
    widths = np.fromiter(split.widths, np.int64, len(split.widths))
    # Tiles have bytes, or whole rows if they are short.
    amounts, each = widths, np.array([[[each]] for _, each, _ in _sizes(BLOCKS)])
    if is_short:
        slots = _slot_vectors(widths)
        rows = [[threads // slots // 2 * (2 * LOADS * rounds)] for threads, rounds in SHORT_BLOCKS]
        amounts, each = np.ones_like(widths), np.array(rows)
    choices = _row_choices(split, limits, int(each[0].max()) if is_short else 1)
    return choices, (np.multiply.outer(choices, amounts) if len(choices) > 1 else amounts) / each


def _row_choices(split: RowSplit, limits: DeviceLimits, multiple: int) -> list[int]:
    """The rows that a chunk may have: a single row, which is simpler, and multiples if possible."""
    if split.rows == 1 or (largest := max(max(split.widths), split.pitch)) >= MOST_CHUNK_BYTES:
        return [1]
    most = min(split.rows, (MOST_CHUNK_BYTES - 1) // largest)
    multiple = multiple if multiple <= most else 1
    wanted = ceil_div(limits.sm_count * CHUNK_BYTES // 2, split.pitch)
    least = min(most // multiple, ceil_div(wanted, multiple)) * multiple
    step = ceil_div(least, CHOICES * multiple) * multiple
    return [1, *range(least, min(most, 2 * least) + 1, step)]


def evenness(grid: int, at_once: int, sm_count: int) -> float:
    """The mean share of multiprocessors, or of their block slots, that are in use.

    Blocks end at different times: while the last ones run, half of the slots are.
    """
    if grid > at_once:
        return grid / (grid + at_once / 2)
    return grid / (ceil_div(grid, sm_count) * sm_count)
