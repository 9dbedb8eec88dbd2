"""Small splits of NumPy's arrays: slices that NumPy copies sooner than windows on them are made."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TypeAlias

import numpy as np

from dmlsplit.geometry import SplitGeometry, turns

Slices: TypeAlias = tuple[tuple[slice, ...], ...]

# The CPU engine takes some 4 us more for an output than a copy of a slice, and copies runs of bytes
# as wide items: from this many runs on it wins, and later from threads.
MOST_RUNS, MOST_BYTES = 256, 1 << 20
# Kinds of NumPy's own types whose elements it copies whole: fields may have padding between.
_WHOLE_KINDS = "?biufcmMSU"
_OF_OTHERS = 2  # numpy.dtype.isbuiltin


def slices(geometry: SplitGeometry, axis: int, sizes: Sequence[int]) -> Slices | None:
    """Return what selects each piece of an array, or None where the engine is the faster way."""
    runs = max((turns(piece.loops) for piece in geometry.pieces), default=0)
    if runs > MOST_RUNS or geometry.total_bytes > MOST_BYTES:
        return None
    before = (slice(None),) * axis
    ends = zip(accumulate(sizes), sizes, strict=True)
    return tuple((*before, slice(end - size, end)) for end, size in ends)


def copies(array: object, selected: Slices) -> list[np.ndarray] | None:
    """Return copies of the slices; None if `array` is none that NumPy would copy byte for byte."""
    if type(array) is not np.ndarray or not _is_whole(array.dtype):
        return None
    try:
        return [array[one].copy() for one in selected]
    except MemoryError:  # Who makes larger arrays says how large.
        return None


@lru_cache(maxsize=256)
def _is_whole(dtype: np.dtype) -> bool:
    return dtype.kind in _WHOLE_KINDS and dtype.isbuiltin != _OF_OTHERS
