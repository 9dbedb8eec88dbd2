"""How long warps wait for the banks of shared memory.

Word n of shared memory is in bank n mod 32. A warp's load takes as many wavefronts as the busiest
bank has words to deliver (CUDA C++ Programming Guide, "Shared memory"). Bank conflicts depend on
all widths and follow no simple formula, so they are counted, for a sample of warps.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

from dmlsplit.backends.cuda.launch import VECTOR, WORD

WARP, BANKS = 32, 32
# How many warps are counted, at equal distances in a slab, and how many parts of their vectors.
SAMPLED_WARPS, SAMPLED_PARTS = 2, 4


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
    are the first column of each output, and the end of the last one. Each load has `part` bytes:
    loads of 16 bytes are served for a quarter of the warp at a time, loads of 8 for half of it.
    """
    lanes = [
        (first, end - first, at)
        for first, end in pairwise(starts)
        for at in range(0, rows * (end - first), VECTOR)
    ]
    last, served = max(0, len(lanes) - WARP), WARP * WORD // max(part, WORD)
    every = range(0, VECTOR, part)
    sampled = every[:: max(1, len(every) // SAMPLED_PARTS)]
    total = 0
    for number in range(1, SAMPLED_WARPS + 1):
        first = last * number // (SAMPLED_WARPS + 1) // WARP * WARP
        for begin in range(first, first + WARP, served):
            for byte in sampled:
                words = []
                for start, width, at in lanes[begin : begin + served]:
                    row, column = divmod(at + byte, width)
                    words.append(padded(row * row_pitch + start + column, pad) // WORD)
                total += wavefronts(words) if words else 0
    return total * len(every) / len(sampled) / SAMPLED_WARPS
