"""How the pieces of a split are made: as new arrays for the engine, or as copies of slices."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple

import numpy as np

from dmlsplit.geometry import SplitGeometry, turns

# Arrays of less than this in total share one block of memory, which saves a third of the time that
# CuPy needs to make them. Each array keeps the whole block alive, which is acceptable only if the
# block is small. CUDA aligns allocations to at least 256 bytes and CuPy's pool to 512, so a part of
# the block is aligned like an allocation of its own.
SHARED_BYTES = 1 << 20
ALIGNMENT = 512

# The CPU engine takes about 4 us more per output than a copy of a slice, but copies runs of bytes
# as wide items, and large arrays on several threads. It is faster for more runs than this, and for
# this many bytes or more.
MOST_RUNS, MOST_BYTES = 256, 1 << 20
# Torch's own operator also copies more bytes, if each output has less than OUTPUT_BYTES on average:
# the engine takes more time for each output than two threads save. From SMALL_OUTPUTS times as many
# bytes on, the engine is faster again, because it writes past the cache.
OUTPUT_BYTES, SMALL_OUTPUTS = 64 << 10, 1024

Shapes = tuple[tuple[int, ...], ...]
Layouts = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


class Packing(NamedTuple):
    """Arrays of one type to allocate: their shapes, and where each begins in a shared block."""

    shapes: Shapes
    dtype: np.dtype | None  # None for the type of the input
    layouts: Layouts | None  # shapes, and strides in bytes, of views to make of them
    offsets: tuple[int, ...]  # bytes; empty if each array has memory of its own
    size: int  # of the block
    largest: int  # index of the largest; 0 if there are no arrays
    most: int  # bytes of the largest


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a small array is cut, in the forms that torch and NumPy accept."""

    axis: int  # from the front
    sizes: tuple[int, ...]
    slices: tuple[tuple[slice, ...], ...]
    # The addresses of recent calls with outputs, and the copies of those that came again.
    seen: set[tuple[int, ...]] = field(default_factory=set)
    copies: dict[tuple[int, ...], Any] = field(default_factory=dict)


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
        parts = [-(-each * step // ALIGNMENT) * ALIGNMENT for each in sizes]
        *offsets, size = accumulate(parts, initial=0)
    most = max(sizes) if sizes else 0
    largest = sizes.index(most) if sizes else 0
    shared = tuple(offsets) if size < SHARED_BYTES else ()
    return Packing(shapes, dtype, layouts, shared, size, largest, most * step)


def small_cut(geometry: SplitGeometry, axis: int, sizes: tuple[int, ...]) -> Cut | None:
    """The slices of a small array on the CPU; None if the engine is faster."""
    runs = max((turns(piece.loops) for piece in geometry.pieces), default=0)
    if runs > MOST_RUNS or geometry.total_bytes >= MOST_BYTES:
        return None
    before = (slice(None),) * axis
    ends = zip(accumulate(sizes), sizes, strict=True)
    return Cut(axis, sizes, tuple((*before, slice(end - size, end)) for end, size in ends))
