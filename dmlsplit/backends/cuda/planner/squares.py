"""Squares of elements that `transpose` copies, one to a block, and its launches.

No size is compiled: counts and strides are arguments. A kernel is compiled for an element, the
shape of a square, the alignment of lines, and for how many outputs, planes and loops there are.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
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
    blocks,
    divisor,
)
from dmlsplit.geometry import ONE_TURN, Loop

SQUARE_BYTES = THREADS * LOADS * VECTOR
# The kernel has 31 bits for the bytes of a side of a plane.
MOST_SIDE_BYTES = 2**31 - 1
# Vectors of a line of the input, at most. Those of the output are at least as long as a line of the
# caches: otherwise, a warp writes to too many of them.
MOST_LINE_VECTORS = 32


@dataclass(frozen=True, slots=True)
class Plane:
    """Elements to transpose, and the loops around them; strides are in bytes."""

    down: int  # elements that are contiguous in the input
    across: int  # elements that are contiguous in the output
    down_stride: int  # of the output
    across_stride: int  # of the input
    loops: tuple[Loop, ...] = ()  # around these, the innermost first


@dataclass(frozen=True, slots=True)
class Square:
    """The shape of what a block transposes."""

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

    @property
    def stretch(self) -> int:
        """How far it is from having equal sides, in bytes."""
        return abs(self.down - self.across) * self.unit

    def counts(self, plane: Plane) -> list[int]:
        """How many squares there are down, across, and along the loops around."""
        sides = blocks(plane.down, self.down), blocks(plane.across, self.across)
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
    """How many bytes a thread may write at once: all lines of the output are aligned."""
    strides = [plane.down_stride for plane in planes]
    strides += [loop.output_stride for plane in planes for loop in plane.loops]
    return gcd(VECTOR, assumed.output_alignment, *strides)


def best(allowed: Iterable[Square], planes: Sequence[Plane]) -> Square:
    """The square that is filled best, and of equally good ones that with equal sides."""
    return max(allowed, key=lambda square: (round(8 * square.fill(planes)), -square.stretch))


@dataclass(frozen=True, slots=True)
class Transposition:
    """What one launch transposes."""

    square: Square
    planes: tuple[Plane, ...]  # the distinct ones
    offsets: tuple[int, ...]  # where each output begins in the input, in bytes
    plane_of: tuple[int, ...]  # for each output, the index of its plane
    # Whether each line of the only plane is an output of its own; its `down_stride` is then 0.
    has_pointers: bool = False

    @property
    def loops(self) -> int:
        """Loops around the deepest plane."""
        return max(len(plane.loops) for plane in self.planes)

    def launch(
        self, outputs: tuple[int, ...], total_bytes: int, assumed: Assumptions, reason: str
    ) -> KernelLaunch:
        """The launch that writes `outputs`."""
        squares = [prod(self.square.counts(plane)) for plane in self.planes]
        starts = [0]
        for plane in self.plane_of:
            starts.append(starts[-1] + squares[plane])
        return KernelLaunch(
            "transpose",
            outputs,
            total_bytes,
            assumed,
            self._constants(assumed),
            starts[-1],
            shared_bytes=SQUARE_BYTES,
            bytes_in_flight=LOADS * VECTOR,
            reason=reason,
            slots=len(outputs),
            arguments=self._arguments(starts),
        )

    def _constants(self, assumed: Assumptions) -> tuple[Constant, ...]:
        strides = [plane.across_stride for plane in self.planes]
        strides += [loop.input_stride for plane in self.planes for loop in plane.loops]
        read = gcd(VECTOR, assumed.input_alignment, *self.offsets, *strides)
        return (
            Constant("int", "kUnit", self.square.unit),
            Constant("int", "kDownVectors", self.square.down_vectors),
            # At any multiple of a word, lines are read as they are, others through funnel shifts.
            Constant("int", "kRead", read if read >= WORD else 1),
            Constant("int", "kWrite", write_bytes(self.planes, assumed)),
            Constant("bool", "kPointers", int(self.has_pointers)),
            Constant("int", "kSegments", len(self.offsets)),
            Constant("int", "kNests", len(self.planes)),
            Constant("int", "kLoops", self.loops),
        )

    def _arguments(self, starts: Sequence[int]) -> tuple[Constant, ...]:
        # All planes get the loops of the deepest one; a table has at least one entry.
        around = [[*plane.loops, *[ONE_TURN] * self.loops][: self.loops] for plane in self.planes]
        loops = list(chain.from_iterable(around)) or [ONE_TURN]
        # What is left of a number is that of the outermost loop, which needs no divisor.
        counts = [[*self.square.counts(plane), *[1] * self.loops] for plane in self.planes]
        divisors = list(chain.from_iterable(count[: self.loops + 1] for count in counts))
        return (
            Constant(OFFSET_64, "offsets", self.offsets),
            Constant(OFFSET_64, "across_strides", tuple(n.across_stride for n in self.planes)),
            Constant(OFFSET_64, "down_strides", tuple(plane.down_stride for plane in self.planes)),
            Constant(OFFSET_64, "input_strides", tuple(loop.input_stride for loop in loops)),
            Constant(OFFSET_64, "output_strides", tuple(loop.output_stride for loop in loops)),
            Constant("unsigned", "acrosses", tuple(plane.across for plane in self.planes)),
            Constant("unsigned", "downs", tuple(plane.down for plane in self.planes)),
            Constant("unsigned", "counts", tuple(divisors)),
            Constant(DIVISOR, "by_counts", tuple(map(divisor, divisors))),
            Constant("unsigned", "starts", tuple(starts)),
            Constant("unsigned char", "nests", self.plane_of),
        )
