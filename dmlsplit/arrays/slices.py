"""Small splits on the CPU: slices, which a library copies faster than the engine."""

from dataclasses import dataclass
from itertools import accumulate

from dmlsplit.geometry import SplitGeometry, turns

# The CPU engine takes some 4 us more for an output than a copy of a slice, and copies runs of bytes
# as wide items: from this many runs on it wins, and later from threads.
MOST_RUNS, MOST_BYTES = 256, 1 << 20


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a small array is cut, in the words of each library."""

    axis: int  # from the front
    sizes: tuple[int, ...]
    slices: tuple[tuple[slice, ...], ...]


def small_cut(geometry: SplitGeometry, axis: int, sizes: tuple[int, ...]) -> Cut | None:
    """The slices of an array on the CPU; None where the engine is the faster way."""
    runs = max((turns(piece.loops) for piece in geometry.pieces), default=0)
    if runs > MOST_RUNS or geometry.total_bytes > MOST_BYTES:
        return None
    before = (slice(None),) * axis
    ends = zip(accumulate(sizes), sizes, strict=True)
    return Cut(axis, sizes, tuple((*before, slice(end - size, end)) for end, size in ends))
