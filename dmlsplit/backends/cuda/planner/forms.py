"""Outputs as `strided` and `transpose` see them: nests, and the forms in which they are copied."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import gcd

from dmlsplit.backends.cuda.launch import LOADS, VECTOR, Assumptions
from dmlsplit.geometry import Loop, StridedCopy

# Rows of at least MIN_EDGED_UNITS units of up to MAX_EDGED_UNIT bytes are copied as vectors, and
# unit by unit at their edges. Most splits with such rows gain; docs/design/017-transposes.md names
# those that lose. Two units of 8 bytes cost no more than a vector.
MIN_EDGED_UNITS, MAX_EDGED_UNIT = 48, 4
# The most single units that a thread loads before it stores, and the most vectors of its window. A
# thread has registers for these, as tests/proofs/test_spills.py checks.
MAX_LOADS = 16
MAX_WINDOW_VECTORS = 5
# The largest step at which a thread has registers for the windows of `LOADS` items.
NEAR_STEP = 2


@dataclass(frozen=True, slots=True)
class Nest:
    """The loops of an output over units; the innermost one is a row."""

    unit: int  # bytes
    loops: tuple[Loop, ...]

    @property
    def row_units(self) -> int:
        """Units of a row."""
        return self.loops[-1].size

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.row_units * self.unit

    @property
    def step(self) -> int:
        """The distance, in units, between the units of a row in the input."""
        return self.loops[-1].input_stride // self.unit

    def row_alignment(self, assumptions: Assumptions) -> int:
        """The largest power of two, up to 16, that divides the addresses of output rows."""
        strides = (loop.output_stride for loop in self.loops[:-1])
        return gcd(VECTOR, assumptions.output_alignment, *strides)


@dataclass(frozen=True, slots=True)
class Form:
    """How outputs are copied, whatever their sizes. Outputs with the same form share launches."""

    unit: int  # bytes
    item_bytes: int  # that a thread stores at once
    channels: int  # outputs that are filled from one window
    window_step: int | None  # in units, if items are filled from windows
    # The alignment of the outputs if items go through shared memory; otherwise 0.
    staged: int = 0

    @property
    def items(self) -> int:
        """Items of a thread: enough loads in flight to keep memory busy."""
        if self.window_step is not None:
            return LOADS if self.channels == 1 and abs(self.window_step) <= NEAR_STEP else 1
        units = self.item_bytes // self.unit
        return min(LOADS if self.item_bytes == VECTOR else 2 * LOADS, MAX_LOADS // units)


@dataclass(frozen=True, slots=True)
class Entry:
    """Outputs with the same nest, whose units are adjacent in the input."""

    outputs: tuple[int, ...]  # as indices into the geometry's pieces
    offset: int  # of the first of them in the input, in bytes
    nest: Nest

    def window_alignment(self, assumptions: Assumptions, staged_item: int = 0) -> int:
        """The largest power of two, up to 16, that divides the addresses of windows."""
        *outer, row = self.nest.loops
        # Staged items begin every `staged_item` bytes from the start of a row. Others begin where
        # the output's address is a multiple of 16, so a multiple of the row's alignment after it.
        # If steps go down, a window begins with the last unit, so the row's stride counts, too.
        begin = staged_item or self.nest.row_alignment(assumptions)
        to_item = begin * self.nest.step
        strides = min(0, row.input_stride), *(loop.input_stride for loop in outer)
        return gcd(VECTOR, assumptions.input_alignment, self.offset, to_item, *strides)


def nest_of(piece: StridedCopy, assumptions: Assumptions) -> Nest:
    """The loops over the widest units that all strides and offsets allow."""
    strides = chain.from_iterable(loop[1:] for loop in piece.loops)
    alignments = assumptions.input_alignment, assumptions.output_alignment, piece.input_offset
    unit = gcd(VECTOR, *alignments, piece.run_bytes, *strides)
    if piece.run_bytes == unit and piece.loops:
        return Nest(unit, piece.loops)
    return Nest(unit, (*piece.loops, Loop(piece.run_bytes // unit, unit, unit)))


def form_of(nest: Nest, channels: int, assumptions: Assumptions) -> Form:
    """The form in which outputs with a nest are copied, `channels` of them together."""
    item_bytes = nest.unit
    if nest.loops[-1].output_stride == nest.unit:
        item_bytes = gcd(nest.row_alignment(assumptions), nest.row_bytes)
        if nest.row_units >= MIN_EDGED_UNITS and nest.unit <= MAX_EDGED_UNIT:
            item_bytes = VECTOR
    is_window = item_bytes == VECTOR and _has_window(nest, channels)
    return Form(nest.unit, item_bytes, channels, nest.step if is_window else None)


def _has_window(nest: Nest, channels: int) -> bool:
    """Whether a window needs fewer loads than the units in it, and fits the registers."""
    units = VECTOR // nest.unit
    span = ((units - 1) * abs(nest.step) + channels) * nest.unit
    vectors = (span + 2 * VECTOR - 1 - nest.unit) // VECTOR
    return vectors <= MAX_WINDOW_VECTORS and vectors < channels * units


def entries_of(
    nest: Nest, outputs: Sequence[tuple[int, int]], assumptions: Assumptions
) -> Iterator[Entry]:
    """The entries of outputs with the same nest; an output is a pair of an index and an offset."""
    # All outputs of an entry must have the same phase, so only aligned ones can share a window.
    most = nest.step if assumptions.output_alignment == VECTOR else 1
    side_by_side: list[list[tuple[int, int]]] = []
    for index, offset in outputs:
        last = side_by_side[-1] if side_by_side else []
        if 0 < len(last) < most and offset == last[-1][1] + nest.unit:
            last.append((index, offset))
        else:
            side_by_side.append([(index, offset)])
    for group in side_by_side:
        has_window = form_of(nest, len(group), assumptions).window_step is not None
        for part in [group] if has_window else [[one] for one in group]:
            yield Entry(tuple(index for index, _ in part), part[0][1], nest)
