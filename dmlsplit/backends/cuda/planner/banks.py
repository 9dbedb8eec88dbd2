"""Chooses the shared-memory padding of a tile with the fewest bank conflicts (wavefronts).

Shared memory has 32 banks; word n is in bank n mod 32. A load of a warp takes as many wavefronts as
one bank has words to deliver (CUDA C++ Programming Guide, "Shared memory"). Padding moves rows to
other banks, but a padded tile is filled word by word. Which is better depends on all widths, so the
wavefronts of each choice are counted, for some warps of the tile.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

from dmlsplit.backends.cuda.launch import VECTOR, blocks

WARP, BANKS, WORD = 32, 32, 4
# Wavefronts in which a warp fills its 512 bytes of a tile: a quarter of the warp in each by
# vectors; by words, in each of four stores, four, as lanes are 16 bytes apart and every fourth
# bank is used.
FILL_VECTORS, FILL_WORDS = 4, 16
# Warps that are counted: one at a third, one at two thirds of the tile.
SAMPLED_WARPS = 2

Padding = tuple[int, int]  # bytes, and the number of rows after which they are repeated


def best_padding(
    starts: Sequence[int], rows: int, pitch: int, load: int, allowed: Iterable[Padding]
) -> Padding:
    """Return the allowed padding that costs the fewest wavefronts.

    Parameters
    ----------
    starts
        Where the columns of each output begin in a row of the tile, and where the last ones end.
    rows
        Rows of the tile.
    pitch
        Bytes of a row in shared memory, without padding.
    load
        Bytes of one load: 1, 2 or 4.
    allowed
        Choices; the first of equally good ones is taken.
    """
    sizes = (blocks(rows * (end - start), VECTOR) for start, end in pairwise(starts))
    vectors = [0, *accumulate(sizes)]
    count = blocks(vectors[-1], WARP)
    sampled = [count * number // (SAMPLED_WARPS + 1) for number in range(1, SAMPLED_WARPS + 1)]
    warps = [list(_lanes(starts, vectors, warp * WARP)) for warp in sampled]

    def cost(padding: Padding) -> int:
        pad, pad_rows = padding

        def address(row: int, column: int) -> int:
            return row * pitch + row // pad_rows * pad + column

        return len(warps) * (FILL_WORDS if pad else FILL_VECTORS) + sum(
            wavefronts(
                address((at + byte) // width, start + (at + byte) % width) // WORD
                for start, width, at in lanes
            )
            for lanes in warps
            for byte in range(0, VECTOR, load)
        )

    return min(allowed, key=cost)


def wavefronts(words: Iterable[int]) -> int:
    """Return the wavefronts of one load of `words`; lanes that read the same word share it."""
    return max(Counter(word % BANKS for word in set(words)).values())


def _lanes(
    starts: Sequence[int], vectors: Sequence[int], first: int
) -> Iterator[tuple[int, int, int]]:
    """Yield for each lane of a warp its output's first column and width, and its byte in there.

    The first lane takes vector `first` of the tile; `vectors` holds the first one of each output.
    """
    for vector in range(first, min(first + WARP, vectors[-1])):
        output = bisect_right(vectors, vector) - 1
        width = starts[output + 1] - starts[output]
        yield starts[output], width, (vector - vectors[output]) * VECTOR
