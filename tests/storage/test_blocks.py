"""Blocks: a partition of the input, and no chunk of a piece in two of them."""

from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlsplit.storage.blocks import Block, BlockGrid, packed_chunk


@st.composite
def grids(draw: st.DrawFn) -> BlockGrid:
    shape = tuple(draw(st.lists(st.integers(0, 12), min_size=1, max_size=4)))
    axis = draw(st.integers(0, len(shape) - 1))
    borders = sorted(draw(st.lists(st.integers(0, shape[axis]), max_size=6)))
    sizes = tuple(np.diff([0, *borders, shape[axis]]).tolist())
    inner = tuple(draw(st.sampled_from([1, 1, 2, 3])) for _ in shape)
    chunk = tuple(side * draw(st.integers(1, 5)) for side in inner)
    return BlockGrid(shape, axis, sizes, chunk, inner, 1, draw(st.sampled_from([1, 8, 64, 500])))


def chunks_of(block: Block, grid: BlockGrid) -> set[tuple[int, ...]]:
    """The chunks of pieces that a block writes, each as (piece, place...)."""
    return {
        (part.piece, *place)
        for part in block.parts
        for place in product(
            *(
                range(side.start // step, -(-side.stop // step))
                for side, step in zip(part.region, grid.piece_chunk(part.piece), strict=True)
            )
        )
    }


@given(grid=grids())
def test_done_in_any_order_the_blocks_make_the_split(grid: BlockGrid) -> None:
    source = np.arange(prod(grid.shape)).reshape(grid.shape)
    visits = np.zeros(grid.shape, int)
    expected = np.split(source, np.cumsum(grid.sizes)[:-1], grid.axis)
    pieces = [np.full(piece.shape, -1) for piece in expected]
    for index in reversed(range(len(grid))):
        block = grid[index]
        visits[block.region] += 1
        taken = 0
        for part in block.parts:
            along = range(taken, taken + part.size)
            pieces[part.piece][part.region] = source[block.region].take(along, grid.axis)
            taken += part.size
        assert taken == block.shape[grid.axis]
    assert (visits == 1).all()
    for piece, right in zip(pieces, expected, strict=True):
        np.testing.assert_array_equal(piece, right)


@given(grid=grids())
def test_no_chunk_of_a_piece_is_written_by_two_blocks(grid: BlockGrid) -> None:
    seen: set[Any] = set()
    for index in range(len(grid)):
        chunks = chunks_of(grid[index], grid)
        assert not seen & chunks
        seen |= chunks


@given(grid=grids())
def test_shards_of_pieces_hold_whole_chunks(grid: BlockGrid) -> None:
    for piece in range(len(grid.sizes)):
        sides = zip(grid.piece_chunk(piece), grid.inner, strict=True)
        assert all(shard % chunk == 0 for shard, chunk in sides)


@given(grid=grids())
def test_a_block_is_no_larger_than_wanted_or_one_chunk(grid: BlockGrid) -> None:
    largest = max(grid.block_bytes, prod(grid.chunk))
    assert all(prod(grid[index].shape) <= largest for index in range(len(grid)))


def test_thin_pieces_get_chunks_of_the_size_of_the_input() -> None:
    """One channel of 64 would make chunks of 1/64; they grow along the other dimensions."""
    grid = BlockGrid((4096, 64), 1, (1,) * 64, (64, 64), (1, 1), 4, 16 << 20)
    assert grid.piece_chunk(0) == (64 * 64, 1)
    assert len(grid) == 1


def test_where_pieces_begin_between_chunks_each_chunk_is_read_once() -> None:
    grid = BlockGrid((1000, 8), 0, (300, 700), (100, 8), (1, 1), 8, 1)
    starts = [grid[index].region[0].start for index in range(len(grid))]
    assert starts == list(range(0, 1000, 100))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((10, 10), (10, 10)), ((1000, 100), (10, 100)), ((4, 5000), (1, 1000)), ((0, 3), (1, 3))],
)
def test_packed_files_are_cut_into_rows(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert packed_chunk(shape, 4, 4000) == expected
