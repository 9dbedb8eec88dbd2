"""Plans for `rows`, the kernel of wide outputs, which is not compiled for a split's columns."""

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
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
    Code,
    Constant,
    DeviceLimits,
    KernelLaunch,
    Member,
    blocks,
    capacity,
    code_of,
    divisor,
    index_type,
    table,
)
from dmlsplit.backends.cuda.planner.forms import Columns

# A vector may extend into the next row of an output, but no further.
LEAST_WIDTH = VECTOR
# More equal outputs than this have a program without a search.
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
_UNUSED = table("unsigned", UNUSED_TILE)
# Parameters outside tables: the input's address, pitches, divisors, numbers of rows and tiles.
NUMBERS_BYTES = 96


def wide_launches(
    columns: Columns, assumed: Assumptions, is_aligned: bool
) -> Iterator[KernelLaunch]:
    """Launches with as many outputs each as the parameters can hold.

    `is_aligned`: all widths, offsets, addresses and the pitch are multiples of 16 bytes.
    """
    count = len(columns.outputs)
    is_short = not is_aligned and columns.rows > 1 and columns.widest <= MOST_SHORT
    is_short = is_short and columns.pitch < MOST_CHUNK_BYTES
    # Along axis 0, the outputs that are not empty may be equal by chance.
    is_equal = _is_equal(columns, is_short) and (columns.rows > 1 or count == assumed.outputs)
    kind = index_type(max(columns.offsets[-1], columns.widest))
    place_bytes = 4 if kind == "unsigned" else 8
    tables_bytes = 0 if is_equal else 2 * place_bytes + 8 + 4 + 8 * is_short
    most = (assumed.limits.parameter_bytes - NUMBERS_BYTES) // (POINTER_BYTES + tables_bytes)
    each = blocks(count, blocks(count, most))
    for first in range(0, count, each):
        part = columns.take(range(first, min(first + each, count)))
        chunks = _chunks(part, assumed.limits, is_short)
        yield _launch(part, assumed, _Form(is_aligned, is_short, is_equal), kind, most, chunks)


class _Form(NamedTuple):
    """The constants that columns share whatever their number of rows."""

    is_aligned: bool
    is_short: bool  # but chunks of one row are not
    is_equal: bool


class _Chunks(NamedTuple):
    """How rows and outputs are distributed over blocks."""

    threads: int  # of a block
    tile_bytes: int
    rows: int  # of a chunk
    is_one_row: bool  # kOneRow
    tiles: np.ndarray  # of each output in a chunk
    chunk_tiles: int  # their sum
    grid: int  # tiles of all chunks


def _launch(
    columns: Columns, assumed: Assumptions, form: _Form, kind: str, most: int, chunks: _Chunks
) -> KernelLaunch:
    """`kind` is the type of places in the tables, and `most` the outputs that fit a launch."""
    count = len(columns.outputs)
    # In a mixture of experts, which outputs are empty changes with each call; their total does not.
    wanted = min(most, max(count, assumed.outputs)) if columns.rows == 1 else count
    slots = capacity(wanted, most)
    kind = kind if not form.is_equal else COUNT_64 if chunks.is_one_row else "unsigned"
    code = _code(form, chunks.is_one_row, slots, kind, assumed.limits)
    is_short = form.is_short and not chunks.is_one_row

    def siblings() -> list[KernelLaunch]:
        if columns.rows == 1 or columns.pitch >= MOST_CHUNK_BYTES:
            return []
        other = chunks._replace(is_one_row=not chunks.is_one_row)
        return [_launch(columns, assumed, form, kind, most, other)]

    aligned = "and every width, offset and address is a multiple of 16 bytes"
    last = blocks(columns.rows, chunks.rows) - 1
    values: dict[str, int | bytes] = {
        "pitch": columns.pitch,
        "chunk_pitch": columns.pitch * chunks.rows,
        "by_chunk_tiles": table(DIVISOR, *divisor(chunks.chunk_tiles)),
        "tile_bytes": chunks.tile_bytes,
        "chunk_tiles": chunks.chunk_tiles,
        "chunk_rows": chunks.rows,
        "last_chunk": last,
        "last_rows": columns.rows - last * chunks.rows,
    }
    return KernelLaunch(
        code,
        code.pack(values | _outputs(columns, chunks, form, code.slots, kind)),
        columns.outputs,
        columns.total_bytes,
        assumed.bypasses_cache,
        chunks.grid,
        block=chunks.threads,
        shared_bytes=SHORT_BYTES * is_short,
        bytes_in_flight=(SHORT_LOADS if is_short else LOADS) * VECTOR,
        reason=f"outputs are wide, {aligned if form.is_aligned else 'at any alignment'}",
        siblings=siblings,
    )


@lru_cache
def _code(form: _Form, is_one_row: bool, slots: int, kind: str, limits: DeviceLimits) -> Code:
    is_aligned, is_short, is_equal = form
    is_short = is_short and not is_one_row
    place = COUNT_64 if is_one_row else "unsigned"
    members = [Member(place, "pitch"), Member(place, "chunk_pitch")]
    members.append(Member(DIVISOR, "by_chunk_tiles"))
    numbers = ("tile_bytes", "chunk_tiles", "chunk_rows", "last_chunk", "last_rows")
    members += [Member("unsigned", name) for name in numbers]
    if is_equal:
        members += [Member(DIVISOR, "by_output_tiles"), Member("unsigned", "output_tiles")]
    else:
        members.append(Member("unsigned", "tile_starts", slots))
    entries = 1 if is_equal else slots
    members += [Member(kind, "offsets", entries), Member(kind, "widths", entries)]
    if not is_one_row:
        members.append(Member(DIVISOR, "by_width", entries))
    if is_short:
        members.append(Member(DIVISOR, "by_slot", entries))
    constants = (
        Constant("int", "kLoads", SHORT_LOADS if is_short else LOADS),
        Constant("bool", "kAligned", int(is_aligned)),
        Constant("bool", "kShort", int(is_short)),
        Constant("bool", "kOneRow", int(is_one_row)),
        Constant("bool", "kEqual", int(is_equal)),
        Constant("using", "Place", place),
    )
    resident = resident_blocks(limits, REGISTERS[is_aligned], THREADS)
    return code_of("rows", slots, resident, constants, tuple(members))


def _outputs(
    columns: Columns, chunks: _Chunks, form: _Form, slots: int, kind: str
) -> dict[str, int | bytes]:
    """The tables of outputs; those that are equal and contiguous in the input share an entry."""
    count, spare = (1, 0) if form.is_equal else (len(columns.widths), slots - len(columns.widths))
    widths = columns.widths[:count]
    values: dict[str, int | bytes] = {
        "offsets": table(kind, *columns.offsets[:count]),
        "widths": table(kind, *widths),
    }
    # The width of a single row may be too large for a divisor.
    divided = {} if chunks.is_one_row else {"by_width": widths}
    if form.is_short and not chunks.is_one_row:
        divided["by_slot"] = tuple(map(_slot_vectors, widths))
    for name, numbers in divided.items():
        found = chain.from_iterable(map(divisor, numbers))
        values[name] = table(DIVISOR, *found) + table(DIVISOR, *divisor(1)) * spare
    if form.is_equal:
        tiles = int(chunks.tiles[0])
        return values | {"by_output_tiles": table(DIVISOR, *divisor(tiles)), "output_tiles": tiles}
    starts = np.add.accumulate(chunks.tiles) - chunks.tiles
    return values | {"tile_starts": starts.astype(np.uint32).tobytes() + _UNUSED * spare}


def _is_equal(columns: Columns, is_short: bool) -> bool:
    """Whether outputs share an entry. Few are found about as fast by search, with its program."""
    if len(columns.outputs) <= (1 if is_short else FEW_OUTPUTS) or not columns.equal_width:
        return False
    return columns.offsets[-1] - columns.offsets[0] == columns.row_bytes - columns.widths[-1]


def _slot_vectors(width: Any) -> Any:
    return (width + SLOT_MORE) // VECTOR


def _chunks(columns: Columns, limits: DeviceLimits, is_short: bool) -> _Chunks:
    """The largest blocks that keep (nearly) all multiprocessors busy to the end."""
    all_blocks: tuple[tuple[int, int], ...] = SHORT_BLOCKS if is_short else BLOCKS
    choices, needed = _needed(columns, limits, is_short)
    tiles = np.ceil(needed).astype(np.int64)
    # As many tiles of a row would do if none had an unused part.
    full = np.add.reduce(needed[:, 0], -1).tolist()
    best = 0.0
    for at, sums in enumerate(np.add.reduce(tiles, -1).tolist()):
        threads, rounds = all_blocks[at]
        at_once = threads * LOADS * VECTOR
        choice, grid = 0, columns.rows * sums[0]
        if len(sums) > 1 and (columns.widest < rounds * at_once or full[at] < FULL_ROW * sums[0]):
            pairs = zip(choices[1:], sums[1:], strict=True)
            grids = [blocks(columns.rows, rows) * count for rows, count in pairs]
            grid = min(grids)
            choice = 1 + grids.index(grid)
        # That more blocks fit makes the last of them no shorter.
        busiest = limits.sm_count * blocks(IN_FLIGHT_BYTES, at_once)
        busy = columns.rows * full[at] / grid * evenness(grid, busiest, limits.sm_count)
        if busy > best:
            shape = threads, rounds * at_once, choices[choice], choice == 0
            best, found = busy, _Chunks(*shape, tiles[at, choice], sums[choice], grid)
        if busy >= BUSY:
            break
    return found


def _needed(columns: Columns, limits: DeviceLimits, is_short: bool) -> tuple[list[int], np.ndarray]:
    """The rows that a chunk may have, and the tiles to fill: by block, these rows, and output.

    Rows and widths are below 2^53, so a float quotient is whole only if the division is exact.
    """
    widths = np.fromiter(columns.widths, np.int64, len(columns.widths))
    # Tiles have bytes, or whole rows if they are short.
    amounts, each = widths, _tile_sizes(BLOCKS)
    if is_short:
        slots = _slot_vectors(widths)
        rows = [[threads // slots // 2 * (2 * LOADS * rounds)] for threads, rounds in SHORT_BLOCKS]
        amounts, each = np.ones_like(widths), np.array(rows)
    choices = _row_choices(columns, limits, int(each[0].max()) if is_short else 1)
    return choices, (np.multiply.outer(choices, amounts) if len(choices) > 1 else amounts) / each


@lru_cache
def _tile_sizes(all_blocks: tuple[tuple[int, int], ...]) -> np.ndarray:
    """The bytes of a tile, by block."""
    sizes = [rounds * threads * LOADS * VECTOR for threads, rounds in all_blocks]
    return np.array(sizes).reshape(-1, 1, 1)


def _row_choices(columns: Columns, limits: DeviceLimits, multiple: int) -> list[int]:
    """The rows that a chunk may have: a single row, which is simpler, and multiples if possible."""
    if columns.rows == 1 or (largest := max(columns.widest, columns.pitch)) >= MOST_CHUNK_BYTES:
        return [1]
    most = min(columns.rows, (MOST_CHUNK_BYTES - 1) // largest)
    multiple = multiple if multiple <= most else 1
    wanted = blocks(limits.sm_count * CHUNK_BYTES // 2, columns.pitch)
    least = min(most // multiple, blocks(wanted, multiple)) * multiple
    step = blocks(least, CHOICES * multiple) * multiple
    return [1, *range(least, min(most, 2 * least) + 1, step)]


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
