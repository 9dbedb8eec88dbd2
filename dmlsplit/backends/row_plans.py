"""Plans for packed splits: rows of bytes, cut at the same columns in every row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from dmlsplit.backends.kernel_launch import (
    CONSTANT_BYTES,
    LOADS,
    THREADS,
    VECTOR,
    WIDE,
    Constant,
    KernelLaunch,
    blocks,
    index_type,
    kernel_launch,
    power_of_two,
)
from dmlsplit.geometry import RowSplit

BLOCK_BYTES = THREADS * LOADS * VECTOR

# Rows up to this length are staged whole, in tiles of about TILE_BYTES.
WHOLE_ROW_BYTES = 1024
TILE_BYTES = 16 << 10
# A tile's share of an output is a whole number of 32-byte sectors if its rows are a multiple of 32.
TILE_ROWS = 32
# Outputs of at least this width gain from staying out of shared memory.
WIDE_BYTES = 512
# Lanes of a warp that read different entries of a constant table, such as the outputs' addresses,
# do so in turns (CUDA C++ Programming Guide, "Constant memory"). These many outputs are few enough.
WARP_BYTES, WARP_OUTPUTS = 32 * VECTOR, 4
# Narrow outputs among wide ones are not worth a launch of their own below this share of the bytes.
NARROW_SHARE = 1 / 16
# Registers that a thread of `deinterleave` can spare for its input.
DEINTERLEAVE_BYTES = 128


@dataclass(frozen=True, slots=True)
class _Columns:
    """Neighbouring outputs of a row split, and where their columns begin."""

    rows: int
    pitch: int
    outputs: tuple[int, ...]
    offsets: tuple[int, ...]
    widths: tuple[int, ...]

    @property
    def first_byte(self) -> int:
        return self.offsets[0]

    @property
    def row_bytes(self) -> int:
        return sum(self.widths)

    @property
    def total_bytes(self) -> int:
        return self.rows * self.row_bytes

    @property
    def equal_width(self) -> int:
        """The width, if all are equal; else 0."""
        return self.widths[0] if len(set(self.widths)) == 1 else 0

    @property
    def starts(self) -> tuple[int, ...]:
        """Columns from the first output on, with the end of the last."""
        return (*(offset - self.first_byte for offset in self.offsets), self.row_bytes)

    def take(self, places: Sequence[int]) -> _Columns:
        return _Columns(
            self.rows,
            self.pitch,
            tuple(self.outputs[i] for i in places),
            tuple(self.offsets[i] for i in places),
            tuple(self.widths[i] for i in places),
        )


def row_launches(
    split: RowSplit, source: int, target: int, common: list[Constant], most: int
) -> Iterator[KernelLaunch]:
    """Yield launches for a packed split; parameters as in `box_plans.box_launches`."""
    places = [i for i, width in enumerate(split.widths) if width]
    columns = _Columns(
        split.rows, split.pitch, tuple(range(len(split.widths))), split.offsets, split.widths
    ).take(places)
    aligned = min(source, target) == VECTOR
    unit = power_of_two(
        VECTOR, *columns.widths, columns.first_byte, split.pitch if split.rows > 1 else VECTOR
    )
    if aligned and unit == VECTOR and not _is_crowded(columns):
        yield from _each(columns, most, lambda part: _vector(part, common))
    elif aligned and _is_interleaved(columns):
        yield _deinterleave(columns, common)
    elif (
        columns.row_bytes == split.pitch <= WHOLE_ROW_BYTES
        and len(places) <= most
        and split.rows > 1
    ):
        yield _tile(columns, source, target, common)
    elif _narrow_bytes(columns) <= NARROW_SHARE * columns.row_bytes:
        yield from _each(columns, most, lambda part: _shift(part, common))
    else:
        wide = [i for i, width in enumerate(columns.widths) if width >= WIDE_BYTES]
        if wide:
            yield from _each(columns.take(wide), most, lambda part: _shift(part, common))
        for run in _runs([i for i, width in enumerate(columns.widths) if width < WIDE_BYTES]):
            yield from _each(
                columns.take(run), most, lambda part: _tile(part, source, target, common)
            )


def _is_crowded(columns: _Columns) -> bool:
    """Whether a warp's share of a row lies in too many outputs, all of them narrow."""
    outputs = min(len(columns.outputs), len(columns.outputs) * WARP_BYTES / columns.row_bytes)
    is_narrow = max(columns.widths) < WIDE_BYTES and columns.rows >= TILE_ROWS
    return is_narrow and outputs > WARP_OUTPUTS


def _narrow_bytes(columns: _Columns) -> int:
    return sum(width for width in columns.widths if width < WIDE_BYTES)


def _each(
    columns: _Columns, most: int, make: Callable[[_Columns], KernelLaunch]
) -> Iterator[KernelLaunch]:
    """Yield one launch for as many outputs as parameters and constant memory hold."""
    count = len(columns.outputs)
    for first in range(0, count, most):
        part = columns.take(range(first, min(first + most, count)))
        launch = make(part)
        if launch.constant_bytes <= CONSTANT_BYTES:
            yield launch
        else:
            yield from _each(part, -(-len(part.outputs) // 2), make)


def _runs(places: Sequence[int]) -> Iterator[list[int]]:
    """Yield the runs of consecutive numbers."""
    run: list[int] = []
    for place in places:
        if run and place != run[-1] + 1:
            yield run
            run = []
        run.append(place)
    if run:
        yield run


def _vector(columns: _Columns, common: list[Constant]) -> KernelLaunch:
    row_vectors = columns.row_bytes // VECTOR
    index = index_type(row_vectors + THREADS * LOADS)
    starts = tuple(start // VECTOR for start in columns.starts)
    return _row_launch(
        "vector",
        columns,
        [
            *common,
            Constant("int", "kLoads", LOADS),
            Constant("using", "Column", index),
            Constant(WIDE, "kRows", columns.rows),
            Constant(WIDE, "kPitch", columns.pitch),
            Constant(WIDE, "kFirstByte", columns.first_byte),
            Constant("Column", "kRowVectors", row_vectors),
            Constant("Column", "kEqualVectors", columns.equal_width // VECTOR),
            Constant("Column", "kStarts", starts),
        ],
        blocks(columns.rows * row_vectors, THREADS * LOADS),
        in_flight=LOADS * VECTOR,
        reason="every width, offset and address is a multiple of 16 bytes",
    )


def _is_interleaved(columns: _Columns) -> bool:
    width, count = columns.equal_width, len(columns.outputs)
    return (
        width in (1, 2, 4, 8)
        and 2 <= count <= DEINTERLEAVE_BYTES // VECTOR
        and columns.row_bytes == columns.pitch
        and columns.first_byte == 0
        and columns.rows >= VECTOR
    )


def _deinterleave(columns: _Columns, common: list[Constant]) -> KernelLaunch:
    width = columns.equal_width
    groups = columns.rows // (VECTOR // width)
    return _row_launch(
        "deinterleave",
        columns,
        [*common, Constant(WIDE, "kRows", columns.rows), Constant("int", "kWidth", width)],
        max(1, blocks(groups, THREADS)),
        in_flight=len(columns.outputs) * VECTOR,
        reason=f"rows of {len(columns.outputs)} elements of {width} bytes fit in registers",
    )


def _shift(columns: _Columns, common: list[Constant]) -> KernelLaunch:
    widest, narrowest = max(columns.widths), min(columns.widths)
    rows = min(columns.rows, -(-BLOCK_BYTES // narrowest))
    if rows * widest >= 2**31:
        rows = 1
    # A chunk of an output spans at most two vectors more than its bytes fill.
    vectors = [rows * width // VECTOR + 2 for width in columns.widths]
    tiles = [blocks(count, THREADS * LOADS) for count in vectors]
    shares = tuple(blocks(count, tile) for count, tile in zip(vectors, tiles, strict=True))
    span = index_type(rows * widest + VECTOR)
    chunk_tiles = sum(tiles)
    return _row_launch(
        "shift",
        columns,
        [
            *common,
            Constant("int", "kLoads", LOADS),
            Constant("using", "Span", span),
            Constant(WIDE, "kRows", columns.rows),
            Constant(WIDE, "kPitch", columns.pitch),
            Constant(WIDE, "kChunkRows", rows),
            Constant("unsigned", "kChunkTiles", chunk_tiles),
            Constant("unsigned", "kTileStarts", (0, *accumulate(tiles))),
            Constant("unsigned", "kShares", shares),
            Constant("Span", "kWidths", columns.widths),
            Constant(index_type(columns.offsets[-1]), "kOffsets", columns.offsets),
        ],
        blocks(columns.rows, rows) * chunk_tiles,
        in_flight=LOADS * VECTOR,
        reason="wide outputs, at any alignment",
    )


def _tile(columns: _Columns, source: int, target: int, common: list[Constant]) -> KernelLaunch:
    whole_rows = columns.row_bytes == columns.pitch <= WHOLE_ROW_BYTES
    rows = _tile_rows(columns, whole_rows)
    groups = [0, len(columns.outputs)]
    if not whole_rows:
        groups = _groups(columns, max(WHOLE_ROW_BYTES, TILE_BYTES // rows))
    pitch = columns.pitch if columns.rows > 1 else VECTOR
    word = power_of_two(4, *columns.widths, columns.first_byte, pitch, source)
    pad = 4 if word == 4 and rows > 1 else 0
    starts = columns.starts
    run = (
        rows * columns.pitch
        if whole_rows
        else max(starts[b] - starts[a] for a, b in pairwise(groups))
    )
    run_vectors = (run + 2 * (VECTOR - 1)) // VECTOR
    if not whole_rows:
        held_bytes = rows * (run_vectors * VECTOR + pad)
    elif pad:
        held_bytes = rows * (columns.pitch + pad)
    else:
        held_bytes = run_vectors * VECTOR
    shared_vectors = held_bytes // VECTOR + 2
    vectors = [_output_vectors(rows * width, target) for width in columns.widths]
    loads = blocks((1 if whole_rows else rows) * run_vectors, THREADS)
    group_count = len(groups) - 1
    return _row_launch(
        "tile",
        columns,
        [
            *common,
            Constant(WIDE, "kRows", columns.rows),
            Constant(WIDE, "kPitch", columns.pitch),
            Constant(WIDE, "kFirstByte", columns.first_byte),
            Constant("int", "kTileRows", rows),
            Constant("int", "kRuns", 1 if whole_rows else max(2, rows)),
            Constant("int", "kRunBytes", run),
            Constant("int", "kPad", pad),
            Constant("int", "kItem", min(word, target)),
            Constant("int", "kSharedVectors", shared_vectors),
            Constant("unsigned", "kWidest", max(columns.widths)),
            Constant("unsigned", "kGroups", group_count),
            Constant("unsigned", "kGroupOutputs", tuple(groups)),
            Constant("unsigned", "kColumns", starts),
            Constant("unsigned", "kEqualVectors", vectors[0] if columns.equal_width else 0),
            Constant("unsigned", "kVectorStarts", (0, *accumulate(vectors))),
        ],
        blocks(columns.rows, rows) * group_count,
        shared_bytes=shared_vectors * VECTOR,
        in_flight=loads * VECTOR,
        reason=(
            f"rows of {columns.pitch} bytes, {rows} at a time, through shared memory"
            if whole_rows
            else f"outputs under {WIDE_BYTES} bytes, {rows} rows at a time, through shared memory"
        ),
    )


def _tile_rows(columns: _Columns, whole_rows: bool) -> int:
    rows = TILE_ROWS
    if whole_rows:
        rows = max(rows, TILE_BYTES // columns.pitch // TILE_ROWS * TILE_ROWS)
    return min(rows, columns.rows)


def _groups(columns: _Columns, most: int) -> list[int]:
    """Cut the outputs into groups of at most that many bytes of a row."""
    groups, start = [0], 0
    for index, end in enumerate(columns.starts[1:]):
        if end - start > most:
            groups.append(index)
            start = columns.starts[index]
    return [*groups, len(columns.outputs)]


def _output_vectors(size: int, target_alignment: int) -> int:
    """Return the 16-byte vectors that `size` bytes reach at the worst place they may start."""
    lead = VECTOR - power_of_two(VECTOR, target_alignment, size)
    return blocks(size + lead, VECTOR)


def _row_launch(
    kernel: str,
    columns: _Columns,
    constants: list[Constant],
    grid: int,
    *,
    in_flight: int,
    reason: str,
    shared_bytes: int = 0,
) -> KernelLaunch:
    return kernel_launch(
        kernel,
        columns.outputs,
        constants,
        grid,
        in_flight=in_flight,
        total_bytes=columns.total_bytes,
        reason=reason,
        shared_bytes=shared_bytes,
    )
