"""Plans for `tile`: narrow outputs, some rows at a time, through shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise

from dmlsplit.backends.cuda.launch import (
    COUNT_64,
    THREADS,
    VECTOR,
    Assumptions,
    Constant,
    KernelLaunch,
    blocks,
    index_type,
    power_of_two,
)
from dmlsplit.backends.cuda.planner.banks import BANKS, WORD, best_padding
from dmlsplit.backends.cuda.planner.columns import Columns

# Bytes of a tile, at most: one block's share of shared memory with 7 blocks to an SM of an H200.
# Whole rows get tiles of half the size where that is enough, so that more blocks load at the same
# time.
MOST_TILE_BYTES = 32 << 10
WHOLE_TILE_BYTES = 16 << 10
# In a multiple of 32 rows, a tile's share of an output is a whole number of 32-byte sectors,
# whatever the output's width. The share should also be at least as long as a cache line.
TILE_ROWS = 32
LINE_BYTES = 128
# Bytes that shared memory serves in one wavefront.
BANKS_BYTES = BANKS * WORD


def tile(columns: Columns, assumed: Assumptions) -> KernelLaunch:
    """Return the launch for narrow outputs."""
    is_whole = takes_whole_rows(columns)
    rows = _rows(columns, is_whole)
    groups = _groups(columns, MOST_TILE_BYTES // rows)
    layout = _layout(columns, rows, groups, assumed)
    alignment = assumed.output_alignment
    vectors = [_output_vectors(rows * width, alignment) for width in columns.widths]
    return KernelLaunch(
        "tile",
        columns.outputs,
        columns.total_bytes,
        assumed,
        (
            Constant(COUNT_64, "kPitch", columns.pitch),
            Constant("int", "kTileRows", rows),
            Constant("int", "kRuns", layout.runs),
            Constant("int", "kRunBytes", layout.run_bytes),
            Constant("int", "kPad", layout.pad),
            Constant("int", "kPadRows", layout.pad_rows),
            Constant("int", "kItem", layout.item),
            Constant("int", "kSharedVectors", layout.vectors),
            Constant("unsigned", "kWidest", max(columns.widths)),
            Constant("unsigned", "kGroups", len(groups) - 1),
            Constant("unsigned", "kGroupOutputs", tuple(groups)),
            Constant(index_type(columns.offsets[-1]), "kOffsets", columns.offsets),
            Constant("unsigned", "kWidths", columns.widths),
            Constant("unsigned", "kEqualVectors", vectors[0] if columns.equal_width else 0),
            Constant("unsigned", "kVectorStarts", (0, *accumulate(vectors))),
        ),
        blocks(columns.rows, rows) * (len(groups) - 1),
        shared_bytes=layout.vectors * VECTOR,
        bytes_in_flight=blocks(layout.loaded_vectors, THREADS) * VECTOR,
        reason=(
            f"rows of {columns.pitch} bytes, {rows} at a time, through shared memory"
            if is_whole
            else f"outputs up to {max(columns.widths)} bytes wide, {rows} rows at a time, through "
            "shared memory"
        ),
        arguments=(columns.row_count,),
    )


def takes_whole_rows(columns: Columns) -> bool:
    """Whether tiles are whole rows, which follow each other and are read as one run."""
    is_whole = columns.row_bytes == columns.pitch
    return is_whole and columns.pitch * _least_rows(columns) <= MOST_TILE_BYTES


def _least_rows(columns: Columns) -> int:
    """Return how many rows fill a line of an output of the mean width."""
    rows = blocks(LINE_BYTES * len(columns.outputs), columns.row_bytes)
    return blocks(rows, TILE_ROWS) * TILE_ROWS


def _rows(columns: Columns, is_whole: bool) -> int:
    rows = _least_rows(columns)
    if is_whole:
        rows = max(rows, WHOLE_TILE_BYTES // columns.pitch // TILE_ROWS * TILE_ROWS)
    return min(rows, columns.rows)


def _groups(columns: Columns, most: int) -> list[int]:
    """Cut the outputs into groups at gaps, and where a group exceeds `most` bytes of a row.

    Returns the first output of each group, and the number of outputs at the end.
    """
    groups, start = [0], columns.offsets[0]
    end = start
    for index, (offset, width) in enumerate(zip(columns.offsets, columns.widths, strict=True)):
        if index > groups[-1] and (offset != end or offset + width - start > most):
            groups.append(index)
            start = offset
        end = offset + width
    return [*groups, len(columns.outputs)]


@dataclass(frozen=True, slots=True)
class _Layout:
    """How a tile is laid out in shared memory."""

    item: int  # what every width, offset, pitch and address is a multiple of: 1, 2, 4 or 16
    runs: int  # of consecutive bytes of the input: one of whole rows, or one for each row
    run_bytes: int  # length of each run
    pad: int  # bytes of padding against bank conflicts
    pad_rows: int  # rows after which the padding is repeated
    loaded_vectors: int  # that are read
    vectors: int  # that the tile takes, with its padding


def _item(columns: Columns, assumed: Assumptions) -> int:
    """Return what a thread moves at least of an output: 1, 2, 4 or 16 bytes.

    Vectors need no shifts and go through shared memory as they are. Otherwise bytes are gathered in
    words or parts of words, as shared memory delivers words.
    """
    # The pitch of a single row is never added to an address.
    pitch = columns.pitch if columns.rows > 1 else VECTOR
    sizes = (*columns.widths, *columns.offsets, pitch)
    unit = power_of_two(VECTOR, *sizes, assumed.input_alignment, assumed.output_alignment)
    return unit if unit == VECTOR else min(unit, WORD)


def _layout(columns: Columns, rows: int, groups: list[int], assumed: Assumptions) -> _Layout:
    item = _item(columns, assumed)
    spans = [
        columns.offsets[last - 1] + columns.widths[last - 1] - columns.offsets[first]
        for first, last in pairwise(groups)
    ]
    if takes_whole_rows(columns):
        # Rows follow each other without a gap: one run, packed in shared memory as in the input.
        runs, run = 1, rows * columns.pitch
        run_vectors = _run_vectors(run, item)
        row_bytes = columns.pitch
    else:
        # Each row is a run that begins at its own phase, and gets whole vectors of shared memory.
        runs, run = rows, max(spans)
        run_vectors = _run_vectors(run, item)
        row_bytes = run_vectors * VECTOR
    if rows == 1:
        pad, pad_rows = 0, 1
    elif item == VECTOR:
        # With this pitch modulo all banks, neighbouring vectors of an output are in neighbouring
        # banks even if they belong to different rows: no conflicts. Unequal widths have no such
        # pitch; with all banks and one vector more, at least no column stays in the same bank.
        pad, pad_rows = ((columns.equal_width or VECTOR) - row_bytes) % BANKS_BYTES, 1
    else:
        is_word_aligned = assumed.input_alignment >= WORD
        # A word after every 1 to 16 rows may be best. A run of whole rows is stored word by word,
        # so the padding may only be where a word begins in every tile.
        allowed = [
            (WORD, every)
            for every in (1, 2, 4, 8, 16)
            if every < rows and (runs > 1 or (is_word_aligned and every * row_bytes % WORD == 0))
        ]
        widest = spans.index(max(spans))
        starts = [0, *accumulate(columns.widths[groups[widest] : groups[widest + 1]])]
        pad, pad_rows = best_padding(starts, rows, row_bytes, min(item, WORD), [(0, 1), *allowed])
    loaded = runs * run_vectors
    # Two vectors more: funnel shifts read a word past the last.
    vectors = loaded + blocks(rows * pad, pad_rows * VECTOR) + 2
    return _Layout(item, runs, run, pad, pad_rows, loaded, vectors)


def _run_vectors(run_bytes: int, item: int) -> int:
    """Return the aligned vectors that a run reaches if it begins at any multiple of `item`."""
    return (run_bytes + 2 * (VECTOR - item)) // VECTOR


def _output_vectors(size: int, output_alignment: int) -> int:
    """Return the 16-byte vectors that `size` bytes reach from the worst address they may have."""
    lead = VECTOR - power_of_two(VECTOR, output_alignment, size)
    return blocks(size + lead, VECTOR)
