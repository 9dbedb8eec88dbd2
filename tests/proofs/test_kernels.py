"""Every kernel, from the sources in cuda/, compared with NumPy bit by bit, under sanitizers.

The cases are chosen by hand; test_adversary.py draws others.
"""

from pathlib import Path

import pytest

from benchmarks.workloads import WORKLOADS, scaled
from tests.host_cuda import harness
from tests.support import kernel_cases
from tests.support.kernel_cases import each_toolchain
from tests.support.kernel_splits import SMALL
from tests.support.large_splits import of_workload

pytestmark = pytest.mark.skipif(bool(harness.missing()), reason=str(harness.missing()))


@pytest.fixture(scope="module")
def ran(request: pytest.FixtureRequest, builds: Path) -> dict[str, object]:
    """The results of the chosen cases, which are compiled together."""
    case_names = kernel_cases.chosen(request, test_a_case_gives_the_bytes_of_numpy)
    outcomes = kernel_cases.run([SMALL[name] for name in case_names], builds)
    return dict(zip(case_names, outcomes, strict=True))


@pytest.mark.parametrize("name", SMALL)
def test_a_case_gives_the_bytes_of_numpy(name: str, ran: dict[str, object]) -> None:
    kernel_cases.check(SMALL[name], ran[name])


def test_no_case_depends_on_the_order_of_threads(builds: Path) -> None:
    """Here every access to shared memory is checked; all other tests check stores to outputs."""
    shared = {
        kernel_launch.code.kernel
        for case in SMALL.values()
        for kernel_launch in case.launches
        if kernel_launch.shared_bytes
    }
    assert shared == {"strided", "tile", "transpose"}
    kernel_cases.run_and_compare(list(SMALL.values()), builds, harness.COUNTING)


@pytest.mark.parametrize("name", ["narrow_3x3", "transposed_bytes"])
def test_a_kernel_without_its_barrier_is_rejected(name: str, builds: Path) -> None:
    case = SMALL[name]
    (launch,) = case.launches
    source = launch.code.source
    assert "__syncthreads();" in source
    wrong = source.replace("__syncthreads();", "")
    program = harness.build([wrong], builds, harness.COUNTING)[wrong]
    buffers = case.buffers(case.random_source(), launch.outputs)
    with pytest.raises(harness.KernelFaultError, match="shared memory"):
        program.run(launch.grid, launch.threads, buffers, arguments=launch.argument_bytes)


def test_small_splits_reach_every_kernel() -> None:
    reached = set().union(*(case.kernels for case in SMALL.values()))
    assert reached == kernel_cases.KERNELS


@pytest.mark.exhaustive
@each_toolchain
def test_scaled_workloads_give_the_bytes_of_numpy(
    builds: Path, toolchain: harness.Toolchain
) -> None:
    small = [scaled(workload, 1 << 16) for workload in WORKLOADS]
    workloads = [workload for workload in small if workload.total_bytes <= 1 << 20]
    assert len(workloads) >= 22
    cases = [
        of_workload(workload, where)
        for workload in workloads
        for width in [workload.element_bytes]
        for where in {(0, 0), workload.misaligned, (width, 3 * width)}
    ]
    kernel_cases.run_and_compare(cases, builds, toolchain)
