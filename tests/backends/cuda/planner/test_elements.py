"""Plans of rows of outputs that are one element wide each."""

import pytest

from dmlsplit.backends.cuda.codegen import source
from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.planner import DeviceLimits, plan
from dmlsplit.geometry import SplitGeometry, split_geometry
from tests.support.descriptors import packed


def rows_of(count: int, width: int, rows: int = 1 << 16) -> SplitGeometry:
    return packed((rows, count), 1, (1,) * count, width)


def kernels(geometry: SplitGeometry, input_at: int = 16, outputs_at: int = 16) -> list[str]:
    return [launch.kernel for launch in plan(geometry, input_at, outputs_at, H200.limits)]


@pytest.mark.parametrize(
    ("count", "width"),
    [(12, 4), (32, 4), (85, 4), (61, 1), (100, 1), (4000, 1), (51, 2), (300, 8)],
)
def test_rows_of_elements_are_transposed(count: int, width: int) -> None:
    assert kernels(rows_of(count, width)) == ["transpose"]
    assert set(kernels(rows_of(count, width), 1, 16)) == {"tile"}
    assert set(kernels(rows_of(count, width), 16, 8)) == {"tile"}


def test_rows_that_leave_squares_empty_are_not() -> None:
    assert kernels(rows_of(17, 4)) == ["tile"]  # 5 vectors of 8
    assert kernels(rows_of(32, 4, rows=30)) == ["tile"]
    assert kernels(rows_of(250, 1)) == ["tile"]  # two squares, side by side in one sector


def test_outputs_above_two_gigabytes_are_not() -> None:
    assert kernels(rows_of(64, 1, rows=2**31 - 1)) == ["transpose"]
    assert kernels(rows_of(64, 1, rows=2**31)) == ["tile"]


def test_few_elements_stay_in_registers() -> None:
    assert kernels(rows_of(4, 4)) == ["deinterleave"]


def test_rows_and_pitch_are_not_compiled() -> None:
    padded = split_geometry((400_003, 32), 1, (1,) * 32, 4, (192, 4), [None] * 32)
    sources = {
        source(launch)
        for geometry in (rows_of(32, 4, 1 << 20), rows_of(32, 4, 1_000_003), padded)
        for launch in plan(geometry, 16, 16, H200.limits)
    }
    assert len(sources) == 1


def test_pointers_and_arguments_fit_the_parameters() -> None:
    limits = DeviceLimits(80, 1024, 6 << 20, 4096)
    for count in range(480, 512, 2):
        for launch in plan(rows_of(count, 8), 16, 16, limits):
            addresses = [0] * (1 + len(launch.outputs))
            assert len(launch.parameters(addresses)) <= limits.parameter_bytes
    assert set(kernels(rows_of(5000, 8))) == {"tile"}
