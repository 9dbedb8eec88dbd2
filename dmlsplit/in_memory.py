"""Splits of arrays that have memory: what `dml.split` does with most arrays.

A split is prepared once for a layout, an axis and sizes, and cached for all arrays of that layout.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import prod
from typing import Any, SupportsIndex, TypeAlias

import numpy as np

from dmlsplit.acceptance import accept_outputs
from dmlsplit.arrays import ArrayView, view
from dmlsplit.arrays.adapter import NewArrays, Requirement, Requirements
from dmlsplit.backends.find import find_backend
from dmlsplit.checks import Integers, are_plain_ints, piece_sizes
from dmlsplit.geometry import packed_byte_strides, piece_shapes, split_geometry
from dmlsplit.prepared_split import PreparedSplit

Sizes: TypeAlias = SupportsIndex | Integers
_Layout: TypeAlias = tuple[str, tuple[int, ...], tuple[int, ...], int]
_Strides: TypeAlias = tuple[tuple[int, ...], ...]
_FEW_PIECES = 64
# NumPy copies slices of a small array with few rows in half the time of a call of the engine.
SLICED_BYTES, SLICED_ROWS = 1 << 16, 128


def split(
    array: Any, sizes_or_count: Sizes, axis: SupportsIndex, out: Sequence[Any] | None = None
) -> list[Any]:
    """`dml.split` of an array whose memory its library shares."""
    is_small = type(array) is np.ndarray and array.nbytes <= SLICED_BYTES and out is None
    if is_small and array.dtype.kind in "biufc" and are_plain_ints(axis, sizes_or_count):
        key: Any = array.shape, axis, sizes_or_count
        if _has_few_pieces(sizes_or_count) and (slices := _slices(*key)):
            return [array[index].copy() for index in slices]
    return split_view(view(array, "array"), array, sizes_or_count, axis, out)


@lru_cache(maxsize=1024)
def _slices(shape: tuple[int, ...], axis: Any, sizes_or_count: Any) -> list[tuple[slice, ...]]:
    """Fast path: the indices of the pieces of a small array; none if it has many rows."""
    axis, sizes = piece_sizes(shape, sizes_or_count, axis)
    before, has_few_rows = (slice(None),) * axis, prod(shape[:axis]) <= SLICED_ROWS
    ends = zip(accumulate(sizes), sizes, strict=True)
    return [(*before, slice(end - size, end)) for end, size in ends if has_few_rows]


def split_view(
    source: ArrayView, array: Any, sizes_or_count: Any, axis: Any, out: Sequence[Any] | None
) -> list[Any]:
    """Split an array of which `source` is the view."""
    if not are_plain_ints(axis, sizes_or_count):
        axis, sizes_or_count = piece_sizes(source.shape, sizes_or_count, axis)
    layout = source.device, source.shape, source.strides, source.item_bytes
    if out is None:
        return prepared_split(layout, axis, sizes_or_count).split(source, array)
    required = requirements(source.shape, source[4:7], axis, sizes_or_count)
    addresses, strides = accept_outputs(out, source, required)
    prepared_split(layout, axis, sizes_or_count, strides).split_into(source, out, addresses)
    return list(out)


@lru_cache(maxsize=64)
def requirements(
    shape: tuple[int, ...],
    element: tuple[str, int, str],
    axis: int,
    sizes_or_count: int | tuple[int, ...],
) -> Requirements:
    """The memory of packed pieces; `element` has the type, bytes and device of an element.

    It is not a part of a `PreparedSplit`, which also depends on the strides of accepted outputs.
    """
    axis, sizes = piece_sizes(shape, sizes_or_count, axis)
    shapes, width = piece_shapes(shape, axis, sizes), element[1]
    required = [Requirement(piece, packed_byte_strides(piece, width), *element) for piece in shapes]
    return Requirements(required, [width * prod(piece) for piece in shapes])


def prepared_split(
    layout: _Layout,
    axis: int,
    sizes_or_count: int | tuple[int, ...],
    output_strides: _Strides | None = None,
) -> PreparedSplit:
    """The cached split of arrays of a layout: device, shape, strides and bytes of an element."""
    prepare = _splits_of_few_pieces if _has_few_pieces(sizes_or_count) else _splits_of_many_pieces
    return prepare(layout, axis, sizes_or_count, output_strides)


def _has_few_pieces(sizes_or_count: Any) -> bool:
    """Whether a split has few enough pieces for a small cache entry."""
    count = len(sizes_or_count) if isinstance(sizes_or_count, tuple) else sizes_or_count
    return bool(count <= _FEW_PIECES)


def _prepared(
    layout: _Layout, axis: int, sizes_or_count: int | tuple[int, ...], output_strides: Any
) -> PreparedSplit:
    device, shape, strides, item_bytes = layout
    # Checked here, inside the cache, so that equal arguments are checked once.
    axis, sizes = piece_sizes(shape, sizes_or_count, axis)
    outputs = [None] * len(sizes) if output_strides is None else output_strides
    geometry = split_geometry(shape, axis, sizes, item_bytes, strides, outputs)
    # Without `prepare`: a call must not wait for the compiler because its sizes are new.
    program = _backend(device).compile(geometry)
    return PreparedSplit(program, NewArrays(piece_shapes(shape, axis, sizes)))


_backend = lru_cache(maxsize=64)(find_backend)
# A prepared split takes more than a kilobyte per piece, so fewer splits of many pieces are cached.
_splits_of_few_pieces = lru_cache(maxsize=1024)(_prepared)
_splits_of_many_pieces = lru_cache(maxsize=8)(_prepared)
