"""How the pieces of a split are made: as new arrays for the engine, or as copies of slices."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod

from dmlsplit.geometry import SplitGeometry, piece_shapes, turns

# Arrays that need less than this in all share one block of memory, which saves a third of the time
# that CuPy takes to make them. The block lives as long as any of them: a small price below, not
# above. CUDA aligns allocations to 256 bytes at least and CuPy's pool to 512, so parts of the block
# begin where allocations of their own would.
SHARED_BYTES = 1 << 20
ALIGNMENT = 512

# The CPU engine takes some 4 us more for an output than a copy of a slice, and copies runs of bytes
# as wide items: from this many runs on it wins, and later from threads.
MOST_RUNS, MOST_BYTES = 256, 1 << 20

Shapes = tuple[tuple[int, ...], ...]
Layouts = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Packing:
    """Arrays to be made, of the same type: shapes, and where each begins in a shared block."""

    shapes: Shapes
    dtype: str | None  # NumPy's name of the type; None for the type of the input
    layouts: Layouts | None  # shapes and strides in bytes of views to make of them
    offsets: tuple[int, ...]  # bytes; none if they are surely too large for a block
    size: int  # of the block
    is_shared: bool  # whether they are parts of one block
    largest: int  # index of the largest, 0 if there is none
    most: int  # bytes of it


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a small array is cut, in the words of each library."""

    axis: int  # from the front
    sizes: tuple[int, ...]
    slices: tuple[tuple[slice, ...], ...]


def packing(
    shapes: Shapes, item_bytes: int, dtype: str | None = None, layouts: Layouts | None = None
) -> Packing:
    """Lay out arrays one after the other."""
    return _packed(shapes, [prod(shape) for shape in shapes], item_bytes, dtype, layouts)


def pieces_packing(
    shape: tuple[int, ...], axis: int, sizes: Sequence[int], item_bytes: int
) -> Packing:
    """Lay out the pieces of a split: often hundreds, and a call waits for it."""
    step = item_bytes * prod(shape[:axis]) * prod(shape[axis + 1 :])
    return _packed(piece_shapes(shape, axis, sizes), sizes, step)


def _packed(
    shapes: Shapes,
    sizes: Sequence[int],
    step: int,
    dtype: str | None = None,
    layouts: Layouts | None = None,
) -> Packing:
    """`sizes` are in units of `step` bytes."""
    offsets, size = [], 0
    if len(shapes) > 1 and sum(sizes) * step < SHARED_BYTES:
        parts = [-(-each * step // ALIGNMENT) * ALIGNMENT for each in sizes]
        *offsets, size = accumulate(parts, initial=0)
    most = max(sizes, default=0)
    largest = sizes.index(most) if sizes else 0
    is_shared = len(offsets) > 0 and size < SHARED_BYTES
    return Packing(shapes, dtype, layouts, tuple(offsets), size, is_shared, largest, most * step)


def small_cut(geometry: SplitGeometry, axis: int, sizes: tuple[int, ...]) -> Cut | None:
    """The slices of an array on the CPU; None where the engine is the faster way."""
    runs = max((turns(piece.loops) for piece in geometry.pieces), default=0)
    if runs > MOST_RUNS or geometry.total_bytes > MOST_BYTES:
        return None
    before = (slice(None),) * axis
    ends = zip(accumulate(sizes), sizes, strict=True)
    return Cut(axis, sizes, tuple((*before, slice(end - size, end)) for end, size in ends))
