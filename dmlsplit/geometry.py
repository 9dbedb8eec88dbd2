"""A split as strided copies of bytes, which is all that backends see of it.

Each output is copied in contiguous runs, by a loop nest over byte strides. Neighbouring dimensions
are merged if they are contiguous in both input and output. A packed split of any rank is therefore
one loop over rows: a `RowSplit`.

=======  =====================================================================================
piece    the strided copy of an output; elsewhere, what `dml.split` returns for an output
run      bytes that are contiguous in the input and in the output
nest     the loops around the runs of an output
packed   (an output) whose elements are contiguous, and cut from contiguous rows
row      in a packed split, contiguous bytes of the input; all rows are cut at the same columns
column   a position of a byte in a row
pitch    the bytes from one row to the next
=======  =====================================================================================
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, compress, repeat
from math import prod
from operator import itemgetter, mul
from typing import NamedTuple, TypeVar

from dmlsplit.forks import cached_property

Selector = Callable[[Sequence[int]], tuple[int, ...]]
_Size = TypeVar("_Size")  # an integer, or the name of a dynamic size in a scanned model


class Loop(NamedTuple):
    """One loop of a nest: its number of iterations, and the bytes between them (any integer)."""

    size: int
    input_stride: int
    output_stride: int


@lru_cache(maxsize=64)
def indices(count: int) -> tuple[int, ...]:
    """``tuple(range(count))``, cached, because comparing a tuple with itself is fast."""
    return tuple(range(count))


def selector(outputs: Sequence[int], count: int) -> Selector:
    """A function that selects these outputs from all `count`, in order."""
    if outputs == indices(count):
        return tuple
    # With fewer than two keys, `itemgetter` would return no tuple.
    getter = itemgetter(*outputs, 0, 0)
    return lambda entries: getter(entries)[:-2]


ONE_TRIP = Loop(1, 0, 0)  # pads a nest that needs one more loop


def ceil_div(total: int, part: int) -> int:
    """How many parts of size `part` cover `total`."""
    return -(-total // part)


def trips(loops: Iterable[Loop]) -> int:
    """The number of times that the body of a loop nest runs (its trip count)."""
    return prod(loop.size for loop in loops)


@dataclass(frozen=True, slots=True)
class StridedCopy:
    """The bytes of one output: a loop nest, outermost loop first, over runs of `run_bytes` bytes.

    At iteration `i` of each loop, a run begins at byte ``input_offset + sum(i * input_stride)``
    of the input and ``sum(i * output_stride)`` of the output, counted from each tensor's first
    element. The absolute output strides never grow from an outer loop to an inner one, and no
    neighbouring loops can be merged. An output without elements has ``run_bytes == 0``.
    """

    loops: tuple[Loop, ...]
    input_offset: int
    run_bytes: int

    @property
    def total_bytes(self) -> int:
        """The number of bytes copied."""
        return trips(self.loops) * self.run_bytes


class RowSplit(NamedTuple):
    """The packed form: rows of `pitch` bytes, cut at the same columns in every row.

    ``out[outputs[i]][r * widths[i] + c] = in[r * pitch + offsets[i] + c]`` for ``0 <= r < rows``
    and ``0 <= c < widths[i]``. An output without elements has width 0. `pitch` is larger than the
    sum of the widths if the input is padded, or if this is only some of a split's outputs.
    """

    rows: int
    pitch: int
    outputs: tuple[int, ...]  # indices into the geometry's pieces, in order
    offsets: tuple[int, ...]
    widths: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        """The bytes of a row in all outputs."""
        return sum(self.widths)

    @property
    def total_bytes(self) -> int:
        """The bytes of all outputs."""
        return self.rows * sum(self.widths)

    @property
    def equal_width(self) -> int:
        """The width of every output, or 0 if they differ."""
        return self.widths[0] if self.widths.count(self.widths[0]) == len(self.widths) else 0

    @property
    def nonempty(self) -> tuple[int, ...]:
        """The outputs that have elements."""
        return tuple(compress(self.outputs, self.widths)) if 0 in self.widths else self.outputs

    def take(self, positions: Sequence[int]) -> "RowSplit":
        """Some of the outputs, by their positions here."""
        if len(positions) == len(self.outputs):
            return self
        return RowSplit(
            self.rows, self.pitch, *map(selector(positions, len(self.outputs)), self[2:])
        )


@dataclass(frozen=True)
class SplitGeometry:
    """A split as byte copies, one per output, in output order. Equal geometries copy equal bytes.

    If the split has the packed form, `row_split` describes it; otherwise `strided` has the pieces.
    In the packed form, `pieces` are made on demand: there may be hundreds of them, and often only
    one call uses the geometry.
    """

    row_split: RowSplit | None
    strided: tuple[StridedCopy, ...] = ()

    @cached_property
    def pieces(self) -> tuple[StridedCopy, ...]:
        """The copy of each output."""
        if self.row_split is None:
            return self.strided
        rows, pitch, _, offsets, widths = self.row_split
        if rows == 1:
            return tuple(map(StridedCopy, repeat(()), offsets, widths))
        return tuple(
            StridedCopy((Loop(rows, pitch, width),) if width else (), offset, width)
            for offset, width in zip(offsets, widths, strict=True)
        )

    @property
    def output_count(self) -> int:
        """The number of outputs, including those without elements."""
        return len(self.row_split.widths if self.row_split else self.strided)

    @property
    def nonempty(self) -> tuple[int, ...]:
        """The outputs that have elements."""
        if self.row_split:
            return self.row_split.nonempty
        return tuple([index for index, piece in enumerate(self.strided) if piece.run_bytes])

    @property
    def total_bytes(self) -> int:
        """The number of bytes read, which is also the number of bytes written."""
        if self.row_split:
            return self.row_split.total_bytes
        return sum(piece.total_bytes for piece in self.strided)


def split_geometry(
    shape: Sequence[int],
    axis: int,
    sizes: Sequence[int],
    element_bytes: int,
    input_strides: Sequence[int],
    output_strides: Sequence[Sequence[int] | None],
) -> SplitGeometry:
    """The byte copies of a split that is known to be valid: ``sum(sizes) == shape[axis]``.

    Strides are in bytes and may be 0 or negative; those of a packed output may be None.
    """
    packed = _packed_strides(tuple(shape), element_bytes)
    if tuple(input_strides) == packed and output_strides.count(None) == len(sizes):
        return _packed(shape, axis, sizes, packed[axis])
    pieces = []
    outputs = piece_shapes(shape, axis, sizes)
    for output_shape, start, strides in zip(outputs, _starts(sizes), output_strides, strict=True):
        if strides is None:
            strides = packed_byte_strides(output_shape, element_bytes)
        loops = zip(output_shape, input_strides, strides, strict=True)
        pieces.append(_merged(list(loops), start * input_strides[axis], element_bytes))
    rows = _rows_of(pieces)
    return SplitGeometry(rows) if rows else SplitGeometry(None, tuple(pieces))


def piece_shapes(
    shape: Sequence[_Size], axis: int, sizes: Sequence[_Size]
) -> tuple[tuple[_Size, ...], ...]:
    """The shapes of the pieces along an axis, which counts from the front."""
    before = map(repeat, shape[:axis])
    after = map(repeat, shape[axis + 1 :])
    return tuple(zip(*before, sizes, *after))  # noqa: B905


def packed_byte_strides(shape: Sequence[int], element_bytes: int) -> tuple[int, ...]:
    """The row-major strides, in bytes, of a tensor without padding."""
    inner = accumulate(reversed(shape[1:]), mul, initial=element_bytes)
    return tuple(reversed(tuple(inner))) if shape else ()


# Sizes are often new for a shape that is not.
_packed_strides = lru_cache(maxsize=1024)(packed_byte_strides)


def _starts(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(accumulate(sizes, initial=0))[:-1]


def _packed(shape: Sequence[int], axis: int, sizes: Sequence[int], step: int) -> SplitGeometry:
    """Fast path of `_merged` for packed tensors, which every call with new sizes takes."""
    rows = prod(shape[:axis])
    pitch = shape[axis] * step
    widths = tuple([size * step for size in sizes])
    outputs = indices(len(widths))
    offsets = _starts(widths)
    if not rows or not pitch:
        return SplitGeometry(None, tuple(StridedCopy((), offset, 0) for offset in offsets))
    if max(widths) == pitch:  # one output has all elements, so its rows are contiguous too
        whole = tuple([rows * width for width in widths])
        return SplitGeometry(RowSplit(1, rows * pitch, outputs, offsets, whole))
    return SplitGeometry(RowSplit(rows, pitch, outputs, offsets, widths))


def _rows_of(pieces: Sequence[StridedCopy]) -> RowSplit | None:
    """The packed form of pieces; None if the strides of the input or an output do not allow it."""
    filled = [piece for piece in pieces if piece.run_bytes]
    nests = {tuple(loop[:2] for loop in piece.loops) for piece in filled}
    has_gaps = any(loop[2] != piece.run_bytes for piece in filled for loop in piece.loops)
    if len(nests) != 1 or has_gaps or max(map(len, nests)) > 1:
        return None
    (loops,) = nests
    widths = tuple(piece.run_bytes for piece in pieces)
    offsets = tuple(piece.input_offset for piece in pieces)
    rows, pitch = loops[0] if loops else (1, sum(widths))
    # Kernels expect rows that start at the input's first byte and do not overlap.
    ends = zip(offsets, _starts(widths), widths, strict=True)
    if pitch < sum(widths) or any(width and offset != start for offset, start, width in ends):
        return None
    return RowSplit(rows, pitch, indices(len(pieces)), offsets, widths)


def pieces_in(starts: Sequence[int], low: int, high: int) -> Iterator[tuple[int, int, int]]:
    """The pieces that a range along the axis overlaps, as (piece, begin, end); never empty ones.

    The last entry of `starts` is the end of the last piece. `begin` and `end` count from the start
    of the piece.
    """
    for piece in range(bisect_right(starts, low) - 1, bisect_left(starts, high)):
        begin = max(low, starts[piece])
        end = min(high, starts[piece + 1])
        if begin < end:
            yield piece, begin - starts[piece], end - starts[piece]


def _merged(
    loops: list[tuple[int, int, int]], input_offset: int, element_bytes: int
) -> StridedCopy:
    """The copy of one output, with as few loops as possible.

    Loops are plain tuples until the end, because calls with new sizes would take longer.
    """
    if 0 in [size for size, _, _ in loops]:
        return StridedCopy((), input_offset, 0)
    loops = [loop for loop in loops if loop[0] != 1]
    # Any order of loops copies the same bytes. The output's order merges most loops, and writes
    # bytes in sequence.
    loops.sort(key=lambda loop: abs(loop[2]), reverse=True)
    merged: list[tuple[int, int, int]] = []
    for size, src, dst in loops:
        # If one step of the outer loop spans this whole loop, the two are one loop.
        if merged and merged[-1][1:] == (size * src, size * dst):
            size *= merged.pop()[0]
        merged.append((size, src, dst))
    run = element_bytes
    if merged and merged[-1][1:] == (run, run):
        run *= merged.pop()[0]
    return StridedCopy(tuple(map(Loop._make, merged)), input_offset, run)
