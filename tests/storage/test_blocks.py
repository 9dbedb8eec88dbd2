"""Blocks partition the input, and no two of them write the same chunk of a piece."""

import json
from dataclasses import asdict
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlsplit.storage.blocks import Block, BlockGrid, Part, packed_chunk


@st.composite
def grids(draw: st.DrawFn) -> BlockGrid:
    shape = tuple(draw(st.lists(st.integers(0, 12), min_size=1, max_size=4)))
    axis = draw(st.integers(0, len(shape) - 1))
    borders = sorted(draw(st.lists(st.integers(0, shape[axis]), max_size=6)))
    sizes = tuple(np.diff([0, *borders, shape[axis]]).tolist())
    inner = tuple(draw(st.sampled_from([1, 1, 2, 3])) for _ in shape)
    chunk = tuple(side * draw(st.integers(1, 5)) for side in inner)
    item_bytes = draw(st.sampled_from([1, 2, 3]))
    wanted = draw(st.sampled_from([1, 8, 64, 500]))
    return BlockGrid(shape, axis, sizes, chunk, inner, item_bytes, wanted)


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
def test_blocks_done_in_any_order_make_the_split(grid: BlockGrid) -> None:
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
        np.testing.assert_array_equal(piece, right, strict=True)


@given(grid=grids())
def test_no_chunk_of_a_piece_is_written_by_two_blocks(grid: BlockGrid) -> None:
    seen: set[Any] = set()
    for index in range(len(grid)):
        chunks = chunks_of(grid[index], grid)
        assert not seen & chunks
        seen |= chunks


@given(grid=grids())
def test_shards_of_pieces_consist_of_whole_chunks(grid: BlockGrid) -> None:
    for piece in range(len(grid.sizes)):
        sides = zip(grid.piece_chunk(piece), grid.inner, strict=True)
        assert all(shard % chunk == 0 < shard for shard, chunk in sides)


@given(grid=grids())
def test_a_block_larger_than_wanted_is_one_chunk(grid: BlockGrid) -> None:
    largest = max(grid.block_bytes, prod(grid.chunk) * grid.item_bytes)
    for index in range(len(grid)):
        assert grid.nbytes(index) == prod(grid[index].shape) * grid.item_bytes <= largest


def starts(grid: BlockGrid, dimension: int) -> list[int]:
    """Where blocks begin along a dimension."""
    return sorted({grid[index].region[dimension].start for index in range(len(grid))})


@given(grid=grids())
def test_a_grid_survives_json(grid: BlockGrid) -> None:
    stored = json.loads(json.dumps(asdict(grid)))
    assert BlockGrid.from_json(stored) == grid


def test_blocks_are_numbered_row_major() -> None:
    grid = BlockGrid((3, 4), 1, (2, 2), (1, 2), (1, 1), 1, 1)
    regions = [tuple((side.start, side.stop) for side in grid[i].region) for i in range(len(grid))]
    assert regions == [((row, row + 1), side) for row in range(3) for side in ((0, 2), (2, 4))]


def test_empty_pieces_get_nothing() -> None:
    grid = BlockGrid((6,), 0, (0, 2, 0, 4, 0), (6,), (1,), 1, 6)
    assert grid[0].parts == (Part(1, 2, (slice(0, 2),)), Part(3, 4, (slice(0, 4),)))
    assert len(grid) == 1


@pytest.mark.parametrize(("shape", "sizes"), [((0, 5), (0, 5)), ((5, 0), (0, 0)), ((5, 0), ())])
def test_an_array_without_elements_has_no_blocks(shape: Any, sizes: tuple[int, ...]) -> None:
    assert len(BlockGrid(shape, 1, sizes, (2, 2), (1, 1), 4, 64)) == 0


@pytest.mark.parametrize("block_bytes", [20, 29])
def test_a_block_has_as_many_chunks_of_the_pieces_as_fit(block_bytes: int) -> None:
    """Piece 0 ends at 25, so the chunks of piece 1 begin at 25, 35, 45, ..."""
    grid = BlockGrid((100,), 0, (25, 75), (10,), (1,), 1, block_bytes)
    assert starts(grid, 0) == [0, 20, 35, 55, 75, 95]


def test_the_length_of_a_block_follows_from_all_other_dimensions() -> None:
    grid = BlockGrid((3, 4, 5), 1, (4,), (3, 1, 5), (1, 1, 1), 1, 30)
    assert starts(grid, 1) == [0, 2]
    grid = BlockGrid((4, 3, 5), 0, (4,), (1, 3, 5), (1, 1, 1), 1, 30)
    assert starts(grid, 0) == [0, 2]


def test_a_chunk_larger_than_the_array_counts_as_large_as_the_array() -> None:
    """Three rows of two columns are 6 bytes, so two chunks fit, however high a chunk is."""
    grid = BlockGrid((3, 10), 1, (10,), (100, 2), (1, 1), 1, 12)
    assert starts(grid, 1) == [0, 4, 8]


@pytest.mark.parametrize("item_bytes", [1, 2])
def test_blocks_grow_along_the_innermost_dimension_first(item_bytes: int) -> None:
    """Four chunks of 1 x 1 x 2 fit: 1 x 4 of them, or 2 x 2 where the row has only three."""
    wanted = 8 * item_bytes
    grid = BlockGrid((8, 8, 2), 2, (1, 1), (1, 1, 2), (1, 1, 1), item_bytes, wanted)
    assert (starts(grid, 0), starts(grid, 1)) == (list(range(8)), [0, 4])
    grid = BlockGrid((8, 3, 2), 2, (1, 1), (1, 1, 2), (1, 1, 1), item_bytes, wanted)
    assert (starts(grid, 0), starts(grid, 1)) == ([0, 2, 4, 6], [0, 2])


def test_if_the_axis_is_short_blocks_grow_further_along_others() -> None:
    grid = BlockGrid((8, 1), 1, (1,), (1, 4), (1, 1), 1, 8)
    assert starts(grid, 0) == [0]


def test_blocks_grow_on_both_sides_of_the_axis() -> None:
    grid = BlockGrid((4, 2, 4), 1, (1, 1), (1, 2, 1), (1, 1, 1), 1, 16)
    assert (starts(grid, 0), starts(grid, 2)) == ([0, 2], [0])


def test_chunks_of_a_piece_grow_no_further_than_their_block() -> None:
    grid = BlockGrid((8, 8, 2), 2, (1, 1), (1, 1, 2), (1, 1, 1), 1, 8)
    assert grid.piece_chunk(0) == (1, 2, 1)
    grid = BlockGrid((4, 4), 1, (1, 3), (4, 4), (1, 1), 1, 64)
    assert grid.piece_chunk(0) == (4, 1)
    # A piece of one of four columns could have chunks four times as high: blocks allow eight.
    grid = BlockGrid((16, 4), 1, (1, 3), (2, 64), (1, 1), 1, 64)
    assert [grid.piece_chunk(piece) for piece in (0, 1)] == [(8, 1), (2, 3)]
    grid = BlockGrid((16, 4), 1, (1, 3), (2, 64), (1, 1), 1, 16)
    assert [grid.piece_chunk(piece) for piece in (0, 1)] == [(4, 1), (2, 3)]


def test_shards_of_a_piece_are_as_long_as_it_needs() -> None:
    """Whole chunks of 3: at least one, at most the 12 elements of a shard of the input."""
    grid = BlockGrid((24,), 0, (5, 19, 0), (12,), (3,), 1, 1)
    assert [grid.piece_chunk(piece) for piece in range(3)] == [(6,), (12,), (3,)]
    assert starts(grid, 0) == [0, 5, 17]


def test_thin_pieces_get_chunks_of_the_size_of_the_input() -> None:
    """One channel of 64 would make chunks of 1/64; they grow along the other dimensions."""
    grid = BlockGrid((4096, 64), 1, (1,) * 64, (64, 64), (1, 1), 4, 16 << 20)
    assert grid.piece_chunk(0) == (64 * 64, 1)
    assert len(grid) == 1


def test_if_pieces_begin_inside_chunks_each_chunk_is_still_read_once() -> None:
    grid = BlockGrid((1000, 8), 0, (300, 700), (100, 8), (1, 1), 8, 1)
    assert starts(grid, 0) == list(range(0, 1000, 100))


@pytest.mark.parametrize(
    ("shape", "item_bytes", "most_bytes", "expected"),
    [
        ((10, 10), 4, 4000, (10, 10)),
        ((1000, 100), 4, 4000, (10, 100)),
        ((4, 5000), 4, 4000, (1, 1000)),
        ((0, 3), 4, 4000, (1, 3)),
        ((7, 30, 40), 4, 4000, (1, 25, 40)),
        ((7, 15, 40), 4, 4000, (1, 15, 40)),
        ((), 4, 4000, ()),
        ((5, 50), 3, 100, (1, 33)),
        ((5, 5), 8, 1, (1, 1)),  # at least one element
        ((5, 50), 1, 20, (1, 20)),
        ((5, 50), 0, 20, (1, 20)),  # elements without bytes count as one byte
    ],
)
def test_packed_files_are_cut_into_rows(
    shape: tuple[int, ...], item_bytes: int, most_bytes: int, expected: tuple[int, ...]
) -> None:
    assert packed_chunk(shape, item_bytes, most_bytes) == expected
