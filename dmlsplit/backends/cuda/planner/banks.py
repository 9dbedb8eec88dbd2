"""Which padding of a tile in shared memory costs the fewest turns of its banks.

Shared memory has 32 banks; word n lies in bank n mod 32. A load of a warp takes as many turns as
one bank has words to give (CUDA C++ Programming Guide, "Shared memory"). Padding moves rows to
other banks, but a padded tile is filled word by word. What is better depends on all widths, so the
turns of each choice are counted, for some warps of the tile.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

from dmlsplit.backends.cuda.launch import VECTOR, blocks

WARP, BANKS, WORD = 32, 32, 4
# Turns in which a warp fills its 512 bytes of a tile: by vectors, and by words 16 bytes apart.
FILL_VECTORS, FILL_WORDS = 4, 16
SAMPLED_WARPS = 2

Padding = tuple[int, int]  # bytes, and after how many rows they come each time


def best_padding(
    starts: Sequence[int], rows: int, pitch: int, part: int, allowed: Iterable[Padding]
) -> Padding:
    """Return the padding, of those that are allowed, that costs the fewest turns.

    Parameters
    ----------
    starts
        Where the columns of each output begin in a row of the tile, and where the last ends.
    rows
        Rows of the tile.
    pitch
        Bytes of a row in shared memory, without padding.
    part
        Bytes of one load: 1, 2 or 4.
    allowed
        Choices; of equal ones the first is taken.
    """
    sizes = (blocks(rows * (end - start), VECTOR) for start, end in pairwise(starts))
    vectors = [0, *accumulate(sizes)]
    warps = [list(_lanes(starts, vectors, first)) for first in _sampled(vectors[-1])]

    def cost(padding: Padding) -> int:
        pad, pad_rows = padding

        def place(row: int, column: int) -> int:
            return row * pitch + row // pad_rows * pad + column

        return len(warps) * (FILL_WORDS if pad else FILL_VECTORS) + sum(
            turns(
                place((at + byte) // width, start + (at + byte) % width) // WORD
                for start, width, at in lanes
            )
            for lanes in warps
            for byte in range(0, VECTOR, part)
        )

    return min(allowed, key=cost)


def turns(words: Iterable[int]) -> int:
    """Return the turns of one load: lanes that read the same word share it."""
    return max(Counter(word % BANKS for word in set(words)).values())


def _sampled(vectors: int) -> Iterator[int]:
    """Yield the first vectors of some warps that are spread over those of a tile."""
    warps = blocks(vectors, WARP)
    for sample in range(1, SAMPLED_WARPS + 1):
        yield warps * sample // (SAMPLED_WARPS + 1) * WARP


def _lanes(
    starts: Sequence[int], vectors: Sequence[int], first: int
) -> Iterator[tuple[int, int, int]]:
    """Yield, for each lane of a warp, its output's columns and where in the output it begins.

    Vector `first` of the tile is that of the first lane; `vectors` holds the first of each output.
    """
    for vector in range(first, min(first + WARP, vectors[-1])):
        output = bisect_right(vectors, vector) - 1
        width = starts[output + 1] - starts[output]
        yield starts[output], width, (vector - vectors[output]) * VECTOR
