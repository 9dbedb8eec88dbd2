"""A split as strided copies of bytes."""

import itertools
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlsplit as dml
from dmlsplit.directml.operator import descriptor_geometry
from dmlsplit.geometry import (
    Loop,
    RowSplit,
    SplitGeometry,
    StridedCopy,
    ceil_div,
    packed_byte_strides,
    pieces_in,
    selector,
    split_geometry,
)
from tests.support.descriptors import (
    Memory,
    carry_out,
    expected_buffers,
    packed_split,
    split_descriptors,
)


def test_a_packed_split_of_any_rank_is_one_loop_over_rows() -> None:
    geometry = packed_split((4, 3, 8, 6, 5, 7), axis=3, sizes=(1, 2, 3), element_bytes=2)
    assert geometry.row_split == RowSplit(96, 420, (0, 1, 2), (0, 70, 210), (70, 140, 210))
    assert geometry.pieces[1] == StridedCopy((Loop(96, 420, 140),), 70, 140)
    assert geometry.total_bytes == 96 * 420


def test_an_outermost_split_is_one_run_per_piece() -> None:
    geometry = packed_split((6, 5), axis=0, sizes=(4, 2), element_bytes=4)
    assert geometry.row_split == RowSplit(1, 120, (0, 1), (0, 80), (80, 40))
    assert [piece.loops for piece in geometry.pieces] == [(), ()]


def test_one_output_of_a_packed_input_is_one_run() -> None:
    assert packed_split((6, 5), axis=1, sizes=(5,), element_bytes=4).pieces == (
        StridedCopy((), 0, 120),
    )


def test_empty_pieces_have_no_width() -> None:
    assert packed_split((2, 6), axis=1, sizes=(0, 4, 0, 2)).row_split == RowSplit(
        2, 6, (0, 1, 2, 3), (0, 0, 4, 4), (0, 4, 0, 2)
    )
    assert packed_split((0, 6), axis=1, sizes=(2, 4)).total_bytes == 0
    assert packed_split((0, 6), axis=1, sizes=(2, 4)).row_split is None


def test_an_output_without_elements_copies_nothing() -> None:
    piece = packed_split((2, 6), axis=1, sizes=(4, 0, 2)).pieces[1]
    assert piece == StridedCopy((), 4, 0)
    assert piece.total_bytes == 0


@pytest.mark.parametrize(
    "strides",
    [
        {"input_strides": (6,)},
        {"output_strides": [(4,), None]},
        {"output_strides": [None]},
    ],
    ids=["no column of the input", "no column of an output", "no second output"],
)
def test_strides_without_a_dimension_or_an_output_are_refused(strides: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="zip"):
        split_of_rows(**strides)


# Two rows of 9 bytes, cut into outputs of 0, 4, 3 and 2 bytes a row.
UNEVEN_ROWS = RowSplit(2, 9, (0, 1, 2, 3), (0, 0, 4, 7), (0, 4, 3, 2))


def test_a_row_split_of_some_outputs_keeps_their_offsets() -> None:
    assert UNEVEN_ROWS.nonempty == (1, 2, 3)
    assert UNEVEN_ROWS.take([1, 2, 3]) == RowSplit(2, 9, (1, 2, 3), (0, 4, 7), (4, 3, 2))
    assert UNEVEN_ROWS.take([3]) == RowSplit(2, 9, (3,), (7,), (2,))
    assert UNEVEN_ROWS.take([0, 1, 2, 3]) is UNEVEN_ROWS


def test_a_row_split_counts_the_bytes_of_its_outputs() -> None:
    assert (UNEVEN_ROWS.row_bytes, UNEVEN_ROWS.total_bytes) == (9, 18)


def test_the_equal_width_is_0_if_widths_differ() -> None:
    assert UNEVEN_ROWS.equal_width == 0
    assert UNEVEN_ROWS.take([3]).equal_width == 2


@pytest.mark.parametrize("outputs", [(0, 1, 2), (0, 2), (1,), ()])
def test_a_selector_gives_a_tuple_for_any_number_of_outputs(outputs: tuple[int, ...]) -> None:
    assert selector(outputs, 3)([0, 10, 20]) == tuple(10 * output for output in outputs)


def split_of_rows(
    input_strides: tuple[int, ...] = (6, 1),
    output_strides: Sequence[tuple[int, ...] | None] = (None, None),
) -> SplitGeometry:
    """A split of 4 rows of 6 bytes into columns of 2 and 4, with these strides."""
    return split_geometry((4, 6), 1, (2, 4), 1, input_strides, output_strides)


def test_a_padded_input_is_split_by_rows() -> None:
    assert split_of_rows(input_strides=(10, 1)).row_split == RowSplit(4, 10, (0, 1), (0, 2), (2, 4))


@pytest.mark.parametrize(
    "strides",
    [(1, 4), (0, 1), (-6, 1), (7, -1)],
    ids=["transposed", "broadcast", "rows reversed", "columns reversed"],
)
def test_an_input_without_contiguous_rows_is_not_split_by_rows(strides: tuple[int, ...]) -> None:
    assert split_of_rows(input_strides=strides).row_split is None


def test_an_output_with_gaps_is_not_split_by_rows() -> None:
    assert split_of_rows(output_strides=[(3, 1), None]).row_split is None


def test_rows_in_two_loops_are_not_split_by_rows() -> None:
    padded_twice = (20, 5, 1)
    assert split_geometry((2, 3, 4), 2, (1, 3), 1, padded_twice, [None, None]).row_split is None


def test_outputs_with_different_loops_are_not_split_by_rows() -> None:
    padded = (9, 4, 1)
    assert split_geometry((3, 2, 4), 0, (1, 2), 1, (8, 4, 1), [None, padded]).row_split is None


def test_loops_follow_the_order_of_the_output() -> None:
    (piece,) = split_geometry((4, 6), 1, (6,), 2, (12, 2), [(2, 8)]).pieces
    assert piece == StridedCopy((Loop(6, 2, 8), Loop(4, 12, 2)), 0, 2)


@given(split_descriptors(max_rank=4))
def test_the_geometry_moves_the_bytes_of_the_descriptor(desc: dml.SplitOperatorDesc) -> None:
    memory = Memory.of(desc)
    geometry = descriptor_geometry(desc)
    expected = expected_buffers(desc, memory)
    for piece, target, expected_bytes in zip(
        geometry.pieces, memory.targets, expected, strict=True
    ):
        carry_out(piece, memory.source, memory.offset, target[memory.offset :])
        np.testing.assert_array_equal(target, expected_bytes)
    assert geometry.total_bytes == sum(
        tensor.element_count * tensor.element_bytes for tensor in desc.output_tensors
    )


@given(split_descriptors())
def test_loops_are_merged_as_far_as_possible(desc: dml.SplitOperatorDesc) -> None:
    for piece in descriptor_geometry(desc).pieces:
        loops = piece.loops
        assert all(loop.size > 1 for loop in loops)
        for outer, inner in itertools.pairwise(loops):
            bytes_of_inner = inner.size * inner.input_stride, inner.size * inner.output_stride
            assert (outer.input_stride, outer.output_stride) != bytes_of_inner
        if loops:
            innermost = loops[-1]
            bytes_of_run = piece.run_bytes, piece.run_bytes
            assert (innermost.input_stride, innermost.output_stride) != bytes_of_run


PACKED_SPLITS = {
    "shape": st.lists(st.integers(0, 4), min_size=1, max_size=5),
    "sizes": st.lists(st.integers(0, 4), min_size=1, max_size=4),
    "axis": st.integers(0, 4),  # modulo the rank
    "width": st.sampled_from([1, 2, 3, 8]),  # bytes of an element
}


@given(**PACKED_SPLITS)
def test_packed_splits_agree_with_the_general_calculation(
    shape: list[int], sizes: list[int], axis: int, width: int
) -> None:
    """Packed outputs may have no strides, and take a fast path then."""
    axis %= len(shape)
    shape[axis] = sum(sizes)
    strides = packed_byte_strides(shape, width)
    outputs = [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]
    packed_strides = [packed_byte_strides(output, width) for output in outputs]
    by_fast_path = split_geometry(shape, axis, sizes, width, strides, [None] * len(sizes))
    general = split_geometry(shape, axis, sizes, width, strides, packed_strides)
    assert by_fast_path == general
    assert hash(by_fast_path) == hash(general)
    assert by_fast_path.pieces == general.pieces


@given(**PACKED_SPLITS)
def test_a_geometry_counts_its_bytes_and_outputs(
    shape: list[int], sizes: list[int], axis: int, width: int
) -> None:
    axis %= len(shape)
    shape[axis] = sum(sizes)
    geometry = packed_split(shape, axis=axis, sizes=sizes, element_bytes=width)
    assert geometry.total_bytes == prod(shape) * width
    assert geometry.output_count == len(sizes)
    is_empty = 0 in shape
    assert geometry.nonempty == tuple(
        index for index, size in enumerate(sizes) if size and not is_empty
    )


@given(borders=st.lists(st.integers(0, 9), max_size=5), ends=st.tuples(*[st.integers(0, 9)] * 2))
def test_the_pieces_in_a_range_are_those_of_its_elements(
    borders: list[int], ends: tuple[int, int]
) -> None:
    starts, (low, high) = [0, *sorted(borders), 9], sorted(ends)
    elements = [
        (piece, index)
        for piece, (start, end) in enumerate(itertools.pairwise(starts))
        for index in range(end - start)
    ]
    parts = list(pieces_in(starts, low, high))
    in_parts = [(piece, index) for piece, begin, end in parts for index in range(begin, end)]
    assert in_parts == elements[low:high]
    assert all(begin < end for _, begin, end in parts)
    assert len({piece for piece, _, _ in parts}) == len(parts)


def test_ceil_div_rounds_up() -> None:
    assert [ceil_div(total, 3) for total in range(5)] == [0, 1, 1, 1, 2]
