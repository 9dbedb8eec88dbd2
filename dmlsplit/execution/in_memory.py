"""Splits of arrays that have memory: what `dml.split` does with most arrays.

A split is prepared once for a layout, an axis and sizes, and cached for all arrays of that layout.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from dmlsplit.arrays import ArrayView, view
from dmlsplit.arrays.acceptance import accept_outputs
from dmlsplit.arrays.adapter import NewArrays, Requirement, Shape, Shapes
from dmlsplit.backends.find import find_backend
from dmlsplit.checks import piece_sizes
from dmlsplit.execution.prepared_split import FEW_PIECES, MANY_PIECES_CACHED, PreparedSplit
from dmlsplit.execution.slices import split_by_slices
from dmlsplit.geometry import packed_byte_strides, piece_shapes, split_geometry

# Device, shape, strides in bytes, and bytes of an element. Plain, because every call makes one.
_Layout: TypeAlias = tuple[str, Shape, Shape, int]


def split(
    array: Any, sizes_or_count: Any, axis: Any, out: Sequence[Any] | None = None
) -> list[Any]:
    """`dml.split` of an array whose memory its library shares."""
    if type(array) is np.ndarray:
        pieces = split_by_slices(array, sizes_or_count, axis, out)
        if pieces is not None:
            return pieces
    return split_view(view(array, "array"), array, sizes_or_count, axis, out)


def split_view(
    source: ArrayView, array: Any, sizes_or_count: Any, axis: Any, out: Sequence[Any] | None
) -> list[Any]:
    """Split an array of which `source` is the view."""
    axis, sizes = piece_sizes(source.shape, sizes_or_count, axis)
    layout = source.device, source.shape, source.strides, source.item_bytes
    if out is None:
        return prepared_split(layout, axis, sizes).split(source, array)
    required = requirements(source, axis, sizes)
    addresses, strides = accept_outputs(out, source, required)
    prepared_split(layout, axis, sizes, strides).split_into(source, out, addresses)
    return list(out)


def requirements(source: ArrayView, axis: int, sizes: Shape) -> list[Requirement]:
    """The memory of the packed pieces of an array.

    It is not a part of a `PreparedSplit`, which also depends on the strides of accepted outputs.
    """
    cached = _requirements_of_few if len(sizes) <= FEW_PIECES else _requirements_of_many
    return cached(source.shape, axis, sizes, source.type, source.item_bytes, source.device)


def _requirements(
    shape: Shape, axis: int, sizes: Shape, typestr: str, item_bytes: int, device: str
) -> list[Requirement]:
    """`requirements`, by what they depend on."""
    return [
        Requirement(piece, packed_byte_strides(piece, item_bytes), typestr, item_bytes, device)
        for piece in piece_shapes(shape, axis, sizes)
    ]


def prepared_split(
    layout: _Layout, axis: int, sizes: Shape, output_strides: Shapes | None = None
) -> PreparedSplit:
    """The cached split of arrays of a layout; outputs are packed if their strides are None."""
    prepare = _splits_of_few_pieces if len(sizes) <= FEW_PIECES else _splits_of_many_pieces
    return prepare(layout, axis, sizes, output_strides)


def _prepared(
    layout: _Layout, axis: int, sizes: Shape, output_strides: Shapes | None
) -> PreparedSplit:
    """A new split, as of `prepared_split`."""
    device, shape, strides, item_bytes = layout
    outputs = [None] * len(sizes) if output_strides is None else output_strides
    geometry = split_geometry(shape, axis, sizes, item_bytes, strides, outputs)
    # Without `prepare`: a call must not wait for the compiler because its sizes are new.
    program = _backend(device).compile(geometry)
    return PreparedSplit(program, NewArrays(piece_shapes(shape, axis, sizes)))


_backend = lru_cache(maxsize=64)(find_backend)
_splits_of_few_pieces = lru_cache(maxsize=1024)(_prepared)
_splits_of_many_pieces = lru_cache(maxsize=MANY_PIECES_CACHED)(_prepared)
_requirements_of_few = lru_cache(maxsize=64)(_requirements)
_requirements_of_many = lru_cache(maxsize=MANY_PIECES_CACHED)(_requirements)
