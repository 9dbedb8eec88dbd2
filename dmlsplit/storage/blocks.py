"""Which blocks of a chunked array to split one after the other, and how to chunk the pieces.

A block is a box of the input that is read, split and written in one go. Blocks hold about
`block_bytes`, or one chunk where chunks are larger, so memory is bounded by the blocks in
flight. They can be done in any order, in parallel, and again after an interruption, because
no chunk of a piece is written by two of them:

- Along the axis, blocks end only where a chunk of some piece ends.
- Across the axis, a block is a power of two of chunks of the input, and a chunk of a piece is
  a power of two of them that is no larger, so each lies in one block.

Where there are shards (files of several chunks), "chunk" means the shard: what is written whole.
Where a piece begins inside a chunk of the input, that chunk is read by two blocks; each element is
still split once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod
from operator import mul
from typing import Any, NamedTuple

from dmlsplit.geometry import piece_shapes


class Part(NamedTuple):
    """What one block gives to one piece: `size` along the axis, written to `region`."""

    piece: int
    size: int
    region: tuple[slice, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """A box of the input, and its parts, one for each piece that it reaches, in order."""

    region: tuple[slice, ...]
    parts: tuple[Part, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements per dimension."""
        return tuple(side.stop - side.start for side in self.region)


@dataclass(frozen=True)
class BlockGrid:
    """A split that is known to be valid, block by block."""

    shape: tuple[int, ...]
    axis: int
    sizes: tuple[int, ...]
    chunk: tuple[int, ...]  # in elements: a shard, or where there are none, a chunk of the input
    inner: tuple[int, ...]  # in elements: a chunk inside a shard; ones where there are no shards
    item_bytes: int
    block_bytes: int  # wanted size of a block

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> BlockGrid:
        """The grid that was written as JSON."""
        fields: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**fields)

    def __len__(self) -> int:
        """The number of blocks."""
        return prod(map(len, self._block_starts))

    def __getitem__(self, index: int) -> Block:
        """A block by its number; numbers count row-major."""
        region: tuple[slice, ...] = ()
        for starts, length in zip(reversed(self._block_starts), reversed(self.shape), strict=True):
            index, position = divmod(index, len(starts))
            start, stop, *_ = (*starts[position : position + 2], length)
            region = (slice(start, stop), *region)
        return Block(region, tuple(self._parts(region)))

    def nbytes(self, index: int) -> int:
        """The size of a block in bytes."""
        return prod(self[index].shape) * self.item_bytes

    def piece_shape(self, piece: int) -> tuple[int, ...]:
        """Elements per dimension of a piece."""
        return piece_shapes(self.shape, self.axis, (self.sizes[piece],))[0]

    def piece_chunk(self, piece: int) -> tuple[int, ...]:
        """The chunk, or shard, of a piece.

        Along the axis it is that of the input or the piece, whichever is smaller. Where that
        makes it small, it grows along the other dimensions, within a block.
        """
        along = self._along(piece)
        factor = max(1, min(self.chunk[self.axis], self.shape[self.axis]) // along)
        times = _powers_of_two(factor, self._growth)
        chunk = list(map(mul, self.chunk, times))
        chunk[self.axis] = along
        return tuple(chunk)

    def _parts(self, region: tuple[slice, ...]) -> Iterator[Part]:
        side = region[self.axis]
        for piece, begin, end in overlaps(self._starts, side.start, side.stop):
            place = (*region[: self.axis], slice(begin, end), *region[self.axis + 1 :])
            yield Part(piece, end - begin, place)

    def _along(self, piece: int) -> int:
        """The size of a piece's chunks along the axis: whole inner chunks."""
        inner = self.inner[self.axis]
        return min(self.chunk[self.axis], max(1, -(-self.sizes[piece] // inner)) * inner)

    @cached_property
    def _starts(self) -> list[int]:
        """Where each piece begins along the axis, and where the last one ends."""
        return [0, *accumulate(self.sizes)]

    @cached_property
    def _cross_section_bytes(self) -> int:
        """Bytes of one chunk of the input at one position along the axis."""
        sides = list(map(min, self.chunk, self.shape))
        return max(1, prod(sides[: self.axis]) * prod(sides[self.axis + 1 :]) * self.item_bytes)

    @cached_property
    def _length(self) -> int:
        """The longest a block may be along the axis: whole chunks of the input."""
        step = self.chunk[self.axis]
        return max(1, self.block_bytes // (self._cross_section_bytes * step)) * step

    @cached_property
    def _starts_along(self) -> list[int]:
        """Where blocks begin along the axis: always between chunks of the pieces.

        A block takes as many chunks of the pieces, one after the other, as `_length` allows.
        None of them is longer than a chunk of the input, so at least one always fits.
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
        """Chunks of the input per block along each dimension but the axis: powers of two.

        Only where the array is so short along the axis that `block_bytes` are not reached;
        innermost dimensions grow first, since neighbours there are read and written together.
        """
        length = min(self._length, max(1, self.shape[self.axis]))
        budget = max(1, self.block_bytes // (self._cross_section_bytes * length))
        counts = [max(1, -(-n // c)) for n, c in zip(self.shape, self.chunk, strict=True)]
        counts[self.axis] = 1
        return _powers_of_two(budget, counts[::-1])[::-1]

    @cached_property
    def _block_starts(self) -> list[Sequence[int]]:
        """Where blocks begin along each dimension."""
        steps = map(mul, self.chunk, self._growth)
        starts: list[Sequence[int]] = [
            range(0, n, step) for n, step in zip(self.shape, steps, strict=True)
        ]
        starts[self.axis] = self._starts_along
        return starts


def overlaps(starts: Sequence[int], low: int, high: int) -> Iterator[tuple[int, int, int]]:
    """The pieces that a range along the axis overlaps, empty ones left out: (piece, begin, end).

    `starts` says where each piece begins and the last one ends; `begin` and `end` count from
    where the piece begins.
    """
    for piece in range(bisect_right(starts, low) - 1, bisect_left(starts, high)):
        begin, end = max(low, starts[piece]), min(high, starts[piece + 1])
        if begin < end:
            yield piece, begin - starts[piece], end - starts[piece]


def _powers_of_two(budget: int, limits: Sequence[int]) -> tuple[int, ...]:
    """A power of two up to each limit; the first ones take most of the budget.

    Their product is at most `budget`; it and the limits are at least 1.
    """
    powers = []
    for limit in limits:
        powers.append(1 << (min(budget, limit).bit_length() - 1))
        budget //= powers[-1]
    return tuple(powers)


def packed_chunk(shape: Sequence[int], item_bytes: int, chunk_bytes: int) -> tuple[int, ...]:
    """A chunk of about `chunk_bytes` for a packed array: whole rows where they fit."""
    chunk: tuple[int, ...] = ()
    budget = max(1, chunk_bytes // max(1, item_bytes))
    for size in reversed(shape):
        chunk = (max(1, min(size, budget)), *chunk)
        budget = max(1, budget // chunk[0])
    return chunk
