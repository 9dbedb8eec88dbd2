"""Plans of strided splits that are transposed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlsplit.backends.cuda.codegen import source
from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.launch import KernelLaunch
from dmlsplit.backends.cuda.planner import DeviceLimits, plan
from dmlsplit.geometry import SplitGeometry, split_geometry

SMALL = DeviceLimits(80, 1024, 6 << 20, 4096)


def permuted(batch: int, channels: tuple[int, ...], pixels: int, width: int = 4) -> SplitGeometry:
    """Pixels with their channels beside each other, split into planes of channels."""
    total = sum(channels)
    shape = batch, total, pixels
    strides = pixels * total * width, width, total * width
    return split_geometry(shape, 1, channels, width, strides, [None] * len(channels))


def launches(
    geometry: SplitGeometry, limits: DeviceLimits = H200.limits
) -> tuple[KernelLaunch, ...]:
    found = plan(geometry, 16, 16, limits)
    assert {launch.kernel for launch in found} == {"transpose"}
    return found


@pytest.mark.parametrize(
    "other",
    [permuted(65, (64, 64), 4096), permuted(32, (512, 512), 3136), permuted(7, (77, 77), 1 << 16)],
)
def test_other_sizes_need_no_other_kernel(other: SplitGeometry) -> None:
    (first,) = launches(permuted(32, (64, 64), 4096))
    (second,) = launches(other)
    assert first.argument_bytes != second.argument_bytes
    same = source(first) == source(second)
    assert same == (other.pieces[0].loops[-1].input_stride % 16 == 0)  # lines are aligned


def test_a_side_above_two_gigabytes_is_not_transposed() -> None:
    geometry = permuted(1, (8,), 1 << 29)
    assert {launch.kernel for launch in plan(geometry, 16, 16, H200.limits)} == {"strided"}


@given(
    st.lists(st.integers(8, 40), min_size=1, max_size=30),
    st.integers(1, 200),
    st.sampled_from([H200.limits, SMALL]),
)
def test_pointers_and_tables_fit_the_parameters(
    pattern: list[int], repeats: int, limits: DeviceLimits
) -> None:
    geometry = permuted(3, tuple(pattern) * repeats, 9, 2)
    found = launches(geometry, limits)
    for launch in found:
        addresses = [0] * (1 + len(launch.outputs))
        assert len(launch.parameters(addresses)) <= limits.parameter_bytes
    covered = sorted(output for launch in found for output in launch.outputs)
    assert covered == list(range(len(geometry.pieces)))


def test_a_thousand_outputs_are_one_launch() -> None:
    assert len(launches(permuted(2, (16, 8) * 500, 100, 2))) == 1
