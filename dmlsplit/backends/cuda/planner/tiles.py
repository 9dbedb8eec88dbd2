"""Plans for `tile`: narrow outputs, some rows at a time, through shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise

from dmlsplit.backends.cuda.launch import (
    THREADS,
    VECTOR,
    WIDE,
    Constant,
    KernelLaunch,
    blocks,
    index_type,
    power_of_two,
)
from dmlsplit.backends.cuda.planner.banks import BANKS, WORD, best_padding
from dmlsplit.backends.cuda.planner.columns import Columns, row_launch

# Bytes of a tile, at most, and where whole rows are staged.
MOST_TILE_BYTES = 32 << 10
WHOLE_TILE_BYTES = 16 << 10
# A tile's share of an output is a whole number of 32-byte sectors if its rows are a multiple of 32,
# and it is at least as long as a line.
TILE_ROWS = 32
LINE_BYTES = 128
# Shared memory serves so many bytes in one turn.
BANKS_BYTES = BANKS * WORD


def tile(columns: Columns, source: int, target: int, common: list[Constant]) -> KernelLaunch:
    """Return the launch for narrow outputs.

    Parameters
    ----------
    columns
        The outputs.
    source, target
        Alignment of the input's address and of all outputs', a power of two up to 16.
    common
        Constants of every launch.
    """
    is_whole = takes_whole_rows(columns)
    rows = _rows(columns, is_whole)
    groups = _groups(columns, MOST_TILE_BYTES // rows)
    room = _room(columns, rows, groups, source, target)
    vectors = [_output_vectors(rows * width, target) for width in columns.widths]
    return row_launch(
        "tile",
        columns,
        [
            *common,
            Constant(WIDE, "kRows", columns.rows),
            Constant(WIDE, "kPitch", columns.pitch),
            Constant("int", "kTileRows", rows),
            Constant("int", "kRuns", room.runs),
            Constant("int", "kRunBytes", room.run_bytes),
            Constant("int", "kPad", room.pad),
            Constant("int", "kPadRows", room.pad_rows),
            Constant("int", "kItem", room.item),
            Constant("int", "kSharedVectors", room.vectors),
            Constant("unsigned", "kWidest", max(columns.widths)),
            Constant("unsigned", "kGroups", len(groups) - 1),
            Constant("unsigned", "kGroupOutputs", tuple(groups)),
            Constant(index_type(columns.offsets[-1]), "kOffsets", columns.offsets),
            Constant("unsigned", "kWidths", columns.widths),
            Constant("unsigned", "kEqualVectors", vectors[0] if columns.equal_width else 0),
            Constant("unsigned", "kVectorStarts", (0, *accumulate(vectors))),
        ],
        blocks(columns.rows, rows) * (len(groups) - 1),
        shared_bytes=room.vectors * VECTOR,
        in_flight=blocks(room.loaded_vectors, THREADS) * VECTOR,
        reason=(
            f"rows of {columns.pitch} bytes, {rows} at a time, through shared memory"
            if is_whole
            else f"outputs up to {max(columns.widths)} bytes wide, {rows} rows at a time, through "
            "shared memory"
        ),
    )


def takes_whole_rows(columns: Columns) -> bool:
    """Whether tiles are whole rows, which lie behind each other and are read as one run."""
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
    """Cut the outputs where there is a gap, and into groups of at most that many bytes of a row."""
    groups, start = [0], columns.offsets[0]
    end = start
    for index, (offset, width) in enumerate(zip(columns.offsets, columns.widths, strict=True)):
        if index > groups[-1] and (offset != end or offset + width - start > most):
            groups.append(index)
            start = offset
        end = offset + width
    return [*groups, len(columns.outputs)]


@dataclass(frozen=True, slots=True)
class _Room:
    """How a tile lies in shared memory.

    Attributes
    ----------
    item : int
        What every width, offset, pitch and address is a multiple of: 1, 2, 4 or 16.
    runs, run_bytes : int
        Runs of consecutive bytes of the input, and the length of each: one of whole rows, or one
        for each row.
    pad, pad_rows : int
        Bytes that keep the banks apart, and after how many rows they come each time.
    loaded_vectors, vectors : int
        Vectors that are read, and those that the tile takes.
    """

    item: int
    runs: int
    run_bytes: int
    pad: int
    pad_rows: int
    loaded_vectors: int
    vectors: int


def _room(columns: Columns, rows: int, groups: list[int], source: int, target: int) -> _Room:
    pitch = columns.pitch if columns.rows > 1 else VECTOR
    unit = power_of_two(VECTOR, *columns.widths, *columns.offsets, pitch, source)
    item = VECTOR if min(unit, target) == VECTOR else min(unit, target, WORD)
    spans = [
        columns.offsets[last - 1] + columns.widths[last - 1] - columns.offsets[first]
        for first, last in pairwise(groups)
    ]
    if takes_whole_rows(columns):
        run, runs = rows * columns.pitch, 1
        run_vectors = _run_vectors(run, item)
        row_bytes = columns.pitch
    else:
        run, runs = max(spans), rows
        run_vectors = _run_vectors(run, item)
        row_bytes = run_vectors * VECTOR
    if rows == 1:
        pad, pad_rows = 0, 1
    elif item == VECTOR:
        # Neighbouring vectors of an output lie in neighbouring banks, whichever rows they are of.
        pad, pad_rows = ((columns.equal_width or VECTOR) - row_bytes) % BANKS_BYTES, 1
    else:
        # A run of whole rows is cut into words, which begin with a row only at aligned places.
        allowed = [
            (WORD, every)
            for every in (1, 2, 4, 8, 16)
            if every < rows and (runs > 1 or (source >= WORD and every * row_bytes % WORD == 0))
        ]
        widest = spans.index(max(spans))
        starts = [0, *accumulate(columns.widths[groups[widest] : groups[widest + 1]])]
        pad, pad_rows = best_padding(starts, rows, row_bytes, min(item, WORD), [(0, 1), *allowed])
    loaded = runs * run_vectors
    # Two more: funnel shifts read a word past the last.
    return _Room(
        item, runs, run, pad, pad_rows, loaded, loaded + blocks(rows * pad, pad_rows * VECTOR) + 2
    )


def _run_vectors(run_bytes: int, item: int) -> int:
    """Return the aligned vectors that a run reaches, which begins at a multiple of `item`."""
    return (run_bytes + 2 * (VECTOR - item)) // VECTOR


def _output_vectors(size: int, output_alignment: int) -> int:
    """Return the 16-byte vectors that `size` bytes reach at the worst place they may start."""
    lead = VECTOR - power_of_two(VECTOR, output_alignment, size)
    return blocks(size + lead, VECTOR)
