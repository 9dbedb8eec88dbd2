"""Plans of `strided`: the constants it is compiled for, and its arguments."""

from math import prod

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.planner import DeviceLimits, plan
from dmlsplit.backends.cuda.planner.strided import RESIDENT_64_BIT
from dmlsplit.geometry import SplitGeometry
from tests.support.descriptors import packed_split
from tests.support.plans import constants_and_arguments, planned, sources


def every_second(rows: int, sizes: tuple[int, ...], width: int = 1) -> SplitGeometry:
    """Split rows of every second element, which are packed."""
    length = sum(sizes)
    strides = (2 * length * width, 2 * width)
    return packed_split(
        (rows, length), axis=1, sizes=sizes, element_bytes=width, input_strides=strides
    )


@pytest.mark.parametrize(("rows", "size"), [(8191, 16384), (8192, 4096)])
def test_rows_and_sizes_of_equal_outputs_do_not_change_the_specialization(
    rows: int, size: int
) -> None:
    """Outputs of one size share a nest of loops."""
    assert sources(every_second(rows, (size, size))) == sources(every_second(8192, (8192, 8192)))


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        (70000, (16, 1600)),
        (9000, (320, 16000, 1600)),
        (4096, (65536, 65536, 16, 320)),
    ],
)
def test_rows_sizes_and_the_number_of_unequal_outputs_do_not_change_the_specialization(
    rows: int, sizes: tuple[int, ...]
) -> None:
    assert sources(every_second(rows, sizes)) == sources(every_second(8192, (16384, 8192)))


def test_batches_and_sizes_of_images_do_not_change_the_specialization() -> None:
    def crop(images: int, height: int, width: int) -> SplitGeometry:
        pitch = 3 * width + 3
        strides = (height * pitch, pitch, 3, 1)
        return packed_split(
            (images, height, width, 3),
            axis=3,
            sizes=(1,) * 3,
            input_strides=strides,
        )

    assert sources(crop(32, 1080, 1920)) == sources(crop(17, 720, 1280))


@given(
    st.integers(1, 200),
    st.lists(st.integers(1, 400), min_size=1, max_size=600),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([4096, 32764]),
)
def test_parameters_fit_every_driver(
    rows: int, sizes: list[int], width: int, parameter_bytes: int
) -> None:
    limits = DeviceLimits(132, 2048, 60 << 20, parameter_bytes)
    planned(every_second(rows, tuple(sizes), width), limits=limits)


@given(st.lists(st.integers(2, 1 << 24), min_size=1, max_size=3), st.data())
def test_magic_numbers_divide_exactly(sizes: list[int], data: st.DataObject) -> None:
    assume(prod(sizes) < 1 << 60)  # so that the bytes have an address
    strides = tuple(-(3**d) * 8 for d in range(len(sizes)))
    geometry = packed_split(
        sizes, axis=0, sizes=(sizes[0],), element_bytes=2, input_strides=strides
    )
    (launch,) = plan(geometry, 16, 16, H200.limits)  # more blocks than any device accepts
    parameters = constants_and_arguments(launch)
    bits = 32 if parameters["Index"] == "unsigned" else 64
    number = data.draw(st.integers(0, parameters["counts"][0] - 1))
    for minus, magic, shift in zip(
        parameters["minus_sizes"], parameters["magics"], parameters["shifts"], strict=True
    ):
        assert 0 <= magic < 1 << bits
        assert (2 * number * magic >> bits) >> shift == number // ((1 << bits) - minus)


def test_more_than_a_billion_items_are_numbered_with_64_bits() -> None:
    def is_wide(rows: int) -> bool:
        (text,) = sources(every_second(rows, (1 << 14, 1 << 14)))
        return "using Index = unsigned long long;" in text

    assert not is_wide((1 << 20) - 1)
    assert is_wide(1 << 20)


@pytest.mark.parametrize("sizes", [((1 << 31) - 1, 258), ((1 << 30) + 1,) * 2])
def test_64_bit_strides_with_edges_get_more_registers(sizes: tuple[int, ...]) -> None:
    """64-bit numbers, several items and edges need registers, of several nests and of one."""
    geometry = packed_split((2, sum(sizes)), axis=1, sizes=sizes, input_strides=((1 << 33) + 1, 2))
    (launch,) = planned(geometry)
    assert constants_and_arguments(launch)["kResident"] == RESIDENT_64_BIT


def test_64_bit_strides_in_loops_get_more_registers() -> None:
    """64-bit strides of three loops and eight items need registers."""
    strides = (1 << 43, 1 << 38, 17 * 8)
    (launch,) = planned(
        packed_split((5, 7, 601), axis=2, sizes=(601,), element_bytes=8, input_strides=strides)
    )
    constants = constants_and_arguments(launch)
    assert [constants[name] for name in ("kItems", "kDimensions", "kResident")] == [
        8,
        3,
        RESIDENT_64_BIT,
    ]


def test_strides_far_backwards_have_64_bits() -> None:
    rows = packed_split((3, 600), axis=1, sizes=(600,), input_strides=(-(1 << 31) - 16, 1))
    (launch,) = planned(rows)
    assert min(constants_and_arguments(launch)["input_strides"]) == -(1 << 31) - 16


@pytest.mark.parametrize("step", [1, 2, 3])
def test_windows_of_reversed_rows_have_as_many_bytes_in_flight(step: int) -> None:
    def in_flight(step: int) -> int:
        (launch,) = planned(
            packed_split(
                (9, 4096), axis=1, sizes=(4096,), element_bytes=2, input_strides=(1 << 15, 2 * step)
            )
        )
        return launch.bytes_in_flight

    assert in_flight(-step) == in_flight(step)


@pytest.mark.parametrize(
    ("width", "count", "alignment", "resident"),
    [
        (4, 13, 1, 8),
        (3, 7, 16, 4),
        (3, 4, 16, 8),
        (3, 7, 1, 4),
        (40, 2, 16, 8),
        (7, 3, 16, 4),
        (7, 2, 1, 4),
    ],
)
def test_blocks_with_large_windows_get_more_registers(
    width: int, count: int, alignment: int, resident: int
) -> None:
    """Windows of many bytes need the registers of two blocks."""
    (launch,) = planned(
        packed_split((1000, count), axis=1, sizes=(1,) * count, element_bytes=width), alignment, 16
    )
    assert (launch.code.kernel, launch.code.resident) == ("strided", resident)


@given(
    st.integers(2, 8),
    st.sampled_from([1, 2, 4, 8]),
    st.lists(st.integers(256, 1 << 20), min_size=2),
    st.sampled_from([1, 16]),
)
def test_interleaved_elements_have_one_specialization_with_edges_and_one_without(
    count: int, width: int, rows: list[int], alignment: int
) -> None:
    """The first call compiles both, so that no other number of rows waits for the compiler.

    If elements are misaligned, there is one: bytes of edges are copied one by one.
    """
    source_pairs, is_aligned = set(), alignment % width == 0
    for number in rows:
        geometry = packed_split((number, count), axis=1, sizes=(1,) * count, element_bytes=width)
        (launch,) = planned(geometry, alignment, 16)
        assert launch.code.kernel == "strided"
        assert constants_and_arguments(launch)["kEdges"] == (is_aligned and number * width % 16 > 0)
        (sibling,) = launch.siblings()
        source_pairs.add(frozenset((launch.code.source, sibling.code.source)))
    assert {len(pair) for pair in source_pairs} == {1 + is_aligned}
    assert len(source_pairs) == 1
