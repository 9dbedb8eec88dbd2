"""How long warps wait for the banks of shared memory.

Word n of shared memory is in bank n mod 32. A warp's load takes as many wavefronts as the busiest
bank has words to deliver (CUDA C++ Programming Guide, "Shared memory"). Bank conflicts depend on
all widths and follow no simple formula, so they are counted, for a sample of warps.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

from dmlsplit.backends.cuda.launch import VECTOR, WARP, WORD

BANKS = 32  # of shared memory
SAMPLED_WARPS = 2  # of a slab, at equal distances
SAMPLED_PARTS = 4  # of the vectors of such a warp


def wavefronts(words: Iterable[int]) -> int:
    """The wavefronts of one load of `words`; lanes that read the same word share it."""
    return max(Counter(word % BANKS for word in set(words)).values())


def padded(offset: int, pad: tuple[int, int]) -> int:
    """An offset in shared memory in which `pad[1]` unused bytes follow every 2^`pad[0]` bytes."""
    return offset + (offset >> pad[0]) * pad[1]


@lru_cache(maxsize=1024)
def vector_wavefronts(
    starts: Sequence[int],
    rows: int,
    row_pitch: int,
    part: int,
    pad: tuple[int, int] = (0, 0),
) -> float:
    """The wavefronts in which a warp gathers a vector for each lane: the mean of a sample.

    Neighbouring lanes gather neighbouring vectors of an output in a slab of `rows` rows. `starts`
    are the first column of each output, and the end of the last one. Each load has `part` bytes.
    A wavefront delivers at most one word from each bank, 128 bytes: loads of 16 bytes are taken to
    be served for a quarter of the warp at a time, loads of 8 bytes for half of it. Outputs of
    single bytes that are at least a vector wide are loaded as words.
    """
    # By lane: the first column and the width of its output, and the vector's first byte in it.
    lanes = [
        (start, end - start, vector)
        for start, end in pairwise(starts)
        for vector in range(0, rows * (end - start), VECTOR)
    ]
    total = 0.0
    for number in range(1, SAMPLED_WARPS + 1):
        first = max(0, len(lanes) - WARP) * number // (SAMPLED_WARPS + 1) // WARP * WARP
        load = WORD if part == 1 and lanes[first][1] >= VECTOR else part
        parts = range(0, VECTOR, load)
        sampled_parts = parts[:: max(1, len(parts) // SAMPLED_PARTS)]
        lanes_at_once = WARP * WORD // max(load, WORD)
        waits = 0
        for lane in range(first, min(first + WARP, len(lanes)), lanes_at_once):
            for offset in sampled_parts:
                words = []
                for start, width, vector in lanes[lane : lane + lanes_at_once]:
                    row, column = divmod(vector + offset, width)
                    words.append(padded(row * row_pitch + start + column, pad) // WORD)
                waits += wavefronts(words)
        total += waits * len(parts) / len(sampled_parts)
    return total / SAMPLED_WARPS
