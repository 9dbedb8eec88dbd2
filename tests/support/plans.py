"""Checked plans: whatever kernels they choose, they fit the device and cover a split."""

from itertools import chain
from typing import Any

from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.launch import DeviceLimits, KernelLaunch
from dmlsplit.backends.cuda.planner import plan
from dmlsplit.geometry import SplitGeometry
from dmlsplit.self_test.paths import arguments

SHARED_PER_BLOCK = 48 << 10  # bytes of any GPU, without opting in to more


def planned(
    geometry: SplitGeometry,
    input_alignment: int = 16,
    output_alignment: int = 16,
    limits: DeviceLimits = H200.limits,
) -> tuple[KernelLaunch, ...]:
    """The launches of a geometry, which fit the device and write each output once."""
    launches = plan(geometry, input_alignment, output_alignment, limits)
    for launch in launches:
        check_fits(launch, limits)
    nonempty_outputs = [number for number, piece in enumerate(geometry.pieces) if piece.run_bytes]
    assert sorted(chain.from_iterable(launch.outputs for launch in launches)) == nonempty_outputs
    assert sum(launch.total_bytes for launch in launches) == geometry.total_bytes
    return launches


def check_fits(launch: KernelLaunch, limits: DeviceLimits) -> None:
    assert 1 <= launch.grid < 2**31
    assert len(launch.parameters([0] * (1 + len(launch.outputs)))) <= limits.parameter_bytes
    assert launch.shared_bytes <= SHARED_PER_BLOCK
    assert launch.threads <= limits.threads_per_sm
    # A thread's registers are limited so that `resident` blocks fit, so these must be able to fit.
    assert launch.code.resident <= limits.blocks_per_sm
    if limits == H200.limits:  # The numbers of blocks are tuned for it.
        assert launch.code.resident * launch.shared_bytes <= limits.shared_per_sm
        assert launch.code.resident * launch.threads <= limits.threads_per_sm


def kernels(
    geometry: SplitGeometry, input_alignment: int = 16, output_alignment: int = 16
) -> list[str]:
    """The names of the planned kernels, launch by launch."""
    return [launch.code.kernel for launch in planned(geometry, input_alignment, output_alignment)]


def sources(
    geometry: SplitGeometry, input_alignment: int = 16, output_alignment: int = 16
) -> list[str]:
    """The sources of the planned launches."""
    launches = planned(geometry, input_alignment, output_alignment)
    return [launch.code.source for launch in launches]


def constants_and_arguments(launch: KernelLaunch) -> dict[str, Any]:
    """A launch's constants and arguments by name."""
    return {constant.name: constant.value for constant in launch.code.constants} | arguments(launch)
