"""The blocks in which to split a chunked array, and the chunks of the pieces.

A block is a box of the input that is read, split and written in one go. Its size is about
`block_bytes`, or one chunk if that is larger, so the number of blocks in flight bounds the memory.
Blocks can run in any order, in parallel, and again after an interruption, because no two blocks
write the same chunk of a piece:

- Along the axis, a block ends only where a chunk of some piece ends.
- Along each other dimension, the number of input chunks in a block is a power of two. For a chunk
  of a piece it is a power of two that is not larger, so the chunk is inside one block.

With shards (files of several chunks), "chunk" means the shard, because shards are written whole. If
a piece begins inside an input chunk, two blocks read that chunk, but each element is split once.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod
from operator import mul
from typing import Any, NamedTuple

from dmlsplit.geometry import ceil_div


class Part(NamedTuple):
    """The part of a piece that one block writes: `size` along the axis, to `region`."""

    piece: int
    size: int
    region: tuple[slice, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """A box of the input, and one part for each piece that it overlaps, in order."""

    region: tuple[slice, ...]
    parts: tuple[Part, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The elements per dimension."""
        return tuple(side.stop - side.start for side in self.region)


@dataclass(frozen=True)
class BlockGrid:
    """The blocks of a valid split."""

    shape: tuple[int, ...]
    axis: int
    sizes: tuple[int, ...]
    chunk: tuple[int, ...]  # elements of an input shard; without shards, of an input chunk
    inner: tuple[int, ...]  # elements of a chunk inside a shard; without shards, ones
    item_bytes: int
    block_bytes: int  # the target size of a block

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "BlockGrid":
        """The grid with these fields, read from JSON."""
        fields: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**fields)

    def __len__(self) -> int:
        """The number of blocks."""
        return prod(map(len, self._block_starts))

    def __getitem__(self, index: int) -> Block:
        """A block by its number, in row-major order."""
        region: tuple[slice, ...] = ()
        for starts, length in zip(reversed(self._block_starts), reversed(self.shape), strict=True):
            index, position = divmod(index, len(starts))
            start, stop, *_ = (*starts[position : position + 2], length)
            region = (slice(start, stop), *region)
        axis, parts = self.axis, []
        for piece, begin, end in pieces_in(self._starts, region[axis].start, region[axis].stop):
            place = (*region[:axis], slice(begin, end), *region[axis + 1 :])
            parts.append(Part(piece, end - begin, place))
        return Block(region, tuple(parts))

    def nbytes(self, index: int) -> int:
        """The bytes of a block."""
        return prod(self[index].shape) * self.item_bytes

    def piece_chunk(self, piece: int) -> tuple[int, ...]:
        """The chunk, or shard, of a piece.

        Along the axis it is at most as long as the piece. If that makes it smaller than an input
        chunk, it grows along the other dimensions, but not beyond a block.
        """
        along = self._along(piece)
        factor = max(1, min(self.chunk[self.axis], self.shape[self.axis]) // along)
        times = _powers_of_two(factor, self._growth)
        chunk = list(map(mul, self.chunk, times))
        chunk[self.axis] = along
        return tuple(chunk)

    def _along(self, piece: int) -> int:
        """The elements of a piece's chunk along the axis, a multiple of the inner chunk's."""
        inner = self.inner[self.axis]
        return min(self.chunk[self.axis], max(1, ceil_div(self.sizes[piece], inner)) * inner)

    @cached_property
    def _starts(self) -> list[int]:
        """The start of each piece along the axis, and the end of the last piece."""
        return [0, *accumulate(self.sizes)]

    @cached_property
    def _cross_section_bytes(self) -> int:
        """The bytes of an input chunk at one position along the axis."""
        sides = list(map(min, self.chunk, self.shape))
        return max(1, prod(sides[: self.axis]) * prod(sides[self.axis + 1 :]) * self.item_bytes)

    @cached_property
    def _length(self) -> int:
        """The longest block along the axis, in elements: a multiple of the input chunk."""
        step = self.chunk[self.axis]
        return max(1, self.block_bytes // (self._cross_section_bytes * step)) * step

    @cached_property
    def _starts_along(self) -> list[int]:
        """The starts of blocks along the axis, each where a chunk of a piece starts.

        A block has as many consecutive chunks of pieces as fit in `_length`. At least one fits,
        because no chunk of a piece is longer than an input chunk.
        """
        starts, previous = [0], 0
        for piece, begin in enumerate(self._starts[:-1]):
            end, step = begin + self.sizes[piece], self._along(piece)
            for border in (*range(begin + step, end, step), end):
                if border > starts[-1] + self._length:
                    starts.append(previous)
                previous = border
        return starts if previous else []

    @cached_property
    def _growth(self) -> tuple[int, ...]:
        """The input chunks per block along each dimension except the axis: powers of two.

        They are above 1 only if the array is too short along the axis to fill `block_bytes`.
        Innermost dimensions grow first, because neighbours there are read and written together.
        """
        length = min(self._length, max(1, self.shape[self.axis]))
        budget = max(1, self.block_bytes // (self._cross_section_bytes * length))
        counts = [max(1, n) for n in map(ceil_div, self.shape, self.chunk)]
        counts[self.axis] = 1
        return _powers_of_two(budget, counts[::-1])[::-1]

    @cached_property
    def _block_starts(self) -> list[Sequence[int]]:
        steps = map(mul, self.chunk, self._growth)
        starts: list[Sequence[int]] = [
            range(0, n, step) for n, step in zip(self.shape, steps, strict=True)
        ]
        starts[self.axis] = self._starts_along
        return starts


def pieces_in(starts: Sequence[int], low: int, high: int) -> Iterator[tuple[int, int, int]]:
    """The pieces that a range along the axis overlaps, as (piece, begin, end); never empty ones.

    The last entry of `starts` is the end of the last piece. `begin` and `end` count from the start
    of the piece.
    """
    for piece in range(bisect_right(starts, low) - 1, bisect_left(starts, high)):
        begin, end = max(low, starts[piece]), min(high, starts[piece + 1])
        if begin < end:
            yield piece, begin - starts[piece], end - starts[piece]


def _powers_of_two(budget: int, limits: Sequence[int]) -> tuple[int, ...]:
    """For each limit, a power of two that is not above it; their product is at most `budget`.

    Earlier limits are used up first.
    """
    powers = []
    for limit in limits:
        powers.append(1 << (min(budget, limit).bit_length() - 1))
        budget //= powers[-1]
    return tuple(powers)


def packed_chunk(shape: Sequence[int], item_bytes: int, chunk_bytes: int) -> tuple[int, ...]:
    """A chunk of about `chunk_bytes` for a packed array: whole rows if they fit."""
    chunk: tuple[int, ...] = ()
    budget = max(1, chunk_bytes // max(1, item_bytes))
    for size in reversed(shape):
        chunk = (max(1, min(size, budget)), *chunk)
        budget = max(1, budget // chunk[0])
    return chunk
