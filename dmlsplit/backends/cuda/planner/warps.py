"""How warps gather a tile's vectors: dealt out to teams of threads, which wait for banks.

Word n of shared memory is in bank n mod 32. A warp's load takes as many wavefronts as the busiest
bank has words to deliver (CUDA C++ Programming Guide, "Shared memory"). Bank conflicts depend on
all widths, so they are counted for some warps.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dmlsplit.backends.cuda.launch import THREADS, VECTOR, WORD
from dmlsplit.geometry import ceil_div

WARP, BANKS = 32, 32
# Warps that are counted: one at a third, one at two thirds of the tile.
SAMPLED_WARPS = 2
# The most vectors of a thread in a chunk: enough to be worth a look-up of the output.
MOST_STEPS = 6


def chunk_steps(sizes: Sequence[int], team_bits: int) -> int:
    """The vectors of a thread in each chunk, so that every team gets a chunk.

    `sizes` are a tile's bytes of each output.
    """
    steps = sum(ceil_div(size, VECTOR << team_bits) for size in sizes)
    return max(1, min(MOST_STEPS, (steps << team_bits) // THREADS))


def dealt(sizes: Sequence[int], chunk_bytes: int, lead: int = 0) -> Iterator[tuple[int, int]]:
    """The chunks of a tile in the order in which teams take them: outputs, and first bytes.

    Teams of a warp get equally wide outputs, so that they do not wait for each other, and
    neighbouring chunks, which are in neighbouring banks. An output's first vector may begin up to
    `lead` bytes before its share.
    """
    ranked = sorted(range(len(sizes)), key=lambda output: -sizes[output])
    for begin in range(0, max(sizes) + lead, chunk_bytes):
        for output in ranked:
            if begin < sizes[output] + lead:
                yield output, begin


def used_lanes(sizes: Sequence[int], team_bits: int) -> float:
    """The mean share of a warp's lanes that have a vector.

    Teams of one warp that copy outputs of different widths take turns.
    """
    chunk_bytes = chunk_steps(sizes, team_bits) * VECTOR << team_bits
    chunks, teams = list(dealt(sizes, chunk_bytes)), WARP >> team_bits
    steps = 0
    for first in range(0, len(chunks), teams):
        longest: dict[int, int] = {}
        for output, begin in chunks[first : first + teams]:
            size = sizes[output]
            count = ceil_div(min(chunk_bytes, size - begin), VECTOR << team_bits)
            longest[size] = max(count, longest.get(size, 0))
        steps += sum(longest.values())
    return sum(ceil_div(size, VECTOR) for size in sizes) / (steps * WARP)


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The layout of a tile in shared memory, and the threads that copy an output."""

    row_pitch: int  # bytes from row to row
    pad_bits: int | None  # 16 bytes of padding after every 2^pad_bits rows; None: nowhere
    team_bits: int  # 2^team_bits threads take neighbouring vectors of one output


def vector_wavefronts(
    spans: Sequence[tuple[int, int]], arrangement: Arrangement, part: int
) -> float:
    """The mean wavefronts in which a sampled warp gathers a vector for each lane.

    `spans` are the first column and width of each output, in the order in which teams take them.
    One load has `part` bytes: 1, 2, 4, or 16, which is served a quarter of the warp at a time.
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
