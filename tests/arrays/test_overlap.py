"""Whether arrays share memory, by the spans that they cover and by columns."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlsplit.arrays import view
from dmlsplit.arrays.overlap import column_ranges, overlapping_pairs


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), max_size=6))
def test_each_span_that_overlaps_another_is_in_a_pair(starts: Any) -> None:
    spans = [(start, start + size) for start, size in starts]
    pairs = list(overlapping_pairs(spans))
    meet = {
        index
        for pair in combinations(range(len(spans)), 2)
        for index in pair
        if max(spans[i][0] for i in pair) < min(spans[i][1] for i in pair)
    }
    assert meet <= {index for pair in pairs for index in pair}
    assert len(pairs) <= len(spans)
    for index, owner in pairs:
        assert spans[owner][0] <= spans[index][0] < spans[owner][1]


@given(st.data())
def test_columns_of_views_that_share_a_byte_overlap(data: st.DataObject) -> None:
    base = np.zeros((4, 3, 12), np.uint8)
    views = []
    for _ in range(2):
        first, last = sorted(data.draw(st.lists(st.integers(0, 12), min_size=2, max_size=2)))
        rows = slice(data.draw(st.integers(0, 3)), None, data.draw(st.sampled_from([-1, 1, 2])))
        part = base[rows, data.draw(st.integers(0, 2)) :, first : last + 1]
        views.append(part.transpose(data.draw(st.permutations(range(3)))))
    ranges = column_ranges([view(columns, "view") for columns in views])
    if ranges and np.shares_memory(*views):
        (first_start, first_end), (second_start, second_end) = ranges
        assert max(first_start, second_start) < min(first_end, second_end)


@pytest.mark.parametrize("start", [0, 1])
def test_column_ranges_begin_at_the_lowest_address_of_all_views(start: int) -> None:
    base = np.zeros((3, 13), np.uint8)[:, start:]
    assert column_ranges(
        [view(base[:, columns], "view") for columns in (slice(0, 5), slice(5, 12))]
    ) == [(0, 5), (5, 12)]


def test_backward_views_are_recognised_as_columns_only_if_there_are_several_rows() -> None:
    base = np.zeros((2, 12), np.uint8)
    for rows, expected_ranges in ((2, [(0, 3), (4, 7)]), (1, [(0, 1), (0, 1)])):
        parts = base[:rows, :3], base[:rows, 6:3:-1]
        assert column_ranges([view(part, "view") for part in parts]) == expected_ranges
