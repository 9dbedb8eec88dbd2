"""Whether two elements of a tensor share an address; the reference counts addresses."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlsplit.directml import self_overlap as overlap
from dmlsplit.directml.self_overlap import may_overlap_itself
from tests.support.fixtures import Patch

LAYOUTS = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 14)), min_size=1, max_size=4)


@given(LAYOUTS)
def test_overlap_agrees_with_counting_addresses(layout: list[tuple[int, int]]) -> None:
    sizes, strides = zip(*layout, strict=True)
    addresses = [
        sum(i * s for i, s in zip(index, strides, strict=True))
        for index in itertools.product(*map(range, sizes))
    ]
    assert may_overlap_itself(sizes, strides) == (len(set(addresses)) < len(addresses))


@pytest.mark.parametrize("strides", [(0, 0), (1, 1), (7, 0)])
def test_a_tensor_without_elements_never_overlaps(strides: tuple[int, int]) -> None:
    assert not may_overlap_itself((0, 5), strides)
    assert not may_overlap_itself((5, 0), strides)


def test_large_packed_and_permuted_layouts_are_found_not_to_overlap() -> None:
    assert not may_overlap_itself((2**20, 2**10, 3), (3 * 2**10, 3, 1))
    assert not may_overlap_itself((3, 2**10, 2**20), (1, 3, 3 * 2**10))
    assert not may_overlap_itself((2**20, 2**20, 3), (3 * 2**20, 3, 1))


# The steps are those that a search takes to the end; with one step less, it gives up.
@pytest.mark.parametrize(
    ("sizes", "strides", "steps"),
    [((2, 3), (3, 1), 2), ((3, 4), (5, 2), 4), ((4, 3), (3, 4), 6), ((3, 3, 3), (2, 7, 20), 3)],
)
def test_the_search_gives_up_exactly_at_its_limit_of_steps(
    sizes: tuple[int, ...], strides: tuple[int, ...], steps: int, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(overlap, "SEARCH_STEPS", steps)
    assert not may_overlap_itself.__wrapped__(sizes, strides)
    monkeypatch.setattr(overlap, "SEARCH_STEPS", steps - 1)
    assert may_overlap_itself.__wrapped__(sizes, strides)


def test_a_search_that_grows_too_large_reports_an_overlap() -> None:
    # Large primes, so that no stride is a multiple of another.
    sizes, strides = (99991,) * 8, (99989, 99971, 99961, 99929, 99923, 99907, 99901, 99881)
    assert may_overlap_itself(sizes, strides)
