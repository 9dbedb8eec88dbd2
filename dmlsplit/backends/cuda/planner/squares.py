"""Squares of elements that `transpose` copies, one to a block, and its launches.

No size is compiled: counts and strides are arguments. A kernel is compiled for an element, the
shape of a square, the alignment of lines, and for how many outputs, nests and loops there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod

from dmlsplit.backends.cuda.launch import (
    DIVISOR,
    LOADS,
    OFFSET_64,
    THREADS,
    VECTOR,
    Assumptions,
    Constant,
    KernelLaunch,
    blocks,
    divisor,
    power_of_two,
)

SQUARE_BYTES = THREADS * LOADS * VECTOR
# The kernel has 31 bits for the bytes of a side of a nest.
MOST_SIDE_BYTES = 2**31 - 1
# Lines of a square's output are at least as long as a cache line, 128 bytes: otherwise, a warp
# writes to too many of them. Lines of the input are at most this many vectors.
LINE_BYTES, MOST_VECTORS = 128, 32
# Lines of the input at any multiple of a word are read as they are, others through funnel shifts.
WORD = 4


@dataclass(frozen=True, slots=True)
class Nest:
    """Elements to transpose; strides are in bytes."""

    down: int  # elements that are contiguous in the input
    across: int  # elements that are contiguous in the output
    down_stride: int  # of the output
    across_stride: int  # of the input
    # Around these, the innermost first: sizes, and strides of input and output.
    loops: tuple[tuple[int, int, int], ...] = ()


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

    def counts(self, nest: Nest) -> list[int]:
        """Return how many squares there are down, across, and along the loops around."""
        sides = blocks(nest.down, self.down), blocks(nest.across, self.across)
        return [*sides, *(size for size, _, _ in nest.loops)]

    def fill(self, nests: Iterable[Nest]) -> float:
        """Return the share of their squares that the nests fill."""
        counts = [(nest, self.counts(nest)) for nest in nests]
        elements = sum(nest.down * nest.across * prod(count[2:]) for nest, count in counts)
        return elements / sum(prod(count) for _, count in counts) / self.down / self.across


def squares(unit: int, write: int) -> list[Square]:
    """Return the squares of elements of `unit` bytes, those with the longest output lines first.

    A thread writes `write` bytes at once, and a block at least one line of the output.
    """
    shapes = [Square(unit, 1 << power) for power in range(MOST_VECTORS.bit_length())]
    return [s for s in shapes if LINE_BYTES <= s.across * unit <= THREADS * write]


def write_bytes(nests: Iterable[Nest], assumed: Assumptions) -> int:
    """Return how many bytes a thread may write at once: all lines of the output are aligned."""
    strides = [s for nest in nests for s in (nest.down_stride, *(dst for *_, dst in nest.loops))]
    return power_of_two(VECTOR, assumed.output_alignment, *strides)


def best(allowed: Iterable[Square], nests: Sequence[Nest]) -> Square:
    """Return the square that is filled best, and of equally good ones that with equal sides."""
    return max(allowed, key=lambda square: (round(8 * square.fill(nests)), -square.stretch))


@dataclass(frozen=True, slots=True)
class Transposition:
    """What one launch transposes."""

    square: Square
    nests: tuple[Nest, ...]  # the distinct ones
    offsets: tuple[int, ...]  # where each output begins in the input, in bytes
    nest_of: tuple[int, ...]  # for each output, the index of its nest
    # Whether each line of the only nest is an output of its own; its `down_stride` is then 0.
    has_pointers: bool = False

    @property
    def loops(self) -> int:
        """Loops around the deepest nest."""
        return max(len(nest.loops) for nest in self.nests)

    def launch(
        self, outputs: tuple[int, ...], total_bytes: int, assumed: Assumptions, reason: str
    ) -> KernelLaunch:
        """Return the launch that writes `outputs`."""
        squares = [prod(self.square.counts(nest)) for nest in self.nests]
        starts = [0]
        for nest in self.nest_of:
            starts.append(starts[-1] + squares[nest])
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
            arguments=self._arguments(starts),
        )

    def _constants(self, assumed: Assumptions) -> tuple[Constant, ...]:
        loops = chain.from_iterable(nest.loops for nest in self.nests)
        strides = *(nest.across_stride for nest in self.nests), *(src for _, src, _ in loops)
        read = power_of_two(VECTOR, assumed.input_alignment, *self.offsets, *strides)
        return (
            Constant("int", "kUnit", self.square.unit),
            Constant("int", "kDownVectors", self.square.down_vectors),
            Constant("int", "kRead", read if read >= WORD else 1),
            Constant("int", "kWrite", write_bytes(self.nests, assumed)),
            Constant("bool", "kPointers", int(self.has_pointers)),
            Constant("int", "kSegments", len(self.offsets)),
            Constant("int", "kNests", len(self.nests)),
            Constant("int", "kLoops", self.loops),
        )

    def _arguments(self, starts: Sequence[int]) -> tuple[Constant, ...]:
        # All nests get the loops of the deepest one; a table has at least one entry.
        around = [[*nest.loops, *[(1, 0, 0)] * self.loops][: self.loops] for nest in self.nests]
        loops = list(chain.from_iterable(around)) or [(1, 0, 0)]
        # What is left of a number is that of the outermost loop, which needs no divisor.
        counts = [[*self.square.counts(nest), *[1] * self.loops] for nest in self.nests]
        divisors = list(chain.from_iterable(count[: self.loops + 1] for count in counts))
        return (
            Constant(OFFSET_64, "offsets", self.offsets),
            Constant(OFFSET_64, "across_strides", tuple(n.across_stride for n in self.nests)),
            Constant(OFFSET_64, "down_strides", tuple(nest.down_stride for nest in self.nests)),
            Constant(OFFSET_64, "input_strides", tuple(src for _, src, _ in loops)),
            Constant(OFFSET_64, "output_strides", tuple(dst for _, _, dst in loops)),
            Constant("unsigned", "acrosses", tuple(nest.across for nest in self.nests)),
            Constant("unsigned", "downs", tuple(nest.down for nest in self.nests)),
            Constant("unsigned", "counts", tuple(divisors)),
            Constant(DIVISOR, "by_counts", tuple(map(divisor, divisors))),
            Constant("unsigned", "starts", tuple(starts)),
            Constant("unsigned char", "nests", self.nest_of),
        )
