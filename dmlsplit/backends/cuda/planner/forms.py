"""Outputs as `strided` and `transpose` see them: nests, and the forms in which they are copied."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import gcd

from dmlsplit.backends.cuda.launch import LOADS, VECTOR, Assumptions
from dmlsplit.backends.cuda.planner.estimates import MIN_EDGED_UNITS
from dmlsplit.geometry import Loop, StridedCopy, ceil_div

# The widest units of rows with edges that are copied as vectors. Those of 8 bytes are copied one by
# one, however long rows are: two of them cost no more than a vector.
MAX_EDGED_UNIT = 4
# A thread has registers for these, as tests/proofs/test_spills.py checks.
MAX_LOADS = 16  # single units that a thread loads before it stores
MAX_WINDOW_VECTORS = 5  # of a thread's window
NEAR_STEP = 2  # units; the largest step at which a thread loads the windows of LOADS items at once


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
    # If items go through shared memory, 16 for outputs that are aligned to it, or 1; otherwise 0.
    staged_alignment: int = 0

    @property
    def items(self) -> int:
        """Items of a thread: enough to keep memory busy, and no more than registers allow."""
        if self.window_step is not None:
            return LOADS if self.channels == 1 and abs(self.window_step) <= NEAR_STEP else 1
        # A thread takes twice as many narrow items, because each has fewer bytes.
        max_items = LOADS if self.item_bytes == VECTOR else 2 * LOADS
        return min(max_items, MAX_LOADS // (self.item_bytes // self.unit))


@dataclass(frozen=True, slots=True)
class Entry:
    """Outputs with the same nest, whose units are adjacent in the input."""

    outputs: tuple[int, ...]  # as indices into the geometry's pieces
    offset: int  # of the first of them in the input, in bytes
    nest: Nest

    def window_alignment(self, assumptions: Assumptions) -> int:
        """The largest power of two, up to 16, that divides the addresses of windows."""
        *outer, row = self.nest.loops
        # Items begin at multiples of 16 of the output's address, so their distance from the start
        # of the row is a multiple of the row's alignment.
        # Windows are `step` times as far apart as items. If the step is negative, a window begins
        # with the last unit, so the row's stride counts, too.
        to_item = self.nest.row_alignment(assumptions) * self.nest.step
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
    # A window begins up to VECTOR - unit bytes after a multiple of VECTOR, if only its units are
    # aligned. strided.cu computes its vectors in the same way, from the alignment of all windows.
    span = ((units - 1) * abs(nest.step) + channels) * nest.unit
    vectors = ceil_div(span + VECTOR - nest.unit, VECTOR)
    return vectors <= MAX_WINDOW_VECTORS and vectors < channels * units


def entries_of(
    nest: Nest, outputs: Sequence[tuple[int, int]], assumptions: Assumptions
) -> Iterator[Entry]:
    """The entries of outputs with the same nest; an output is a pair of an index and an offset."""
    # All outputs of an entry must have the same phase, so only aligned ones can share a window.
    max_channels = nest.step if assumptions.output_alignment == VECTOR else 1
    side_by_side: list[list[tuple[int, int]]] = []
    for index, offset in outputs:
        last = side_by_side[-1] if side_by_side else []
        if 0 < len(last) < max_channels and offset == last[-1][1] + nest.unit:
            last.append((index, offset))
        else:
            side_by_side.append([(index, offset)])
    for group in side_by_side:
        has_window = form_of(nest, len(group), assumptions).window_step is not None
        for part in [group] if has_window else [[output] for output in group]:
            yield Entry(tuple(index for index, _ in part), part[0][1], nest)
