"""Squares of transposed elements: their shapes, and the numbers that find them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.launch import Assumptions
from dmlsplit.backends.cuda.planner.squares import (
    SQUARE_BYTES,
    Plane,
    Square,
    Transposition,
    best,
    squares,
)
from dmlsplit.geometry import Loop

ASSUMED = Assumptions(16, 16, H200.limits, 64, 4094, bypasses_cache=False)
units = st.sampled_from([1, 2, 4, 8, 16])
sides = st.integers(1, 5000)


@given(units)
def test_every_square_is_one_block_with_whole_output_lines(unit: int) -> None:
    for square in squares(unit, 16):
        assert square.down * square.across * unit == SQUARE_BYTES
        assert square.across * unit % 128 == 0


@given(units, units)
def test_a_block_writes_a_line_at_once(unit: int, write: int) -> None:
    found = squares(unit, max(unit, write))
    assert Square(unit, 8) in found
    assert all(square.across * unit <= 256 * max(unit, write) for square in found)


@pytest.mark.parametrize(
    ("unit", "down", "across"),
    [(1, 128, 128), (2, 64, 128), (4, 64, 64), (8, 32, 64), (16, 32, 32)],
)
def test_large_tensors_get_nearly_equal_sides(unit: int, down: int, across: int) -> None:
    square = best(squares(unit, 16), [Plane(8192, 8192, 8192 * unit, 8192 * unit)])
    assert (square.down, square.across) == (down, across)


def test_a_short_side_gets_a_long_other_one() -> None:
    square = best(squares(4, 16), [Plane(8, 100_000, 400_000, 32)])
    assert (square.down, square.across) == (8, 512)
    assert square.fill([Plane(8, 512, 0, 0)]) == 1


@given(units, sides, sides, st.lists(st.integers(1, 9), max_size=3))
def test_squares_cover_a_nest(unit: int, down: int, across: int, around: list[int]) -> None:
    plane = Plane(down, across, 0, 0, tuple(Loop(size, 0, 0) for size in around))
    for square in squares(unit, 16):
        downs, acrosses, *outer = square.counts(plane)
        assert (downs - 1) * square.down < down <= downs * square.down
        assert (acrosses - 1) * square.across < across <= acrosses * square.across
        assert outer == around
        share = down * across / (downs * square.down * acrosses * square.across)
        assert square.fill([plane]) == pytest.approx(share)


@pytest.mark.parametrize(
    ("across_stride", "down_stride", "offset", "read", "write"),
    [
        (800, 1600, 0, 16, 16),
        (804, 1608, 0, 4, 8),
        (800, 1600, 4, 4, 16),
        (802, 1602, 0, 1, 2),
        (801, 1601, 0, 1, 1),
    ],
)
def test_alignments_are_those_of_every_line(
    across_stride: int, down_stride: int, offset: int, read: int, write: int
) -> None:
    plane = Plane(99, 99, down_stride, across_stride, (Loop(3, 1600, 3200),))
    launch = Transposition(Square(1, 8), (plane,), (0, offset), (0, 0)).launch(
        (0, 1), 2, ASSUMED, "test"
    )
    found = {constant.name: constant.value for constant in launch.constants}
    assert (found["kRead"], found["kWrite"]) == (read, write)
