"""Which arrays share memory: spans of addresses, then columns of one array, then single bytes."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import le

from dmlsplit.arrays.array_view import ArrayView, byte_bounds, share_memory


def are_disjoint(starts: Iterable[int], ends: Iterable[int]) -> bool:
    """Whether spans do not overlap: in order of address, none ends after the next one begins."""
    return all(map(le, sorted(ends), sorted(starts)[1:]))


def overlapping_pairs(spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """For each span that begins inside an earlier one, by address: its index and the other's.

    The other one is the earlier span that ends last.
    """
    areas = sorted((span, index) for index, span in enumerate(spans))
    last_end = 0
    last_index = 0
    for (low, high), index in areas:
        if low < last_end:
            yield index, last_index
        if high > last_end:
            last_end = high
            last_index = index


def column_ranges(views: Sequence[ArrayView]) -> list[tuple[int, int]] | None:
    """The columns that each view covers if all are cut from rows of one pitch; None if not.

    Views whose columns do not overlap share no byte. This distinguishes thousands of columns of one
    array, whose spans all overlap. No view may be wider than a row or cross its end.
    """
    first = min(view.address for view in views)
    dimensions = chain.from_iterable(zip(view.shape, view.strides, strict=True) for view in views)
    pitch = max([1, *(abs(stride) for size, stride in dimensions if size > 1)])
    ranges = []
    for view in views:
        # A stride of whole rows stays in the same column.
        inner = tuple([stride if stride % pitch else 0 for stride in view.strides])
        low, high = byte_bounds(view.shape, inner, view.item_bytes)
        start = (view.address + low - first) % pitch
        ranges.append((start, start + high - low))
    return None if max(end for _, end in ranges) > pitch else ranges


def first_overlap(arrays: Sequence[ArrayView]) -> tuple[int, int] | None:
    """The indices of two arrays that share a byte; None if there are no such arrays."""
    spans = [array.span for array in arrays]
    if are_disjoint(*zip(*spans, strict=True)):
        return None
    indices = _overlapping(spans)
    areas = [spans[index] for index in indices]
    if columns := column_ranges([arrays[index] for index in indices]):
        positions = _overlapping(columns)
        indices = [indices[position] for position in positions]
        areas = [columns[position] for position in positions]
    for position, (index, (_, end)) in enumerate(zip(indices, areas, strict=True)):
        for other, (start, _) in zip(indices[position + 1 :], areas[position + 1 :], strict=True):
            if start >= end:
                break
            if share_memory(arrays[index], arrays[other]):
                return other, index
    return None


def _overlapping(spans: Sequence[tuple[int, int]]) -> list[int]:
    """The indices of spans that overlap another one, in the order in which they begin."""
    indices = {index for pair in overlapping_pairs(spans) for index in pair}
    return sorted(indices, key=lambda index: (spans[index], index))
