"""Several arrays of one type that are made at once: their shapes, and one block for all."""

from dataclasses import dataclass
from itertools import accumulate
from math import prod

# Arrays that need less than this in all share one block of memory, which saves a third of the time
# that CuPy takes to make them. The block lives as long as any of them: a small price below, not
# above. CUDA aligns allocations to 256 bytes at least and CuPy's pool to 512, so parts of the block
# begin where allocations of their own would.
SHARED_BYTES = 1 << 20
ALIGNMENT = 512

Shapes = tuple[tuple[int, ...], ...]
Layouts = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Packing:
    """Arrays to be made, of the same type: shapes, and where each begins in a shared block."""

    shapes: Shapes
    dtype: str | None  # NumPy's name of the type; None for the type of the input
    layouts: Layouts | None  # shapes and strides in bytes of views to make of them
    offsets: tuple[int, ...]  # bytes
    size: int  # of the block
    is_shared: bool  # whether they are parts of one block
    largest: int  # index of the largest, 0 if there is none
    most: int  # bytes of it


def packing(
    shapes: Shapes, item_bytes: int, dtype: str | None = None, layouts: Layouts | None = None
) -> Packing:
    """Lay out arrays one after the other."""
    sizes = [prod(shape) * item_bytes for shape in shapes]
    *offsets, size = accumulate((-(-each // ALIGNMENT) * ALIGNMENT for each in sizes), initial=0)
    is_shared = len(shapes) > 1 and size < SHARED_BYTES
    most = max(sizes, default=0)
    largest = sizes.index(most) if sizes else 0
    return Packing(shapes, dtype, layouts, tuple(offsets), size, is_shared, largest, most)
