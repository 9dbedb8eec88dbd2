"""How tiles are cut from the input, and laid out in shared memory."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product
from math import gcd

from dmlsplit.backends.cuda.launch import LINE_BYTES, THREADS, VECTOR, WORD, Assumptions
from dmlsplit.backends.cuda.planner.warps import BANKS, Arrangement, used_lanes, vector_wavefronts
from dmlsplit.geometry import RowSplit, ceil_div

# Vectors that a thread loads. Each number is a program.
TILE_LOADS = (4, 6, 8)
MOST_TILE_VECTORS = TILE_LOADS[-1] * THREADS
MOST_TILE_BYTES = MOST_TILE_VECTORS * VECTOR
# The most shared memory of a block, and its sizes as eighths of the tile. Each is a program.
MOST_SHARED_VECTORS = (48 << 10) // VECTOR
SHARED_EIGHTHS = (9, 12, 16)
# In a multiple of 32 rows, a tile's share of an output is a whole number of 32-byte sectors,
# whatever the output's width. The share should also be at least LINE_BYTES.
TILE_ROWS = 32
# Bytes per wavefront of shared memory.
BANKS_BYTES = BANKS * WORD
# A tile that uses this share of its threads' loads is as good as a larger one.
FULL_TILE = 7 / 8
# Instructions that a warp issues for one vector per lane, about, and during a wavefront.
VECTOR_ISSUES, WAVEFRONT_ISSUES = 60, 2
# A team is a warp, or part of one if outputs have few vectors in a tile.
TEAM_BITS = (5, 4, 3)
# Padding may follow every 2^0 to 2^4 rows: 16 rows are whole vectors of any output.
PAD_BITS = range(5)


def takes_whole_rows(split: RowSplit) -> bool:
    """Whether tiles are whole rows, read as one run, even with 15 more rows for alignment."""
    is_whole = split.row_bytes == split.pitch
    return is_whole and split.pitch * (_least_rows(split) + VECTOR) <= MOST_TILE_BYTES


@dataclass(frozen=True, slots=True)
class Layout:
    """A tile's part of the input, and its layout in shared memory."""

    item: int  # 1, 2, 4 or 16: divides every width, offset, pitch and address
    is_whole: bool  # one run of whole rows
    loads: int  # vectors of each thread
    rows: int  # whose vectors a block writes
    fill_rows: int  # that it reads
    run_vectors: int
    groups: tuple[int, ...]  # first output of each, and the number of outputs
    arrangement: Arrangement
    shared_vectors: int


def _least_rows(split: RowSplit) -> int:
    """The rows that fill a cache line of an output of mean width, and half of one of any."""
    mean = ceil_div(LINE_BYTES * len(split.outputs), split.row_bytes)
    rows = max(mean, ceil_div(LINE_BYTES, 2 * min(split.widths)))
    return ceil_div(rows, TILE_ROWS) * TILE_ROWS


def _item(split: RowSplit, assumed: Assumptions) -> int:
    """The least bytes that a thread moves of an output: 1, 2, 4 or 16.

    Vectors are not shifted. Other bytes are gathered in words or parts of them, as shared memory
    delivers words.
    """
    # The pitch of a single row is never added to an address.
    pitch = split.pitch if split.rows > 1 else VECTOR
    sizes = (*split.widths, *split.offsets, pitch)
    unit = gcd(VECTOR, *sizes, assumed.input_alignment, assumed.output_alignment)
    return unit if unit == VECTOR else min(unit, WORD)


def layout_of(split: RowSplit, assumed: Assumptions) -> Layout:
    """The layout of narrow outputs; above one row, independent of the number of rows."""
    item = _item(split, assumed)
    if split.rows == 1:
        return _one_row(split, item)
    # Rows that complete the last vectors of a tile.
    is_aligned = assumed.output_alignment == VECTOR
    more = 0 if is_aligned else ceil_div(VECTOR - item, min(split.widths))
    least = _least_rows(split)
    if split.row_bytes == split.pitch and item < VECTOR:
        found = _whole(split, assumed, item, least, more)
        if found:
            return found
    line_rows = ceil_div(LINE_BYTES, min(split.widths) * TILE_ROWS) * TILE_ROWS
    choices = (max(least, line_rows), least, TILE_ROWS)
    layouts = (_runs(split, assumed, item, rows, more) for rows in choices)
    return next(layout for layout in layouts if layout)


def _one_row(split: RowSplit, item: int) -> Layout:
    """The layout of parts of a single row, of any width."""
    # The vector at the end of an output is filled up as if more rows followed: up to 15 of them,
    # if the output is one byte wide.
    pitch = max(split.widths)
    slack = 2 * (VECTOR - item) + ceil_div(VECTOR - item, min(split.widths)) * pitch
    groups = _groups(split, MOST_TILE_BYTES - slack)
    widest = max((_starts(split, *group) for group in pairwise(groups)), key=max)
    loads = next(n for n in TILE_LOADS if n * THREADS * VECTOR >= widest[-1] + slack)
    vectors = loads * THREADS
    arrangement, shared = _best(widest, 1, item, loads, vectors, (pitch,), ())
    return Layout(item, False, loads, 1, 1, vectors, groups, arrangement, shared)


def _whole(
    split: RowSplit, assumed: Assumptions, item: int, least: int, more: int
) -> Layout | None:
    """The layout of at least `least` whole rows, and `more` after them; None if too large."""
    # Misaligned rows extend over one more vector, and so do words around a vector of any bytes.
    is_shifted = item < WORD and max(split.widths) >= VECTOR
    slack = VECTOR if is_shifted or assumed.input_alignment < VECTOR else 0
    rows = {
        loads: ((loads * THREADS * VECTOR - slack) // split.pitch - more) // TILE_ROWS * TILE_ROWS
        for loads in TILE_LOADS
    }
    fills = {n: rows[n] * split.pitch / (n * THREADS * VECTOR) for n in TILE_LOADS}
    fitting = [loads for loads in TILE_LOADS if rows[loads] >= least]
    if not fitting:
        return None
    # The smallest tile that fills the loads of its threads.
    loads = max(fitting, key=lambda n: min(FULL_TILE, fills[n]))
    pads = _pads(split, assumed) if assumed.input_alignment == VECTOR else ()
    pads = tuple(bits for bits in pads if (split.pitch << bits) % VECTOR == 0)
    groups = (0, len(split.outputs))
    starts = _starts(split, *groups)
    arrangement, shared = _best(starts, rows[loads], item, loads, 0, (split.pitch,), pads)
    written, read = rows[loads], rows[loads] + more
    return Layout(item, True, loads, written, read, 0, groups, arrangement, shared)


def _runs(split: RowSplit, assumed: Assumptions, item: int, least: int, more: int) -> Layout | None:
    """The layout of a run for each of at least `least` rows, and `more` after them, if it fits."""
    # A run may begin at any multiple of `item`.
    slack = 2 * (VECTOR - item)
    most_vectors = MOST_TILE_VECTORS // (least + more)
    if (max(split.widths) + slack) // VECTOR > most_vectors:
        return None
    groups = _groups(split, most_vectors * VECTOR - slack)
    widest = max((_starts(split, *group) for group in pairwise(groups)), key=max)
    run_vectors = (widest[-1] + slack) // VECTOR
    loads = next(n for n in TILE_LOADS if n * THREADS >= (least + more) * run_vectors)
    rows = max(least, (loads * THREADS // run_vectors - more) // TILE_ROWS * TILE_ROWS)
    # Rows in shared memory have the same phases as in the input.
    pitch = run_vectors * VECTOR + split.pitch % VECTOR
    pitches: tuple[int, ...] = (pitch, pitch + VECTOR, pitch + 2 * VECTOR)
    pads = _pads(split, assumed)
    if item == VECTOR and split.equal_width:
        # This pitch, modulo all banks, puts neighbouring vectors of an output into neighbouring
        # banks across rows too: no conflicts.
        pitches, pads = (pitch + (split.equal_width - pitch) % BANKS_BYTES, pitch), ()
    arrangement, shared = _best(widest, rows, item, loads, run_vectors, pitches, pads)
    return Layout(item, False, loads, rows, rows + more, run_vectors, groups, arrangement, shared)


def _starts(split: RowSplit, first: int, last: int) -> tuple[int, ...]:
    """The first byte of each output in its group's run, and the end of the last."""
    begin = split.offsets[first]
    ends = (*split.offsets[first:last], split.offsets[last - 1] + split.widths[last - 1])
    return tuple(end - begin for end in ends)


def _pads(split: RowSplit, assumed: Assumptions) -> tuple[int, ...]:
    """The `PAD_BITS` for which no vector of an output crosses the padding."""
    if assumed.output_alignment < VECTOR:
        return ()
    unit = gcd(*split.widths)
    return tuple(bits for bits in PAD_BITS if (unit << bits) % VECTOR == 0)


def _shared_vectors(loads: int, run_vectors: int, arrangement: Arrangement) -> int:
    """The shared memory of a tile, with all vectors that its threads load; 0 if too much."""
    vectors = loads * THREADS
    if run_vectors:
        last_row = ceil_div(vectors, run_vectors) - 1
        needed = last_row * arrangement.row_pitch // VECTOR + run_vectors + 1
        if arrangement.pad_bits is not None:
            needed += last_row >> arrangement.pad_bits
    elif arrangement.pad_bits is not None:
        needed = vectors + vectors * VECTOR // (arrangement.row_pitch << arrangement.pad_bits)
    else:
        return vectors
    sizes = (vectors * part // 8 for part in SHARED_EIGHTHS)
    return next((size for size in sizes if needed <= size <= MOST_SHARED_VECTORS), 0)


def _groups(split: RowSplit, most: int) -> tuple[int, ...]:
    """The first output of each group, and the number of outputs.

    Groups end at gaps; those wider than `most` bytes of a row are cut evenly.
    """
    ends = [offset + width for offset, width in zip(split.offsets, split.widths, strict=True)]
    gaps = [i for i in range(1, len(ends)) if split.offsets[i] != ends[i - 1]]
    groups = [0]
    for first, last in pairwise((0, *gaps, len(ends))):
        begin = split.offsets[first]
        count = ceil_div(ends[last - 1] - begin, most)
        even = ceil_div(ends[last - 1] - begin, count)
        if first:
            groups.append(first)
        for i in range(first + 1, last):
            middle, before = (split.offsets[n] + split.widths[n] // 2 - begin for n in (i, i - 1))
            if middle // even > before // even or ends[i] - split.offsets[groups[-1]] > most:
                groups.append(i)
    return (*groups, len(ends))


@lru_cache(maxsize=1024)
def _best(
    starts: tuple[int, ...],
    rows: int,
    item: int,
    loads: int,
    run_vectors: int,
    pitches: tuple[int, ...],
    pads: tuple[int, ...],
) -> tuple[Arrangement, int]:
    """The cheapest arrangement, by issue slots and wavefronts, and its shared memory."""
    spans = [(start, end - start) for start, end in pairwise(starts)]
    spans.sort(key=lambda span: -span[1])
    used = {bits: used_lanes([rows * width for _, width in spans], bits) for bits in TEAM_BITS}
    # Narrow outputs are gathered in parts of words, wide ones in words or vectors.
    part = item if item == VECTOR or spans[0][1] < VECTOR else WORD

    def cost(arrangement: Arrangement) -> float:
        waits = vector_wavefronts(spans, arrangement, part)
        return VECTOR_ISSUES / used[arrangement.team_bits] + WAVEFRONT_ISSUES * waits

    every = product((None, *pads), pitches, TEAM_BITS)
    tried = [Arrangement(pitch, pad, team_bits) for pad, pitch, team_bits in every]
    shared = {one: _shared_vectors(loads, run_vectors, one) for one in tried}
    best = min((arrangement for arrangement, size in shared.items() if size), key=cost)
    return best, shared[best]
