"""Plans for `transpose`: each block transposes a tile of elements.

It serves strided splits whose input and output are contiguous along different dimensions, and rows
of outputs that are one element wide each. A kernel is compiled for an element, the shape of a
tile, the alignment of lines, the number of loops, and the room for outputs and planes. Sizes are
arguments.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain
from math import gcd, prod
from typing import NamedTuple

from dmlsplit.backends.cuda.launch import (
    LINE_BYTES,
    VECTOR,
    WORD,
    Assumptions,
    DeviceLimits,
    KernelLaunch,
    launches_within,
    outputs_within,
)
from dmlsplit.backends.cuda.planner.estimates import MIN_FILL
from dmlsplit.backends.cuda.planner.forms import Nest
from dmlsplit.backends.cuda.specialization import (
    DIVISOR,
    OFFSET_64,
    POINTER_BYTES,
    UNUSED_TILE,
    Argument,
    capacity,
    divisor,
    padded_table,
    specialize,
)
from dmlsplit.geometry import ONE_TRIP, Loop, RowSplit, StridedCopy, ceil_div

# Of a block: few, with many loads each, because a thread computes only once where its elements are.
THREADS = 128
LOADS = 8  # vectors of a thread
# The blocks per SM in __launch_bounds__, which limits a thread to 64 registers. Shared memory may
# let fewer fit.
RESIDENT = 8
TILE_BYTES = THREADS * LOADS * VECTOR
# The kernel counts the bytes of a side, and of the tile that may extend past its end, with 31 bits.
MAX_SIDE_BYTES = 2**31 - TILE_BYTES
# The most vectors in an output line of a tile: each of the four warps of a block writes eight.
MAX_LINE_VECTORS = 32
SECTOR = 32  # bytes
# Both sides of a plane must be at least this long: a line of 8 words is one sector.
MIN_SIDE = 8
MAX_PLANES = 256  # whose numbers have one byte
# The bytes of an entry in the parameters, with the address of its output.
ENTRY_BYTES = POINTER_BYTES + 8 + 4 + 1


@dataclass(frozen=True, slots=True)
class Plane:
    """Elements to transpose, and the loops around them; strides are in bytes."""

    down: int  # elements, contiguous in the input
    across: int  # elements, contiguous in the output
    down_stride: int  # of the output
    across_stride: int  # of the input
    loops: tuple[Loop, ...] = ()  # over such planes, the innermost first


@dataclass(frozen=True, slots=True)
class Tile:
    """The shape that a block transposes."""

    unit: int  # bytes of an element
    down_vectors: int  # that a block reads of each line of the input
    # The largest of 16, 4 and 1 that divides the addresses of all lines of the input, and whether
    # 16 divides the addresses of all lines of the outputs.
    input_alignment: int = VECTOR
    is_output_aligned: bool = True

    @property
    def elements(self) -> int:
        """Elements of a vector."""
        return VECTOR // self.unit

    @property
    def down(self) -> int:
        """Elements of a line of the input."""
        return (self.down_vectors - (self.input_alignment < VECTOR)) * self.elements

    @property
    def across(self) -> int:
        """Elements of a line of the output."""
        return min(TILE_BYTES // VECTOR // self.down_vectors, MAX_LINE_VECTORS * self.elements)

    @property
    def shared_vectors(self) -> int:
        """The shared memory of a block: lines of the input at any phase, in groups."""
        # After each group of `elements` lines, a vector moves the next group to other banks.
        groups = self.across // self.elements + (not self.is_output_aligned)
        pitch = self.down_vectors + (self.input_alignment < VECTOR)
        return groups * (self.elements * pitch + 1) + 1

    def counts(self, plane: Plane) -> list[int]:
        """The numbers of tiles down, across, and along the loops over planes."""
        # The first vector of an unaligned line begins before the line.
        across = plane.across + (0 if self.is_output_aligned else self.elements - 1)
        sides = ceil_div(plane.down, self.down), ceil_div(across, self.across)
        return [*sides, *(loop.size for loop in plane.loops)]

    def fill(self, planes: Iterable[Plane]) -> float:
        """The share of the tiles that elements of the planes fill, each counted once."""
        counts = [(plane, self.counts(plane)) for plane in planes]
        elements = sum(plane.down * plane.across * prod(count[2:]) for plane, count in counts)
        vectors = sum(prod(count) for _, count in counts) * self.down_vectors * self.across
        return elements * self.unit / VECTOR / vectors


def tiles(unit: int, input_alignment: int = VECTOR, is_output_aligned: bool = True) -> list[Tile]:
    """The tiles of elements of `unit` bytes, those with the longest output lines first.

    Output lines are so long that a warp writes whole cache lines. If they are unaligned, they are
    so short that all lines that a thread writes have the same phase.
    """
    # An output line has TILE_BYTES / VECTOR / down_vectors elements of `unit` bytes each, which
    # are at least LINE_BYTES in all.
    max_vectors = TILE_BYTES // VECTOR * unit // LINE_BYTES
    # `unit` vectors are 16 elements; with one vector less, twice as many are at least 16.
    min_vectors = unit if input_alignment == VECTOR else 2 * unit
    if not is_output_aligned:
        # A block writes THREADS vectors at once: down_vectors / 8 * elements lines, or four if
        # MAX_LINE_VECTORS limits them. With 8 vectors or more, the lines of a thread are thus a
        # multiple of `elements` apart. Strides are multiples of `unit`, so their phases are equal.
        min_vectors = max(min_vectors, 8)
    shapes = (min_vectors << power for power in range((max_vectors // min_vectors).bit_length()))
    return [Tile(unit, vectors, input_alignment, is_output_aligned) for vectors in shapes]


def alignments(
    planes: Sequence[Plane], offsets: Iterable[int], assumptions: Assumptions
) -> tuple[int, bool]:
    """The alignments of all lines of the input and of the outputs, as in `Tile`."""
    loops = [loop for plane in planes for loop in plane.loops]
    input_strides = [plane.across_stride for plane in planes] + [n.input_stride for n in loops]
    output_strides = [plane.down_stride for plane in planes] + [n.output_stride for n in loops]
    input_alignment = gcd(VECTOR, assumptions.input_alignment, *offsets, *input_strides)
    output_alignment = gcd(VECTOR, assumptions.output_alignment, *output_strides)
    known_alignment = next(n for n in (VECTOR, WORD, 1) if input_alignment % n == 0)
    return known_alignment, output_alignment == VECTOR


def best_tile(allowed: Iterable[Tile], planes: Sequence[Plane]) -> Tile:
    """The tile that planes fill best, to an eighth; of equals, that with the most equal sides."""
    return max(allowed, key=lambda t: (round(8 * t.fill(planes)), -abs(t.down - t.across)))


def element_launch(split: RowSplit, assumptions: Assumptions) -> KernelLaunch | None:
    """The launch for outputs that are one element wide each, or None if it does not pay.

    Rows are across and outputs down. Memory must be aligned, and outputs contiguous in the input.
    """
    unit = split.equal_width
    count = len(split.outputs)
    # The kernel cannot number longer sides, and has elements of 1, 2, 4, 8 and 16 bytes. Those of
    # 16 are left to `rows` and `tile`, which copy them as whole vectors. For other pitches,
    # `tile` takes fewer instructions (docs/design/017-transposes.md).
    can_number = max(split.rows, count) * unit <= MAX_SIDE_BYTES
    room = outputs_within(assumptions.limits, POINTER_BYTES)
    if unit not in (1, 2, 4, 8) or not can_number or split.pitch % VECTOR or count > room:
        return None
    plane = Plane(count, split.rows, down_stride=0, across_stride=split.pitch)
    # If a row needs several tiles, no sector should be in two of them, because both would read it.
    # Tiles of one vector down are allowed all the same: they only win in padded rows.
    allowed = [t for t in tiles(unit) if t.down >= count or split.pitch % SECTOR == 0]
    if not allowed or (tile := best_tile(allowed, [plane])).fill([plane]) < MIN_FILL:
        return None
    outputs = _Outputs(
        split.outputs,
        min(capacity(count), room),
        1,
        [plane],
        [(0, 0)],
        split.total_bytes,
        f"rows of {count} outputs, one {unit}-byte element each",
        has_pointers=True,
    )
    return _launch(tile, outputs, assumptions)


def down_loop(nest: Nest) -> Loop | None:
    """The loop along which the input is contiguous, if tiles of it and of rows are worthwhile."""
    *outer, row = nest.loops
    if row.output_stride != nest.unit or row.input_stride == nest.unit:
        return None
    for loop in outer:
        shorter, longer = sorted((loop.size, row.size))
        are_sides = shorter >= MIN_SIDE and longer * nest.unit <= MAX_SIDE_BYTES
        if loop.input_stride == nest.unit and are_sides:
            return loop
    return None


def transpose_launches(
    outputs_by_nest: Mapping[Nest, Sequence[int]],
    pieces: Sequence[StridedCopy],
    assumptions: Assumptions,
) -> Iterator[KernelLaunch]:
    """The launches for outputs by nest; all nests have a down loop and the same unit."""
    launch = partial(_launch_of_nests, pieces, assumptions)
    outputs = [(nest, output) for nest, indices in outputs_by_nest.items() for output in indices]
    return launches_within(launch, outputs, assumptions.limits.parameter_bytes)


def _launch_of_nests(
    pieces: Sequence[StridedCopy],
    assumptions: Assumptions,
    nest_outputs: Sequence[tuple[Nest, int]],
) -> KernelLaunch | None:
    """The launch for outputs, each with its nest; None if they or distinct nests are too many."""
    nests = list(dict.fromkeys(nest for nest, _ in nest_outputs))
    unit = nests[0].unit
    planes = tuple(map(_plane, nests))
    slots, plane_slots = _slots(len(nest_outputs), planes, assumptions.limits)
    if len(nests) > min(plane_slots, MAX_PLANES) or len(nest_outputs) > slots:
        return None
    plane_of = {nest: index for index, nest in enumerate(nests)}
    copies = [pieces[output] for _, output in nest_outputs]
    offsets = [copy.input_offset for copy in copies]
    outputs = _Outputs(
        tuple(output for _, output in nest_outputs),
        slots,
        plane_slots,
        planes,
        [(offset, plane_of[nest]) for offset, (nest, _) in zip(offsets, nest_outputs, strict=True)],
        sum(copy.total_bytes for copy in copies),
        f"{unit}-byte elements, contiguous along different dimensions in input and output",
    )
    tile = best_tile(tiles(unit, *alignments(planes, offsets, assumptions)), planes)
    return _launch(tile, outputs, assumptions)


def _slots(count: int, planes: Sequence[Plane], limits: DeviceLimits) -> tuple[int, int]:
    """The outputs and the planes that the parameters have room for: a power of four, if it fits."""
    depth = max(len(plane.loops) for plane in planes)
    # Two strides and two sizes; two strides for each loop; a count and its divisor for each digit.
    plane_bytes = 24 + 16 * depth + 12 * (depth + 1)
    most_planes = outputs_within(limits, ENTRY_BYTES + plane_bytes)
    plane_slots = min(capacity(len(planes), least=1), most_planes)
    most = outputs_within(limits, ENTRY_BYTES, plane_slots * plane_bytes)
    return min(capacity(count, least=1), most), plane_slots


def _plane(nest: Nest) -> Plane:
    """The plane of the down loop and the row of a nest, inside its other loops."""
    *outer, across = nest.loops
    down = down_loop(nest)
    assert down is not None
    outer.remove(down)
    loops = tuple(reversed(outer))
    return Plane(down.size, across.size, down.output_stride, across.input_stride, loops)


class _Outputs(NamedTuple):
    """The outputs of a launch.

    With `has_pointers` there is one entry, and each line of its plane (`down_stride` 0) is an
    output.
    """

    indices: tuple[int, ...]  # into the geometry's pieces
    slots: int  # outputs that the parameters have room for
    plane_slots: int  # planes that they have room for
    planes: Sequence[Plane]  # distinct ones
    entries: Sequence[tuple[int, int]]  # an output's first byte in the input, and its plane's index
    total_bytes: int
    reason: str  # as in `KernelLaunch`
    has_pointers: bool = False

    @property
    def entry_slots(self) -> int:
        """The entries that the parameters have room for."""
        return 1 if self.has_pointers else self.slots

    @property
    def depth(self) -> int:
        """The most loops around a plane."""
        return max(len(plane.loops) for plane in self.planes)


def _launch(tile: Tile, outputs: _Outputs, assumptions: Assumptions) -> KernelLaunch:
    """The launch that writes outputs in tiles of their planes."""
    tile_counts = [prod(tile.counts(outputs.planes[n])) for _, n in outputs.entries]
    *starts, grid = accumulate(tile_counts, initial=0)
    constants = _constants(tile, outputs)
    tables = _tables(tile, outputs, starts)
    return KernelLaunch(
        *specialize("transpose", outputs.slots, RESIDENT, constants, tables, THREADS),
        outputs=outputs.indices,
        total_bytes=outputs.total_bytes,
        is_streaming=assumptions.is_streaming,
        grid=grid,
        shared_bytes=tile.shared_vectors * VECTOR,
        bytes_in_flight=LOADS * VECTOR,
        reason=outputs.reason,
        threads=THREADS,
    )


def _constants(tile: Tile, outputs: _Outputs) -> tuple[Argument, ...]:
    """The constants of a launch, which select its specialization."""
    return (
        ("int", "kUnit", tile.unit),
        ("int", "kDownVectors", tile.down_vectors),
        ("int", "kAcross", tile.across),
        ("int", "kInputAlign", tile.input_alignment),
        ("bool", "kOutputAligned", int(tile.is_output_aligned)),
        ("int", "kSharedVectors", tile.shared_vectors),
        ("bool", "kPointers", int(outputs.has_pointers)),
        ("int", "kEntries", outputs.entry_slots),
        ("int", "kPlanes", outputs.plane_slots),
        ("int", "kLoops", outputs.depth),
    )


def _tables(tile: Tile, outputs: _Outputs, starts: Sequence[int]) -> Iterator[Argument]:
    """The tables of planes, and those of entries: offset in the input, first block, and plane."""
    offsets, plane_indices = zip(*outputs.entries, strict=True)
    slots = outputs.entry_slots
    yield OFFSET_64, "offsets", padded_table(offsets, slots, 0)
    yield from _plane_tables(tile, outputs)
    yield "unsigned", "starts", padded_table(starts, slots, UNUSED_TILE)
    yield "unsigned char", "planes", padded_table(plane_indices, slots, 0)


def _plane_tables(tile: Tile, outputs: _Outputs) -> Iterator[Argument]:
    """The tables of planes: sizes, strides, and numbers of tiles with divisors by them.

    All planes get the loops of the deepest one; a table has at least one entry. Unused slots have
    the first plane again.
    """
    planes = padded_table(outputs.planes, outputs.plane_slots, outputs.planes[0])
    depth = outputs.depth
    plane_loops = [[*plane.loops, *[ONE_TRIP] * depth][:depth] for plane in planes]
    loops = list(chain.from_iterable(plane_loops)) or [ONE_TRIP]
    # The outermost loop takes what remains of a number, and needs no divisor.
    plane_counts = [[*tile.counts(plane), *[1] * depth][: depth + 1] for plane in planes]
    counts = tuple(chain.from_iterable(plane_counts))
    yield OFFSET_64, "across_strides", tuple(plane.across_stride for plane in planes)
    yield OFFSET_64, "down_strides", tuple(plane.down_stride for plane in planes)
    yield OFFSET_64, "input_strides", tuple(loop.input_stride for loop in loops)
    yield OFFSET_64, "output_strides", tuple(loop.output_stride for loop in loops)
    yield "unsigned", "across_sizes", tuple(plane.across for plane in planes)
    yield "unsigned", "down_sizes", tuple(plane.down for plane in planes)
    yield "unsigned", "counts", counts
    yield DIVISOR, "by_counts", tuple(map(divisor, counts))
