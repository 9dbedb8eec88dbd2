"""Which kernels carry out a geometry, and how they are launched. Pure, and GPU-free.

A plan bakes every size and offset into constants; a launch passes pointers only. The choice:

==============  ===============================================================================
`vector`        all rows of all outputs are multiples of 16 bytes, at aligned addresses
`deinterleave`  a few equal elements of 1 to 8 bytes to a row, at aligned addresses
`tile`          short rows, or narrow outputs of long rows, through shared memory
`shift`         wide outputs at any alignment, through funnel shifts
`transpose`     strided boxes whose two sides are contiguous along different dimensions
`strided`       everything else
==============  ===============================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate, pairwise
from math import gcd, prod

from dmlsplit.geometry import RowSplit, SplitGeometry, StridedCopy

VECTOR = 16
THREADS = 256
LOADS = 4
BLOCK_BYTES = THREADS * LOADS * VECTOR

# Rows up to this length are staged whole, in tiles of about TILE_BYTES.
WHOLE_ROW_BYTES = 1024
TILE_BYTES = 16 << 10
# A tile's share of an output is a whole number of 32-byte sectors if its rows are a multiple of 32.
TILE_ROWS = 32
# Outputs of at least this width gain from staying out of shared memory.
WIDE_BYTES = 512
# Registers that a thread of `deinterleave` can spare for its input.
DEINTERLEAVE_BYTES = 128
# Distinct boxes that one strided launch makes code for.
BOXES = 16
# Shared memory that is in use by the system in every block.
RESERVED_SHARED_BYTES = 1024


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """What the planner must know of a CUDA device.

    Attributes
    ----------
    sm_count, threads_per_sm : int
        Streaming multiprocessors, and resident threads of each.
    shared_per_sm, shared_per_block : int
        Shared memory, in bytes; per block without opting in.
    l2_bytes : int
        Size of the L2 cache.
    parameter_bytes : int
        Kernel parameters that the driver takes: 32764 since CUDA 12.1, 4096 before.
    """

    sm_count: int
    threads_per_sm: int
    shared_per_sm: int
    shared_per_block: int
    l2_bytes: int
    parameter_bytes: int


H200 = DeviceLimits(132, 2048, 228 << 10, 48 << 10, 60 << 20, 32764)


@dataclass(frozen=True, slots=True)
class Constant:
    """One baked constant: C++ type, name, and a number, a table, or a type for ``using``."""

    type: str
    name: str
    value: int | tuple[int, ...] | str


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """One launch of one kernel.

    The kernel's only parameter is a struct by value of 64-bit pointers: the first element of
    the input, then the first element of each output in `outputs`, in that order.

    Attributes
    ----------
    kernel : str
        Its name, and that of its file in ``cuda/``.
    constants : tuple of Constant
        Baked into the source by `codegen`.
    outputs : tuple of int
        The outputs it writes, as indices into the geometry's pieces.
    grid, block : int
        Blocks (one dimension) and threads per block.
    shared_bytes : int
        Static shared memory of a block.
    bytes_in_flight : int
        Bytes that one thread has requested before it waits for the first.
    total_bytes : int
        Bytes read, which is also the number of bytes written.
    reason : str
        Why this kernel, in one line.
    """

    kernel: str
    constants: tuple[Constant, ...]
    outputs: tuple[int, ...]
    grid: int
    block: int
    shared_bytes: int
    bytes_in_flight: int
    total_bytes: int
    reason: str

    def blocks_per_sm(self, limits: DeviceLimits) -> int:
        """Return how many blocks an SM holds, as far as threads and shared memory go."""
        by_threads = limits.threads_per_sm // self.block
        if not self.shared_bytes:
            return by_threads
        return min(by_threads, limits.shared_per_sm // (self.shared_bytes + RESERVED_SHARED_BYTES))


@dataclass(frozen=True, slots=True)
class Plan:
    """The launches that carry out a geometry; their order does not matter."""

    launches: tuple[KernelLaunch, ...]


def plan(
    geometry: SplitGeometry,
    source_alignment: int,
    target_alignment: int,
    limits: DeviceLimits = H200,
) -> Plan:
    """Choose the launches of a geometry.

    Parameters
    ----------
    geometry
        What to copy.
    source_alignment, target_alignment
        The largest power of two, 1 to 16, that divides the address of the input's first
        element, and those of all outputs.
    limits
        The device.
    """
    stream = 2 * geometry.total_bytes > limits.l2_bytes
    common = [Constant("bool", "kStream", int(stream))]
    most = limits.parameter_bytes // 8 - 1
    rows = geometry.row_split
    if rows is None:
        launches = _strided(geometry, source_alignment, target_alignment, common, most)
    else:
        launches = _rows(rows, source_alignment, target_alignment, common, most)
    return Plan(tuple(launches))


def power_of_two(limit: int, *values: int) -> int:
    """Return the largest power of two up to `limit` that divides every value."""
    return reduce(gcd, values, limit)


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


def _rows(
    split: RowSplit, source: int, target: int, common: list[Constant], most: int
) -> Iterator[KernelLaunch]:
    places = [i for i, width in enumerate(split.widths) if width]
    columns = _Columns(
        split.rows, split.pitch, tuple(range(len(split.widths))), split.offsets, split.widths
    ).take(places)
    aligned = min(source, target) == VECTOR
    unit = power_of_two(
        VECTOR, *columns.widths, columns.first_byte, split.pitch if split.rows > 1 else VECTOR
    )
    if aligned and unit == VECTOR:
        yield from _each(columns, most, lambda part: _vector(part, common))
    elif aligned and _is_interleaved(columns):
        yield _deinterleave(columns, common)
    elif (
        columns.row_bytes == split.pitch <= WHOLE_ROW_BYTES
        and len(places) <= most
        and split.rows > 1
    ):
        yield _tile(columns, source, target, common)
    else:
        wide = [i for i, width in enumerate(columns.widths) if width >= WIDE_BYTES]
        if wide:
            yield from _each(columns.take(wide), most, lambda part: _shift(part, common))
        for run in _runs([i for i, width in enumerate(columns.widths) if width < WIDE_BYTES]):
            yield from _each(
                columns.take(run), most, lambda part: _tile(part, source, target, common)
            )


def _each(
    columns: _Columns, most: int, make: Callable[[_Columns], KernelLaunch]
) -> Iterator[KernelLaunch]:
    """Yield one launch for as many outputs as the kernel parameters hold."""
    count = len(columns.outputs)
    for first in range(0, count, most):
        yield make(columns.take(range(first, min(first + most, count))))


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
    index = _index_type(row_vectors + THREADS * LOADS)
    starts = tuple(start // VECTOR for start in columns.starts)
    return _launch(
        "vector",
        columns,
        [
            *common,
            Constant("int", "kLoads", LOADS),
            Constant("using", "Column", index),
            Constant(_WIDE, "kRows", columns.rows),
            Constant(_WIDE, "kPitch", columns.pitch),
            Constant(_WIDE, "kFirstByte", columns.first_byte),
            Constant("Column", "kRowVectors", row_vectors),
            Constant("Column", "kEqualVectors", columns.equal_width // VECTOR),
            Constant("Column", "kStarts", starts),
        ],
        _blocks(columns.rows * row_vectors, THREADS * LOADS),
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
    return _launch(
        "deinterleave",
        columns,
        [*common, Constant(_WIDE, "kRows", columns.rows), Constant("int", "kWidth", width)],
        max(1, _blocks(groups, THREADS)),
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
    tiles = [_blocks(count, THREADS * LOADS) for count in vectors]
    shares = tuple(_blocks(count, tile) for count, tile in zip(vectors, tiles, strict=True))
    span = _index_type(rows * widest + VECTOR)
    chunk_tiles = sum(tiles)
    return _launch(
        "shift",
        columns,
        [
            *common,
            Constant("int", "kLoads", LOADS),
            Constant("using", "Span", span),
            Constant(_WIDE, "kRows", columns.rows),
            Constant(_WIDE, "kPitch", columns.pitch),
            Constant(_WIDE, "kChunkRows", rows),
            Constant("unsigned", "kChunkTiles", chunk_tiles),
            Constant("unsigned", "kTileStarts", (0, *accumulate(tiles))),
            Constant("unsigned", "kShares", shares),
            Constant("Span", "kWidths", columns.widths),
            Constant(_WIDE, "kOffsets", columns.offsets),
        ],
        _blocks(columns.rows, rows) * chunk_tiles,
        in_flight=LOADS * VECTOR,
        reason=f"widths of {narrowest} bytes and more, at any alignment",
    )


def _tile(columns: _Columns, source: int, target: int, common: list[Constant]) -> KernelLaunch:
    whole_rows = columns.row_bytes == columns.pitch <= WHOLE_ROW_BYTES
    rows = _tile_rows(columns, whole_rows)
    groups = [0, len(columns.outputs)]
    if not whole_rows:
        groups = _groups(columns, max(WHOLE_ROW_BYTES, TILE_BYTES // rows))
    pitch = columns.pitch if columns.rows > 1 else VECTOR
    item = power_of_two(4, *columns.widths, columns.first_byte, pitch, source)
    pad = 4 if item == 4 and rows > 1 else 0
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
    loads = _blocks((1 if whole_rows else rows) * run_vectors, THREADS)
    group_count = len(groups) - 1
    return _launch(
        "tile",
        columns,
        [
            *common,
            Constant(_WIDE, "kRows", columns.rows),
            Constant(_WIDE, "kPitch", columns.pitch),
            Constant(_WIDE, "kFirstByte", columns.first_byte),
            Constant("int", "kTileRows", rows),
            Constant("int", "kRuns", 1 if whole_rows else max(2, rows)),
            Constant("int", "kRunBytes", run),
            Constant("int", "kPad", pad),
            Constant("int", "kItem", item),
            Constant("int", "kEdge", min(item, target)),
            Constant("int", "kSharedVectors", shared_vectors),
            Constant("unsigned", "kWidest", max(columns.widths)),
            Constant("unsigned", "kGroups", group_count),
            Constant("unsigned", "kGroupOutputs", tuple(groups)),
            Constant("unsigned", "kColumns", starts),
            Constant("unsigned", "kEqualVectors", vectors[0] if columns.equal_width else 0),
            Constant("unsigned", "kVectorStarts", (0, *accumulate(vectors))),
        ],
        _blocks(columns.rows, rows) * group_count,
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
    return _blocks(size + lead, VECTOR)


@dataclass(frozen=True, slots=True)
class _Box:
    """A loop nest in units: the shape that outputs of one strided launch share."""

    sizes: tuple[int, ...]
    source_strides: tuple[int, ...]
    target_strides: tuple[int, ...]
    run_bytes: int


def _strided(
    geometry: SplitGeometry, source: int, target: int, common: list[Constant], most: int
) -> Iterator[KernelLaunch]:
    by_kernel: dict[tuple[str, int], dict[int, _Box]] = {}
    for index, piece in enumerate(geometry.pieces):
        if piece.run_bytes:
            box = _Box(piece.shape, piece.source_strides, piece.target_strides, piece.run_bytes)
            unit = _unit(piece, source, target)
            kernel = "transpose" if _down(box, unit) is not None else "strided"
            by_kernel.setdefault((kernel, unit), {})[index] = box
    for (kernel, unit), boxes in by_kernel.items():
        make = _transpose if kernel == "transpose" else _box_copy
        for outputs in _box_groups(boxes, most):
            offsets = [geometry.pieces[i].source_offset for i in outputs]
            yield make([boxes[i] for i in outputs], outputs, offsets, unit, common)


def _unit(piece: StridedCopy, source: int, target: int) -> int:
    strides = (*piece.source_strides, *piece.target_strides)
    return power_of_two(VECTOR, source, target, piece.run_bytes, piece.source_offset, *strides)


def _box_groups(boxes: dict[int, _Box], most: int) -> Iterator[list[int]]:
    """Cut outputs into launches of at most BOXES distinct boxes and `most` outputs."""
    group: list[int] = []
    seen: set[_Box] = set()
    for index, box in boxes.items():
        if group and (len(group) == most or len(seen | {box}) > BOXES):
            yield group
            group, seen = [], set()
        group.append(index)
        seen.add(box)
    if group:
        yield group


def _box_copy(
    boxes: list[_Box], outputs: list[int], offsets: list[int], unit: int, common: list[Constant]
) -> KernelLaunch:
    distinct = list(dict.fromkeys(boxes))
    units = [prod(box.sizes) * box.run_bytes // unit for box in distinct]
    loads = LOADS if unit >= 8 else 2 * LOADS
    tiles = [_blocks(units[distinct.index(box)], THREADS * loads) for box in boxes]
    return _box_launch(
        "strided",
        boxes,
        outputs,
        offsets,
        unit,
        [
            *common,
            Constant("int", "kLoads", loads),
            Constant("using", "Index", _index_type(max(units) + THREADS * loads)),
            Constant("Index", "kUnits", tuple(units)),
            Constant("Index", "kRunUnits", tuple(box.run_bytes // unit for box in distinct)),
            *_nest(
                [(box.sizes, box.source_strides, box.target_strides) for box in distinct], "Index"
            ),
        ],
        tiles,
        in_flight=loads * unit,
        reason=f"strided, in units of {unit} bytes",
    )


def _down(box: _Box, unit: int) -> int | None:
    """Return the dimension along which the input is contiguous, if the output's is another."""
    if box.run_bytes != unit or not box.sizes or box.target_strides[-1] != unit:
        return None
    for dimension in range(len(box.sizes) - 1):
        if box.source_strides[dimension] == unit and min(box.sizes[dimension], box.sizes[-1]) >= 8:
            return dimension
    return None


def _transpose(
    boxes: list[_Box], outputs: list[int], offsets: list[int], unit: int, common: list[Constant]
) -> KernelLaunch:
    side = 64 if unit <= 4 else 32
    distinct = list(dict.fromkeys(boxes))
    downs = [_down(box, unit) or 0 for box in distinct]
    squares, nests = [], []
    for box, down in zip(distinct, downs, strict=True):
        others = [d for d in range(len(box.sizes) - 1) if d != down]
        nests.append(
            tuple(
                tuple(row[d] for d in others)
                for row in (box.sizes, box.source_strides, box.target_strides)
            )
        )
        flat = _blocks(box.sizes[-1], side) * _blocks(box.sizes[down], side)
        squares.append(flat * prod(box.sizes[d] for d in others))
    rows = list(zip(distinct, downs, strict=True))
    return _box_launch(
        "transpose",
        boxes,
        outputs,
        offsets,
        unit,
        [
            *common,
            Constant("int", "kSide", side),
            Constant(_WIDE, "kAcross", tuple(box.sizes[-1] for box in distinct)),
            Constant(_WIDE, "kDown", tuple(box.sizes[down] for box, down in rows)),
            Constant(_SIGNED, "kAcrossStride", tuple(box.source_strides[-1] for box in distinct)),
            Constant(_SIGNED, "kDownStride", tuple(box.target_strides[down] for box, down in rows)),
            *_nest(nests, _WIDE),
        ],
        [squares[distinct.index(box)] for box in boxes],
        shared_bytes=side * (side + 1) * unit,
        in_flight=side * side // THREADS * unit,
        reason=f"input and output are contiguous along different dimensions, {unit} bytes each",
    )


def _nest(nests: Sequence[Sequence[tuple[int, ...]]], index: str) -> list[Constant]:
    """Return the tables of loop nests, filled up in front to the deepest of them."""
    deep = max(1, *(len(sizes) for sizes, _, _ in nests))
    tables: list[list[int]] = [[], [], []]
    for nest in nests:
        for table, row, filler in zip(tables, nest, (1, 0, 0), strict=True):
            table += [filler] * (deep - len(row)) + list(row)
    return [
        Constant("int", "kDimensions", deep),
        Constant(index, "kSizes", tuple(tables[0])),
        Constant(_SIGNED, "kSourceStrides", tuple(tables[1])),
        Constant(_SIGNED, "kTargetStrides", tuple(tables[2])),
    ]


def _box_launch(
    kernel: str,
    boxes: list[_Box],
    outputs: list[int],
    offsets: list[int],
    unit: int,
    constants: list[Constant],
    tiles: list[int],
    *,
    in_flight: int,
    reason: str,
    shared_bytes: int = 0,
) -> KernelLaunch:
    distinct = list(dict.fromkeys(boxes))
    tables = [
        Constant("int", "kUnit", unit),
        Constant("int", "kBoxes", len(distinct)),
        Constant("unsigned", "kOutputBoxes", tuple(distinct.index(box) for box in boxes)),
        Constant("unsigned", "kTileStarts", (0, *accumulate(tiles))),
        Constant(_SIGNED, "kOffsets", tuple(offsets)),
    ]
    return KernelLaunch(
        kernel,
        (*_shape(outputs), *constants, *tables),
        tuple(outputs),
        sum(tiles),
        THREADS,
        shared_bytes,
        in_flight,
        sum(prod(box.sizes) * box.run_bytes for box in boxes),
        reason,
    )


def _launch(
    kernel: str,
    columns: _Columns,
    constants: list[Constant],
    grid: int,
    *,
    in_flight: int,
    reason: str,
    shared_bytes: int = 0,
) -> KernelLaunch:
    return KernelLaunch(
        kernel,
        (*_shape(columns.outputs), *constants),
        columns.outputs,
        grid,
        THREADS,
        shared_bytes,
        in_flight,
        columns.total_bytes,
        reason,
    )


_WIDE = "unsigned long long"
_SIGNED = "long long"


def _shape(outputs: Sequence[int]) -> tuple[Constant, Constant]:
    return Constant("int", "kOutputs", len(outputs)), Constant("int", "kThreads", THREADS)


def _index_type(largest: int) -> str:
    return "unsigned" if largest < 2**32 else _WIDE


def _blocks(total: int, each: int) -> int:
    return -(-total // each)
