"""Plans for `transpose`: each block transposes a square of elements.

It serves strided splits whose input and output are contiguous along different dimensions, and rows
of outputs that are one element wide each. A kernel is compiled for an element, the shape of a
square, the alignment of lines, and how many outputs, planes and loops there are, not for sizes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from math import gcd, prod

from dmlsplit.backends.cuda.launch import (
    DIVISOR,
    LINE_BYTES,
    LOADS,
    OFFSET_64,
    THREADS,
    VECTOR,
    WORD,
    Assumptions,
    Constant,
    KernelLaunch,
    coded,
    divisor,
    fitting,
    resident_for,
)
from dmlsplit.backends.cuda.planner.forms import Nest
from dmlsplit.geometry import ONE_TRIP, Loop, RowSplit, StridedCopy, ceil_div

SQUARE_BYTES = THREADS * LOADS * VECTOR
# The kernel has 31 bits for the bytes of a side of a plane.
MOST_SIDE_BYTES = 2**31 - 1
# The most vectors in a line of the input. Lines of the output are at least a cache line long, or a
# warp would write to too many of those.
MOST_LINE_VECTORS = 32
SECTOR = 32
# For rows of elements, squares less full than this cost more than `tile`: instructions, and
# wavefronts of the first-level cache if rows are not multiples of 16 bytes.
LEAST_FILL = 0.6
# Squares pay if both dimensions are at least this long: 8 words are one sector.
LEAST_SIDE = 8
MOST_NESTS = 256  # which have numbers of one byte


@dataclass(frozen=True, slots=True)
class Plane:
    """Elements to transpose, and the loops around them; strides are in bytes."""

    down: int  # elements, contiguous in the input
    across: int  # elements, contiguous in the output
    down_stride: int  # of the output
    across_stride: int  # of the input
    loops: tuple[Loop, ...] = ()  # around these, the innermost first


@dataclass(frozen=True, slots=True)
class Square:
    """The shape that a block transposes."""

    unit: int  # bytes of an element
    down_vectors: int

    @property
    def down(self) -> int:
        """Elements of a line of the input."""
        return self.down_vectors * VECTOR // self.unit

    @property
    def across(self) -> int:
        """Elements of a line of the output."""
        return SQUARE_BYTES // self.unit // self.down

    def counts(self, plane: Plane) -> list[int]:
        """The numbers of squares down, across, and along the loops around."""
        sides = ceil_div(plane.down, self.down), ceil_div(plane.across, self.across)
        return [*sides, *(loop.size for loop in plane.loops)]

    def fill(self, planes: Iterable[Plane]) -> float:
        """The share of their squares that the planes fill."""
        counts = [(plane, self.counts(plane)) for plane in planes]
        elements = sum(plane.down * plane.across * prod(count[2:]) for plane, count in counts)
        return elements / sum(prod(count) for _, count in counts) / self.down / self.across


def squares(unit: int, write: int) -> list[Square]:
    """The squares of elements of `unit` bytes, those with the longest output lines first.

    A thread writes `write` bytes at once, and a block at least one line of the output.
    """
    shapes = [Square(unit, 1 << power) for power in range(MOST_LINE_VECTORS.bit_length())]
    return [s for s in shapes if LINE_BYTES <= s.across * unit <= THREADS * write]


def write_bytes(planes: Iterable[Plane], assumed: Assumptions) -> int:
    """The bytes that a thread may write at once: the alignment of all lines of the output."""
    strides = [plane.down_stride for plane in planes]
    strides += [loop.output_stride for plane in planes for loop in plane.loops]
    return gcd(VECTOR, assumed.output_alignment, *strides)


def best(allowed: Iterable[Square], planes: Sequence[Plane]) -> Square:
    """The best filled square; among equals, the one with the most equal sides."""
    return max(allowed, key=lambda s: (round(8 * s.fill(planes)), -abs(s.down - s.across)))


def transposed_elements(split: RowSplit, assumed: Assumptions) -> KernelLaunch | None:
    """The launch for outputs that are one element wide each, or None if it does not pay.

    Rows are across and outputs down. Memory must be aligned, and outputs contiguous in the input.
    """
    unit, count = split.equal_width, len(split.outputs)
    if unit not in (1, 2, 4, 8) or max(split.rows, count) * unit > MOST_SIDE_BYTES:
        return None
    plane = Plane(count, split.rows, down_stride=0, across_stride=split.pitch)
    # Neighbouring squares both read the sectors between them.
    allowed = [s for s in squares(unit, VECTOR) if s.down >= count or split.pitch % SECTOR == 0]
    if not allowed or (square := best(allowed, [plane])).fill([plane]) < LEAST_FILL:
        return None
    launch = transposition(
        square,
        [plane],
        [(0, 0)],
        split.outputs,
        split.total_bytes,
        assumed,
        f"rows of {count} outputs, one element of {unit} bytes each",
        has_pointers=True,
    )
    fits = len(launch.parameters(())) <= assumed.limits.parameter_bytes
    return launch if fits else None


def down_loop(nest: Nest) -> Loop | None:
    """The loop along which the input is contiguous, if the output is along another one."""
    *outer, row = nest.loops
    if row.output_stride != nest.unit or row.input_stride == nest.unit:
        return None
    for loop in outer:
        least, most = sorted((loop.size, row.size))
        is_side = least >= LEAST_SIDE and most * nest.unit <= MOST_SIDE_BYTES
        if loop.input_stride == nest.unit and is_side:
            return loop
    return None


def transposes(
    alike: Mapping[Nest, Sequence[int]], pieces: Sequence[StridedCopy], assumed: Assumptions
) -> Iterator[KernelLaunch]:
    """The launches for outputs by nest; all nests have a down loop and the same unit."""
    unit = next(iter(alike)).unit

    def launch(outputs: Sequence[tuple[Nest, int]]) -> KernelLaunch | None:
        nests = list(dict.fromkeys(nest for nest, _ in outputs))
        if len(nests) > MOST_NESTS:
            return None
        numbers = {nest: number for number, nest in enumerate(nests)}
        planes = tuple(map(_plane, nests))
        return transposition(
            best(squares(unit, write_bytes(planes, assumed)), planes),
            planes,
            [(pieces[output].input_offset, numbers[nest]) for nest, output in outputs],
            tuple(output for _, output in outputs),
            sum(pieces[output].total_bytes for _, output in outputs),
            assumed,
            f"input and output are contiguous along different dimensions, {unit} bytes each",
        )

    outputs = [(nest, output) for nest, found in alike.items() for output in found]
    return fitting(launch, outputs, assumed.limits.parameter_bytes)


def _plane(nest: Nest) -> Plane:
    *outer, across = nest.loops
    down = down_loop(nest)
    assert down is not None
    outer.remove(down)
    around = tuple(reversed(outer))
    return Plane(down.size, across.size, down.output_stride, across.input_stride, around)


def transposition(
    square: Square,
    planes: Sequence[Plane],
    segments: Sequence[tuple[int, int]],
    outputs: tuple[int, ...],
    total_bytes: int,
    assumed: Assumptions,
    reason: str,
    has_pointers: bool = False,
) -> KernelLaunch:
    """The launch that writes `outputs` in squares of distinct planes.

    `segments` are each output's first byte in the input and the index of its plane. With
    `has_pointers` there is one segment, and each line of its plane (`down_stride` 0) is an output.
    """
    offsets, plane_of = zip(*segments, strict=True)
    loops = max(len(plane.loops) for plane in planes)
    strides = [plane.across_stride for plane in planes]
    strides += [loop.input_stride for plane in planes for loop in plane.loops]
    read = gcd(VECTOR, assumed.input_alignment, *offsets, *strides)
    starts = tuple(accumulate((prod(square.counts(planes[n])) for n in plane_of), initial=0))
    constants = (
        Constant("int", "kUnit", square.unit),
        Constant("int", "kDownVectors", square.down_vectors),
        # Lines at multiples of a word are read directly, others through funnel shifts.
        Constant("int", "kRead", read if read >= WORD else 1),
        Constant("int", "kWrite", write_bytes(planes, assumed)),
        Constant("bool", "kPointers", int(has_pointers)),
        Constant("int", "kSegments", len(segments)),
        Constant("int", "kNests", len(planes)),
        Constant("int", "kLoops", loops),
    )
    arguments = [
        Constant(OFFSET_64, "offsets", offsets),
        *_plane_tables(square, planes, loops),
        Constant("unsigned", "starts", starts),
        Constant("unsigned char", "nests", plane_of),
    ]
    in_flight = LOADS * VECTOR
    return KernelLaunch(
        *coded("transpose", len(outputs), resident_for(in_flight), constants, arguments),
        outputs,
        total_bytes,
        assumed.bypasses_cache,
        starts[-1],
        shared_bytes=SQUARE_BYTES,
        bytes_in_flight=in_flight,
        reason=reason,
    )


def _plane_tables(square: Square, planes: Sequence[Plane], depth: int) -> Iterator[Constant]:
    # All planes get the loops of the deepest one; a table has at least one entry.
    around = [[*plane.loops, *[ONE_TRIP] * depth][:depth] for plane in planes]
    loops = list(chain.from_iterable(around)) or [ONE_TRIP]
    # The outermost loop takes what remains of a number, and needs no divisor.
    counts = [[*square.counts(plane), *[1] * depth][: depth + 1] for plane in planes]
    divisors = tuple(chain.from_iterable(counts))
    yield Constant(OFFSET_64, "across_strides", tuple(plane.across_stride for plane in planes))
    yield Constant(OFFSET_64, "down_strides", tuple(plane.down_stride for plane in planes))
    yield Constant(OFFSET_64, "input_strides", tuple(loop.input_stride for loop in loops))
    yield Constant(OFFSET_64, "output_strides", tuple(loop.output_stride for loop in loops))
    yield Constant("unsigned", "acrosses", tuple(plane.across for plane in planes))
    yield Constant("unsigned", "downs", tuple(plane.down for plane in planes))
    yield Constant("unsigned", "counts", divisors)
    yield Constant(DIVISOR, "by_counts", tuple(map(divisor, divisors)))
