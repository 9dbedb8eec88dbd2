"""Counts how often lanes of a warp wait for each other's bank of shared memory (wavefronts).

Shared memory has 32 banks; word n is in bank n mod 32. A load of a warp takes as many wavefronts as
one bank has words to deliver (CUDA C++ Programming Guide, "Shared memory"). Which lanes meet in a
bank depends on all widths, so they are counted, for some warps.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dmlsplit.backends.cuda.launch import VECTOR, WORD

WARP, BANKS = 32, 32
# Warps that are counted: one at a third, one at two thirds of the tile.
SAMPLED_WARPS = 2


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How a tile lies in shared memory, and how many threads take an output's vectors."""

    row_pitch: int  # bytes from row to row
    pad_bits: int | None  # 16 bytes of padding after every 2^pad_bits rows; None: nowhere
    team_bits: int  # 2^team_bits threads take neighbouring vectors of one output


def vector_wavefronts(
    spans: Sequence[tuple[int, int]], arrangement: Arrangement, part: int
) -> float:
    """The wavefronts in which a warp gathers a vector for each lane, by sampled warps.

    Parameters
    ----------
    spans
        First column and width of each output, in the order in which teams take them.
    arrangement
        What is judged.
    part
        Bytes of one load: 1, 2, 4 or 16. A load of 16 is served a quarter of the warp at a time.
    """
    teams = WARP >> arrangement.team_bits
    last = max(0, len(spans) - teams)
    firsts = [min(last, len(spans) * n // (SAMPLED_WARPS + 1)) for n in range(1, SAMPLED_WARPS + 1)]
    served = WARP * WORD // max(part, WORD)
    return sum(
        wavefronts(_words(spans, arrangement, first, range(lane, lane + served), byte))
        for first in firsts
        for byte in range(0, VECTOR, part)
        for lane in range(0, WARP, served)
    ) / len(firsts)


def wavefronts(words: Iterable[int]) -> int:
    """The wavefronts of one load of `words`; lanes that read the same word share it."""
    return max(Counter(word % BANKS for word in set(words)).values())


def _words(
    spans: Sequence[tuple[int, int]],
    arrangement: Arrangement,
    first: int,
    lanes: Iterable[int],
    byte: int,
) -> Iterator[int]:
    """The word with a byte of each lane's vector, if the first team takes output `first`."""
    team = 1 << arrangement.team_bits
    for lane in lanes:
        start, width = spans[min(first + lane // team, len(spans) - 1)]
        row, column = divmod(lane % team * VECTOR + byte, width)
        pads = 0 if arrangement.pad_bits is None else row >> arrangement.pad_bits
        yield (row * arrangement.row_pitch + pads * VECTOR + start + column) // WORD
