"""Small arrays on the CPU, which NumPy cuts faster than the engine does."""

from itertools import accumulate
from typing import TypeAlias

from dmlsplit.geometry import SplitGeometry, trips

# A call of the CPU engine takes some microseconds more than copies of slices, but it copies many
# short runs, and large arrays on several threads, in less time. At these limits both are as fast.
MOST_RUNS, MOST_BYTES = 256, 1 << 20


Slices: TypeAlias = tuple[tuple[slice, ...], ...]  # an index of each piece


def small_slices(geometry: SplitGeometry, axis: int, sizes: tuple[int, ...]) -> Slices | None:
    """The slices of a small array; None if the engine is faster."""
    runs = max((trips(piece.loops) for piece in geometry.pieces), default=0)
    if runs > MOST_RUNS or geometry.total_bytes >= MOST_BYTES:
        return None
    before = (slice(None),) * axis
    ends = zip(accumulate(sizes), sizes, strict=True)
    return tuple([(*before, slice(end - size, end)) for end, size in ends])
