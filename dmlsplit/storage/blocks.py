"""Which blocks of a chunked array to split one after the other, and how to chunk the pieces.

Each chunk of each piece lies in exactly one block, so blocks can be done in any order, in
parallel, and again after an interruption. Blocks hold about `block_bytes`, or one chunk
where chunks are larger; memory is bounded by the blocks in flight.

Only where a piece begins inside a chunk of the input do borders drift apart: the chunks
there are read by two blocks. Each element is still split once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod


@dataclass(frozen=True, slots=True)
class Part:
    """What one block gives to one piece: `size` along the axis, written to `region`."""

    piece: int
    size: int
    region: tuple[slice, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """A box of the input, and the parts of the pieces that it falls apart into."""

    region: tuple[slice, ...]
    parts: tuple[Part, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements per dimension."""
        return tuple(side.stop - side.start for side in self.region)


@dataclass(frozen=True)
class BlockGrid:
    """A split, block by block.

    Parameters
    ----------
    shape, axis, sizes
        A split that is known to be valid.
    grid
        Elements per dimension of the smallest box that the input reads and writes whole: a
        chunk, or a shard.
    inner
        Elements per dimension of a chunk inside a shard; ones where there are no shards.
    item_bytes
        Bytes of one element.
    block_bytes
        Wanted size of a block.
    """

    shape: tuple[int, ...]
    axis: int
    sizes: tuple[int, ...]
    grid: tuple[int, ...]
    inner: tuple[int, ...]
    item_bytes: int
    block_bytes: int

    def __len__(self) -> int:
        """Return the number of blocks."""
        return prod(self._counts)

    def __getitem__(self, index: int) -> Block:
        """Return a block by its number."""
        region: list[slice] = []
        for dimension in reversed(range(len(self.shape))):
            index, place = divmod(index, self._counts[dimension])
            region.append(self._side(dimension, place))
        box = tuple(reversed(region))
        return Block(box, tuple(self._parts(box)))

    def grid_of(self, piece: int) -> tuple[int, ...]:
        """Return the chunk, or shard, of a piece.

        Along the axis it is that of the input or the piece, whichever is smaller. Where that
        makes it small, it grows along the other dimensions, within a block.
        """
        along = self._along(piece)
        factor = max(1, min(self.grid[self.axis], self.shape[self.axis]) // along)
        grid = list(self.grid)
        grid[self.axis] = along
        for dimension, growth in enumerate(self._growth):
            if dimension != self.axis:
                times = _power_of_two(min(factor, growth))
                grid[dimension] *= times
                factor //= times
        return tuple(grid)

    def _side(self, dimension: int, place: int) -> slice:
        if dimension == self.axis:
            return slice(self._borders[place], self._borders[place + 1])
        step = self.grid[dimension] * self._growth[dimension]
        return slice(place * step, min(place * step + step, self.shape[dimension]))

    def _parts(self, box: tuple[slice, ...]) -> Iterator[Part]:
        low, high = box[self.axis].start, box[self.axis].stop
        first, last = bisect_right(self._starts, low) - 1, bisect_left(self._starts, high)
        for piece in range(max(first, 0), min(last, len(self.sizes))):
            start = self._starts[piece]
            begin, end = max(low, start), min(high, start + self.sizes[piece])
            if begin < end:
                side = slice(begin - start, end - start)
                region = (*box[: self.axis], side, *box[self.axis + 1 :])
                yield Part(piece, end - begin, region)

    def _along(self, piece: int) -> int:
        """Return the size of a piece's chunks along the axis."""
        inner = self.inner[self.axis]
        return min(self.grid[self.axis], max(1, -(-self.sizes[piece] // inner)) * inner)

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(self.sizes)]

    @cached_property
    def _cross_section_bytes(self) -> int:
        sides = [min(g, n) for g, n in zip(self.grid, self.shape, strict=True)]
        return max(1, prod(sides[: self.axis]) * prod(sides[self.axis + 1 :]) * self.item_bytes)

    @cached_property
    def _length(self) -> int:
        """The longest a block may be along the axis: whole chunks of the input."""
        step = self.grid[self.axis]
        return max(1, self.block_bytes // (self._cross_section_bytes * step)) * step

    @cached_property
    def _borders(self) -> list[int]:
        """Where blocks begin and end along the axis: always between chunks of the pieces."""
        borders = [0]
        previous = 0
        for piece, start in enumerate(self._starts[:-1]):
            stop = start + self.sizes[piece]
            for end in (*range(start + self._along(piece), stop, self._along(piece)), stop):
                if end - borders[-1] > self._length:
                    borders.append(previous)
                previous = end
        if previous > borders[-1]:
            borders.append(previous)
        return borders

    @cached_property
    def _growth(self) -> tuple[int, ...]:
        """Chunks of the input per block along each dimension but the axis."""
        length = min(self._length, max(1, self.shape[self.axis]))
        room = max(1, self.block_bytes // (self._cross_section_bytes * length))
        growth = [1] * len(self.shape)
        for dimension in reversed(range(len(self.shape))):
            if dimension != self.axis:
                count = max(1, -(-self.shape[dimension] // self.grid[dimension]))
                growth[dimension] = _power_of_two(min(room, count))
                room //= growth[dimension]
        return tuple(growth)

    @cached_property
    def _counts(self) -> tuple[int, ...]:
        steps = [g * times for g, times in zip(self.grid, self._growth, strict=True)]
        counts = [-(-n // step) for n, step in zip(self.shape, steps, strict=True)]
        counts[self.axis] = len(self._borders) - 1
        return tuple(counts)


def _power_of_two(value: int) -> int:
    """Return the largest power of two up to `value`, which is at least 1."""
    return 1 << (value.bit_length() - 1)


def row_blocks(shape: Sequence[int], item_bytes: int, block_bytes: int) -> tuple[int, ...]:
    """Return a chunk of about `block_bytes` for a packed array: whole rows where they fit."""
    chunk = [1] * len(shape)
    room = max(1, block_bytes // max(1, item_bytes))
    for dimension in reversed(range(len(shape))):
        chunk[dimension] = max(1, min(shape[dimension], room))
        room //= chunk[dimension]
        if room <= 1:
            break
    return tuple(chunk)
