"""Whether two elements of a tensor share a place, against counting them."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from dmlsplit.directml.overlap import may_overlap_itself

LAYOUTS = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 14)), min_size=1, max_size=4)


@given(LAYOUTS)
def test_it_agrees_with_counting(layout: list[tuple[int, int]]) -> None:
    sizes, strides = zip(*layout, strict=True)
    places = [
        sum(i * s for i, s in zip(index, strides, strict=True))
        for index in itertools.product(*map(range, sizes))
    ]
    assert may_overlap_itself(sizes, strides) == (len(set(places)) < len(places))


def test_large_packed_and_permuted_layouts_are_settled_at_once() -> None:
    assert not may_overlap_itself((2**20, 2**10, 3), (3 * 2**10, 3, 1))
    assert not may_overlap_itself((3, 2**10, 2**20), (1, 3, 3 * 2**10))


def test_a_search_that_grows_too_large_says_overlapping() -> None:
    sizes, strides = (99991,) * 8, (99989, 99971, 99961, 99929, 99923, 99907, 99901, 99881)
    assert may_overlap_itself(sizes, strides)
