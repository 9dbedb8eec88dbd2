"""Plans of `transpose`: the shapes of tiles, rows of elements, and permuted dimensions."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.launch import Assumptions, DeviceLimits, KernelLaunch
from dmlsplit.backends.cuda.planner.strided import MAX_STAGED
from dmlsplit.backends.cuda.planner.transpose import (
    MAX_LINE_VECTORS,
    THREADS,
    TILE_BYTES,
    Plane,
    alignments,
    best_tile,
    tiles,
)
from dmlsplit.geometry import Loop, SplitGeometry
from tests.support.descriptors import packed_split
from tests.support.plans import kernels, planned, sources

units = st.sampled_from([1, 2, 4, 8, 16])
sides = st.integers(1, 5000)


input_alignments = st.sampled_from([1, 4, 16])


@given(units, input_alignments, st.booleans())
def test_every_tile_is_one_block_with_whole_output_lines(
    unit: int, alignment: int, is_aligned: bool
) -> None:
    tile_choices = tiles(unit, max(unit, alignment), is_aligned)
    assert tile_choices
    for tile in tile_choices:
        assert tile.across * tile.down_vectors * 16 <= TILE_BYTES
        assert tile.across * unit % 128 == 0
        # Lines that are not aligned hold up to a vector of other bytes.
        assert tile.down * unit == tile.down_vectors * 16 - 16 * (tile.input_alignment < 16)
        assert tile.shared_vectors * 16 <= 48 << 10


@given(units, input_alignments, st.booleans())
def test_threads_read_and_write_lines_of_the_same_phase(
    unit: int, alignment: int, is_aligned: bool
) -> None:
    """A group of lines has all phases; a warp writes eight vectors of each of four lines."""
    for tile in tiles(unit, max(unit, alignment), is_aligned):
        group, row_vectors = 16 // unit, tile.across * unit // 16
        assert THREADS // tile.down_vectors % group == 0
        assert row_vectors % 8 == 0
        assert row_vectors <= MAX_LINE_VECTORS
        assert is_aligned or THREADS // row_vectors % group == 0


@pytest.mark.parametrize(
    ("unit", "down", "across"),
    [(1, 128, 128), (2, 64, 128), (4, 64, 64), (8, 32, 64), (16, 32, 32)],
)
def test_sides_of_the_tiles_of_a_large_plane_differ_at_most_by_a_factor_of_two(
    unit: int, down: int, across: int
) -> None:
    tile = best_tile(tiles(unit), [Plane(8192, 8192, 8192 * unit, 8192 * unit)])
    assert (tile.down, tile.across) == (down, across)


def test_a_plane_with_a_short_side_gets_a_long_tile() -> None:
    tile = best_tile(tiles(4), [Plane(16, 100_000, 400_000, 64)])
    assert (tile.down, tile.across) == (16, 128)
    assert tile.fill([Plane(16, 128, 0, 0)]) == 1


@given(units, sides, sides, st.lists(st.integers(1, 9), max_size=3))
def test_tiles_cover_a_plane(unit: int, down: int, across: int, around: list[int]) -> None:
    plane = Plane(down, across, 0, 0, tuple(Loop(size, 0, 0) for size in around))
    for tile in tiles(unit):
        downs, acrosses, *outer = tile.counts(plane)
        assert (downs - 1) * tile.down < down <= downs * tile.down
        assert (acrosses - 1) * tile.across < across <= acrosses * tile.across
        assert outer == around
        share = down * across / (downs * tile.down * acrosses * tile.across)
        assert tile.fill([plane]) == pytest.approx(share)


@given(units, sides, sides, st.integers(0, 15))
def test_tiles_reach_the_last_vector_of_lines_at_any_address(
    unit: int, down: int, across: int, phase: int
) -> None:
    """The first element of a line may be any of the elements that a vector of 16 bytes holds."""
    assume(unit < 16)
    plane = Plane(down, across, down_stride=0, across_stride=0)
    last_element = phase % (16 // unit) + across - 1
    for tile in tiles(unit, 1, is_output_aligned=False):
        _, tiles_across = tile.counts(plane)
        assert last_element < tiles_across * tile.across


ASSUMED = Assumptions(16, 16, H200.limits, 64, is_streaming=False)


@pytest.mark.parametrize(
    ("across_stride", "down_stride", "offset", "alignment", "is_aligned"),
    [
        (800, 1600, 0, 16, True),
        (804, 1608, 0, 4, False),
        (808, 1600, 0, 4, True),
        (800, 1600, 4, 4, True),
        (802, 1602, 0, 1, False),
        (801, 1601, 0, 1, False),
    ],
)
def test_alignments_are_those_of_every_line(
    across_stride: int, down_stride: int, offset: int, alignment: int, is_aligned: bool
) -> None:
    plane = Plane(99, 99, down_stride, across_stride, (Loop(3, 1600, 3200),))
    assert alignments([plane], [0, offset], ASSUMED) == (alignment, is_aligned)
    around = replace(plane, loops=(Loop(3, 1601, 3202),))
    assert alignments([around], [0, offset], ASSUMED) == (1, False)


def rows_of(count: int, width: int, rows: int = 1 << 16) -> SplitGeometry:
    return packed_split((rows, count), axis=1, sizes=(1,) * count, element_bytes=width)


@pytest.mark.parametrize(
    ("count", "width"), [(12, 4), (32, 4), (84, 4), (64, 1), (112, 1), (4000, 1), (56, 2), (300, 8)]
)
def test_rows_of_elements_are_transposed(count: int, width: int) -> None:
    assert kernels(rows_of(count, width)) == ["transpose"]
    assert set(kernels(rows_of(count, width), 1, 16)) == {"tile" if count > 12 else "strided"}
    # A window of few elements goes through shared memory to any address.
    kernel = "strided" if count <= MAX_STAGED else "tile"
    assert set(kernels(rows_of(count, width), 16, 8)) == {kernel}


@pytest.mark.parametrize(
    ("count", "width", "rows", "kernel"),
    [
        # Rows that leave tiles empty: 5 vectors of 8; few rows; two tiles that share a sector.
        (17, 4, 1 << 16, "tile"),
        (32, 4, 30, "tile"),
        (272, 1, 1 << 16, "tile"),
        # Rows that are not whole vectors.
        (85, 4, 1 << 16, "tile"),
        (61, 1, 1 << 16, "tile"),
        (51, 2, 1 << 16, "tile"),
        # Outputs up to two gigabytes, and above.
        (64, 1, 2**31 - TILE_BYTES, "transpose"),
        (64, 1, 2**31, "tile"),
        # Few elements stay in registers.
        (4, 4, 1 << 16, "strided"),
    ],
)
def test_rows_of_few_or_wide_elements_are_not_transposed(
    count: int, width: int, rows: int, kernel: str
) -> None:
    assert kernels(rows_of(count, width, rows)) == [kernel]


def test_rows_and_pitches_do_not_change_the_specialization() -> None:
    padded_geometry = packed_split(
        (400_003, 32), axis=1, sizes=(1,) * 32, element_bytes=4, input_strides=(192, 4)
    )
    (text,) = sources(padded_geometry)
    for rows in (1 << 20, 1_000_003):
        assert sources(rows_of(32, 4, rows)) == [text]


SMALL = DeviceLimits(80, 1024, 6 << 20, 4096)


def test_pointers_and_arguments_of_elements_fit_the_parameters() -> None:
    for count in range(480, 512, 2):
        planned(rows_of(count, 8), limits=SMALL)
    assert set(kernels(rows_of(5000, 8))) == {"tile"}


def permuted(batch: int, channels: tuple[int, ...], pixels: int, width: int = 4) -> SplitGeometry:
    """Pixels with interleaved channels, split into planes of channels."""
    total = sum(channels)
    shape = batch, total, pixels
    strides = pixels * total * width, width, total * width
    return packed_split(shape, axis=1, sizes=channels, element_bytes=width, input_strides=strides)


def transposed(
    geometry: SplitGeometry, limits: DeviceLimits = H200.limits
) -> tuple[KernelLaunch, ...]:
    launches = planned(geometry, limits=limits)
    assert {launch.code.kernel for launch in launches} == {"transpose"}
    return launches


@pytest.mark.parametrize(
    "geometry",
    [permuted(65, (64, 64), 4096), permuted(32, (512, 512), 3136), permuted(7, (77, 77), 1 << 16)],
)
def test_transposes_share_code_for_any_sizes_if_lines_are_aligned(geometry: SplitGeometry) -> None:
    (first,) = transposed(permuted(32, (64, 64), 4096))
    (second,) = transposed(geometry)
    assert first.argument_bytes != second.argument_bytes
    is_shared = first.code.source == second.code.source
    assert is_shared == (geometry.pieces[0].loops[-1].input_stride % 16 == 0)  # lines are aligned


def test_a_side_above_two_gigabytes_is_not_transposed() -> None:
    assert kernels(permuted(1, (8,), 1 << 29)) == ["strided"]


@given(
    st.lists(st.integers(8, 40), min_size=1, max_size=30),
    st.integers(1, 200),
    st.sampled_from([H200.limits, SMALL]),
)
def test_pointers_and_tables_fit_the_parameters(
    pattern: list[int], repeats: int, limits: DeviceLimits
) -> None:
    transposed(permuted(3, tuple(pattern) * repeats, 9, 2), limits)


def test_as_many_outputs_and_sizes_as_fit_are_one_launch() -> None:
    assert len(transposed(permuted(2, (16, 8) * 500, 100, 2))) == 1
    assert len(transposed(permuted(3, tuple(range(8, 38)), 9, 2), SMALL)) == 1
