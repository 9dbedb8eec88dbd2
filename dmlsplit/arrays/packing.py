"""The arrays that a split allocates, and where each begins if they share one allocation."""

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import NamedTuple

import numpy as np

from dmlsplit.geometry import ceil_div

# Arrays of less than this in total share one allocation, which saves a third of the time that CuPy
# needs to make them. Each array keeps all of it alive, which is acceptable only if it is small.
# CUDA aligns allocations to at least 256 bytes and CuPy's pool to 512, so each part is aligned like
# an allocation of its own.
SHARED_BYTES = 1 << 20
ALIGNMENT = 512

Shapes = tuple[tuple[int, ...], ...]
Layouts = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


class Packing(NamedTuple):
    """Arrays of one type to allocate: their shapes, and where each begins if they share memory."""

    shapes: Shapes
    dtype: np.dtype | None  # None for the type of the input
    layouts: Layouts | None  # shapes, and strides in bytes, of views to make of them
    offsets: tuple[int, ...]  # bytes; empty if each array has memory of its own
    size: int  # of the shared allocation


def packing(
    shapes: Shapes,
    step: int,
    dtype: np.dtype | None = None,
    layouts: Layouts | None = None,
    sizes: Sequence[int] | None = None,
) -> Packing:
    """Lay out arrays one after the other; their sizes, in units of `step` bytes, may be known."""
    sizes = [prod(shape) for shape in shapes] if sizes is None else sizes
    offsets, size = [], 0
    if len(shapes) > 1 and sum(sizes) * step < SHARED_BYTES:
        parts = [ceil_div(length * step, ALIGNMENT) * ALIGNMENT for length in sizes]
        *offsets, size = accumulate(parts, initial=0)
    shared = tuple(offsets) if size < SHARED_BYTES else ()
    return Packing(shapes, dtype, layouts, shared, size)
