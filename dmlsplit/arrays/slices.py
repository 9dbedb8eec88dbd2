"""Small arrays on the CPU, which NumPy and PyTorch cut faster than the engine does."""

from itertools import accumulate
from typing import NamedTuple

from dmlsplit.geometry import SplitGeometry, trips

# A call of the CPU engine takes some microseconds more than copies of slices, but it copies many
# short runs, and large arrays on several threads, in less time. At these limits both are as fast.
MOST_RUNS, MOST_BYTES = 256, 1 << 20


class Slices(NamedTuple):
    """The pieces of a small array along an axis."""

    axis: int  # from the front
    sizes: tuple[int, ...]
    indices: tuple[tuple[slice, ...], ...]


def small_slices(geometry: SplitGeometry, axis: int, sizes: tuple[int, ...]) -> Slices | None:
    """The slices of a small array; None if the engine is faster."""
    runs = max((trips(piece.loops) for piece in geometry.pieces), default=0)
    if runs > MOST_RUNS or geometry.total_bytes >= MOST_BYTES:
        return None
    before = (slice(None),) * axis
    ends = zip(accumulate(sizes), sizes, strict=True)
    return Slices(axis, sizes, tuple([(*before, slice(end - size, end)) for end, size in ends]))
