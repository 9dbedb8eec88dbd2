"""Deals the vectors of a tile's outputs out to teams of threads."""

from collections.abc import Iterator, Sequence

from dmlsplit.backends.cuda.launch import THREADS, VECTOR, blocks
from dmlsplit.backends.cuda.planner.banks import WARP

# Vectors of a thread in a chunk, at most: enough to be worth looking up what the output is.
MOST_STEPS = 4

Chunk = tuple[int, int]  # an output, and the first byte of its share of the tile


def chunk_steps(sizes: Sequence[int], team_bits: int) -> int:
    """The vectors of a thread in each chunk, so that there is a chunk for every team.

    `sizes` are the bytes that a tile has of each output.
    """
    steps = sum(blocks(size, VECTOR << team_bits) for size in sizes)
    return max(1, min(MOST_STEPS, (steps << team_bits) // THREADS))


def dealt(sizes: Sequence[int], chunk_bytes: int, lead: int = 0) -> Iterator[Chunk]:
    """The chunks of a tile in the order in which teams take them.

    Teams of a warp get chunks of outputs of the same width, so that they do not wait for each
    other, and neighbouring ones, which are in neighbouring banks. Up to `lead` bytes, an output's
    first vector may begin before its share.
    """
    ranked = sorted(range(len(sizes)), key=lambda output: -sizes[output])
    for begin in range(0, max(sizes) + lead, chunk_bytes):
        for output in ranked:
            if begin < sizes[output] + lead:
                yield output, begin


def used_lanes(sizes: Sequence[int], team_bits: int) -> float:
    """The share of a warp's lanes that have a vector, in the mean step.

    Teams of one warp that copy outputs of other widths take turns.
    """
    chunk_bytes = chunk_steps(sizes, team_bits) * VECTOR << team_bits
    chunks, teams = list(dealt(sizes, chunk_bytes)), WARP >> team_bits
    steps = 0
    for first in range(0, len(chunks), teams):
        longest: dict[int, int] = {}
        for output, begin in chunks[first : first + teams]:
            size = sizes[output]
            count = blocks(min(chunk_bytes, size - begin), VECTOR << team_bits)
            longest[size] = max(count, longest.get(size, 0))
        steps += sum(longest.values())
    return sum(blocks(size, VECTOR) for size in sizes) / (steps * WARP)
