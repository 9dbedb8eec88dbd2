"""The arithmetic of launches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlsplit.backends.cuda.launch import capacity, divisor


@pytest.mark.parametrize(
    ("count", "entries"), [(1, 1), (2, 4), (4, 4), (5, 16), (16, 16), (17, 64), (1025, 4000)]
)
def test_tables_have_few_sizes(count: int, entries: int) -> None:
    assert capacity(count, 4000) == entries
    assert capacity(count, 4000, least=4) == max(4, entries)


@given(st.sampled_from([32, 64]), st.data())
def test_numbers_divide_as_kernels_do(bits: int, data: st.DataObject) -> None:
    below = 2 ** (bits - 1)
    by = data.draw(st.integers(1, below))
    found = divisor(by, bits)
    assert max(found) < 2**bits
    edges = st.sampled_from([0, 1, by - 1, by, below - 1])
    number = data.draw(st.integers(0, below - 1) | edges)
    multiple = number // by * by
    for value in (number, multiple - 1, multiple, multiple + 1, below - 1):
        if 0 <= value < below:
            shifted = (2 * value % 2**bits) * found.magic >> bits  # as `quotient` of common.cuh
            assert shifted >> found.shift == value // by
