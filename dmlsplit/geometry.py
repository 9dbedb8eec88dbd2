"""What is left of a split when data type, rank and axis are gone: boxes of bytes.

Every split copies, for each output, one box of contiguous runs. A box is a loop nest over
byte strides. Dimensions that lie behind each other on both sides are merged, so that a
packed split of any rank becomes one loop over rows::

    out[o][r * widths[o] + c] = in[r * pitch + offsets[o] + c]

Backends see only this; they know no descriptor, no data type and no feature level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod


@dataclass(frozen=True, slots=True)
class StridedCopy:
    """The bytes of one output: `prod(shape)` runs of `run_bytes` bytes each.

    Byte `b` of run `i` (an index into `shape`) goes from
    ``input_offset + sum(i * input_strides) + b`` of the input to
    ``sum(i * output_strides) + b`` of the output. Both count from the tensor's first
    element. Loops are ordered by falling target stride and none can be merged with
    its neighbour. An output without elements has ``run_bytes == 0``.
    """

    shape: tuple[int, ...]
    input_strides: tuple[int, ...]
    output_strides: tuple[int, ...]
    input_offset: int
    run_bytes: int

    @property
    def total_bytes(self) -> int:
        """Bytes copied."""
        return prod(self.shape) * self.run_bytes

    @property
    def is_dense(self) -> bool:
        """Whether the output is written without gaps, in order."""
        step = self.run_bytes
        for count, stride in zip(reversed(self.shape), reversed(self.output_strides), strict=True):
            if stride != step:
                return False
            step *= count
        return True


@dataclass(frozen=True, slots=True)
class RowSplit:
    """The packed form: rows of `pitch` bytes, cut at the same columns in every row.

    ``out[o][r * widths[o] + c] = in[r * pitch + offsets[o] + c]`` for ``0 <= r < rows`` and
    ``0 <= c < widths[o]``. A width of 0 is an output without elements. `pitch` may exceed
    the sum of the widths (a padded input).
    """

    rows: int
    pitch: int
    offsets: tuple[int, ...]
    widths: tuple[int, ...]


@dataclass(frozen=True)
class SplitGeometry:
    """One box of bytes per output, in output order.

    Attributes
    ----------
    pieces
        The boxes.
    """

    pieces: tuple[StridedCopy, ...]

    @property
    def total_bytes(self) -> int:
        """Bytes read, which is also the number of bytes written."""
        return sum(piece.total_bytes for piece in self.pieces)

    @cached_property
    def row_split(self) -> RowSplit | None:
        """The packed form, or None where an input or output is strided in another way."""
        solid = [piece for piece in self.pieces if piece.run_bytes]
        shapes = {piece.shape for piece in solid}
        pitches = {piece.input_strides for piece in solid}
        if len(shapes) != 1 or len(pitches) != 1 or len(min(shapes)) > 1:
            return None
        if not all(piece.is_dense for piece in solid):
            return None
        widths = tuple(piece.run_bytes for piece in self.pieces)
        offsets = tuple(piece.input_offset for piece in self.pieces)
        (shape,), (strides,) = shapes, pitches
        rows, pitch = (shape[0], strides[0]) if shape else (1, sum(widths))
        # Kernels count rows upwards from the first byte of the input.
        if pitch < sum(widths) or list(offsets) != _starts(widths):
            return None
        return RowSplit(rows, pitch, offsets, widths)


def split_geometry(
    shape: Sequence[int],
    axis: int,
    sizes: Sequence[int],
    element_bytes: int,
    input_strides: Sequence[int],
    output_strides: Sequence[Sequence[int] | None],
) -> SplitGeometry:
    """Return the byte problem of splitting a tensor of `shape` along `axis`.

    Parameters
    ----------
    shape, axis, sizes
        A split that is already known to be valid: ``sum(sizes) == shape[axis]``.
    element_bytes
        Bytes of one element.
    input_strides
        Bytes between neighbours of each dimension of the input; may be 0 or negative.
    output_strides
        The same for each output; None for a packed one.
    """
    step = input_strides[axis] if shape else 0
    pieces = []
    for size, start, strides in zip(sizes, _starts(sizes), output_strides, strict=True):
        counts = (*shape[:axis], size, *shape[axis + 1 :])
        if strides is None:
            strides = packed_byte_strides(counts, element_bytes)
        pieces.append(_box(counts, input_strides, strides, start * step, element_bytes))
    return SplitGeometry(tuple(pieces))


def packed_byte_strides(shape: Sequence[int], element_bytes: int) -> tuple[int, ...]:
    """Return the row-major byte strides of a tensor without padding."""
    inner = accumulate(reversed(shape[1:]), lambda a, b: a * b, initial=element_bytes)
    return tuple(reversed(tuple(inner))) if shape else ()


def _starts(sizes: Sequence[int]) -> list[int]:
    return [0, *accumulate(sizes)][: len(sizes)]


def _box(
    counts: Sequence[int],
    source: Sequence[int],
    target: Sequence[int],
    input_offset: int,
    element_bytes: int,
) -> StridedCopy:
    if 0 in counts:
        return StridedCopy((), (), (), input_offset, 0)
    loops = [loop for loop in zip(counts, source, target, strict=True) if loop[0] != 1]
    loops.sort(key=lambda loop: (abs(loop[2]), abs(loop[1])), reverse=True)
    merged: list[tuple[int, int, int]] = []
    for count, s, t in loops:
        if merged and merged[-1][1:] == (count * s, count * t):
            count *= merged.pop()[0]
        merged.append((count, s, t))
    run = element_bytes
    if merged and merged[-1][1:] == (run, run):
        run *= merged.pop()[0]
    shape, input_strides, output_strides = zip(*merged, strict=True) if merged else ((), (), ())
    return StridedCopy(shape, input_strides, output_strides, input_offset, run)
