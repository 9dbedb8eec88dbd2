"""How long warps wait for the banks of shared memory.

Word n of shared memory is in bank n mod 32. A warp's load takes as many wavefronts as the busiest
bank has words to deliver (CUDA C++ Programming Guide, "Shared memory"). Bank conflicts depend on
all widths and follow no simple formula, so they are counted, for a sample of warps.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from dmlsplit.backends.cuda.launch import VECTOR, WARP, WORD
from dmlsplit.geometry import ceil_div

BANKS = 32  # of shared memory
SAMPLED_WARPS = 2  # of a slab, at equal distances
SAMPLED_PARTS = 4  # of the vectors of such a warp

Array = np.ndarray[Any, Any]
Pad = tuple[int, int]
Offset = TypeVar("Offset", int, "np.ndarray[Any, np.dtype[np.int64]]")


def wavefronts(words: Array) -> Array:
    """The wavefronts of each load, whose words are a row; lanes that read the same word share it.

    Parameters
    ----------
    words : array of int, shape (loads, lanes)

    Returns
    -------
    array of int, shape (loads,)
    """
    words = np.sort(words, axis=1)
    is_distinct = np.ones(words.shape, bool)
    np.not_equal(words[:, 1:], words[:, :-1], out=is_distinct[:, 1:])
    banks = words % BANKS + np.arange(len(words))[:, None] * BANKS
    counts = np.bincount(banks[is_distinct], minlength=len(words) * BANKS)
    busiest: Array = counts.reshape(-1, BANKS).max(axis=1)
    return busiest


def padded(offset: Offset, pad: Pad) -> Offset:
    """An offset in shared memory in which `pad[1]` unused bytes follow every 2^`pad[0]` bytes."""
    return offset + (offset >> pad[0]) * pad[1]


@lru_cache(maxsize=1024)
def vector_wavefronts(
    starts: Sequence[int], rows: int, row_pitch: int, part: int, pads: Sequence[Pad]
) -> list[float]:
    """The wavefronts in which a warp gathers a vector for each lane, for each of `pads`.

    They are the means of a sample. Neighbouring lanes gather neighbouring vectors of an output in a
    slab of `rows` rows. `starts` are the first column of each output, and the end of the last one.
    Each load has `part` bytes. A wavefront delivers at most one word from each bank, 128 bytes:
    loads of 16 bytes are taken to be served for a quarter of the warp at a time, loads of 8 bytes
    for half of it. Outputs of single bytes that are at least a vector wide are loaded as words.
    """
    columns = np.array(starts)
    first_lanes = np.cumsum([0, *-(-rows * np.diff(columns) // VECTOR)])  # of each output
    lanes_before_last_warp = max(0, int(first_lanes[-1]) - WARP)
    totals = np.zeros(len(pads))
    for number in range(1, SAMPLED_WARPS + 1):
        first_lane = lanes_before_last_warp * number // (SAMPLED_WARPS + 1) // WARP * WARP
        offsets, weight = _sampled_offsets(columns, first_lanes, first_lane, row_pitch, part)
        words = np.concatenate([padded(offsets, pad) // WORD for pad in pads])
        totals += wavefronts(words).reshape(len(pads), -1).sum(axis=1) * weight
    return list(map(float, totals / SAMPLED_WARPS))


def _sampled_offsets(
    columns: Array, first_lanes: Array, first_lane: int, row_pitch: int, part: int
) -> tuple[Array, float]:
    """The offsets that the lanes of one warp load from an unpadded slab; one load is a row.

    Of the loads of a vector, only some are counted; the second result is how many each stands for.
    """
    widths = np.diff(columns)
    lanes = int(first_lanes[-1])
    first_output = np.searchsorted(first_lanes, first_lane, side="right") - 1
    load = WORD if part == 1 and widths[first_output] >= VECTOR else part
    lanes_at_once = WARP * WORD // max(load, WORD)
    loads = ceil_div(min(WARP, lanes - first_lane), lanes_at_once)
    # Lanes that the last load lacks read what the last lane reads, which takes no longer.
    lane = np.minimum(np.arange(first_lane, first_lane + loads * lanes_at_once), lanes - 1)
    output = np.searchsorted(first_lanes, lane, side="right") - 1
    parts = range(0, VECTOR, load)
    sampled_parts = parts[:: max(1, len(parts) // SAMPLED_PARTS)]
    offsets_in_output = (lane - first_lanes[output]) * VECTOR + np.array(sampled_parts)[:, None]
    row, column = np.divmod(offsets_in_output, widths[output])
    offsets = (row * row_pitch + columns[output] + column).reshape(-1, lanes_at_once)
    return offsets, len(parts) / len(sampled_parts)
