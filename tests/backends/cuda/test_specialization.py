"""Specializations: divisors, tables, and sources that are complete and small."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlsplit.backends.cuda.specialization import Constant, capacity, divisor, divisors
from tests.support.descriptors import packed_split
from tests.support.plans import sources


@pytest.mark.parametrize(
    ("count", "entries"), [(1, 1), (2, 4), (4, 4), (5, 16), (16, 16), (17, 64), (257, 512)]
)
def test_sizes_of_tables_are_powers_of_two_or_four(count: int, entries: int) -> None:
    assert capacity(count, least=1) == entries
    assert capacity(count) == max(4, entries)


@given(st.sampled_from([32, 64]), st.data())
def test_a_divisor_divides_as_kernels_do(bits: int, data: st.DataObject) -> None:
    below = 2 ** (bits - 1)
    denominator = data.draw(st.integers(1, below))
    magic = divisor(denominator, bits)
    assert max(magic) < 2**bits
    edges = st.sampled_from([0, 1, denominator - 1, denominator, below - 1])
    number = data.draw(st.integers(0, below - 1) | edges)
    multiple = number // denominator * denominator
    for value in (number, multiple - 1, multiple, multiple + 1, below - 1):
        if 0 <= value < below:
            # as `quotient` of common.cuh
            shifted = (2 * value % 2**bits) * magic.magic >> bits
            assert shifted >> magic.shift == value // denominator


@given(st.lists(st.integers(1, 2**31) | st.sampled_from([1, 2, 2**31])), st.integers(0, 40))
def test_divisors_equal_the_divisor_of_each_number(numbers: list[int], more: int) -> None:
    numbers += range(2**30 - more, 2**30 + more)
    assert list(divisors(numbers)) == list(map(divisor, numbers))


KERNELS = Path(__file__).parents[3] / "cuda"


def test_a_source_is_constants_then_common_then_the_kernel() -> None:
    (text,) = sources(packed_split((64, 48), axis=1, sizes=(16, 32)))
    assert "constexpr int kOutputs = 4;\n" in text
    assert "    unsigned widths[4];\n" in text
    assert text.index("kOutputs = 4") < text.index('#line 1 "common.cuh"')
    assert text.index('#line 1 "common.cuh"') < text.index('#line 1 "rows.cu"')
    assert text.endswith((KERNELS / "rows.cu").read_text())


def test_numbers_beyond_32_bits_have_64_bit_types_in_the_source() -> None:
    far = Constant("long long", "kBefore", -(2**33)), Constant("long long", "kBehind", 2**36)
    assert [constant.definition for constant in far] == [
        "constexpr long long kBefore = -8589934592ll;",
        "constexpr long long kBehind = 68719476736ull;",
    ]
    (text,) = sources(packed_split((1 << 34, 3), axis=1, sizes=(1, 2)), 1, 1)
    assert "    unsigned long long offsets_and_widths[4];\n" in text


def test_the_source_for_thousands_of_outputs_stays_below_100_kb() -> None:
    for text in sources(packed_split((8, 8000), axis=1, sizes=(1, 3) * 2000)):
        assert len(text) < 100_000


def test_every_kernel_file_has_one_entry_of_its_name_and_a_header() -> None:
    for path in KERNELS.glob("*.cu"):
        text = path.read_text()
        assert re.findall(r'extern "C" __global__ void __launch.*?\) (\w+)\(', text) == [path.stem]
        assert text.startswith("// ")
        assert "#include" not in text
