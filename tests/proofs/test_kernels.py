"""Every kernel, from the sources in cuda/, compared with NumPy bit by bit, under sanitizers.

The cases are chosen by hand; test_adversary.py draws others.
"""

from pathlib import Path

import pytest

from benchmarks.workloads import WORKLOADS, scaled
from tests.host_cuda import harness
from tests.support import kernel_cases
from tests.support.kernel_cases import Case, each_toolchain
from tests.support.kernel_splits import CASES

pytestmark = pytest.mark.skipif(bool(harness.missing()), reason=str(harness.missing()))


@pytest.fixture(scope="module")
def ran(request: pytest.FixtureRequest, builds: Path) -> dict[str, object]:
    """The results of the chosen cases, which are compiled together."""
    chosen = kernel_cases.chosen(request, test_a_case_gives_numpy_bytes)
    outcomes = kernel_cases.run([CASES[name] for name in chosen], builds)
    return dict(zip(chosen, outcomes, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_a_case_gives_numpy_bytes(name: str, ran: dict[str, object]) -> None:
    kernel_cases.check(CASES[name], ran[name])


def test_no_case_depends_on_the_order_of_threads(builds: Path) -> None:
    """Here every access to shared memory is checked; all other tests check stores to outputs."""
    shared = {
        one.code.kernel for case in CASES.values() for one in case.launches if one.shared_bytes
    }
    assert shared == {"rows", "strided", "tile", "transpose"}
    kernel_cases.check_all(list(CASES.values()), builds, harness.COUNTING)


@pytest.mark.parametrize("name", ["narrow_3x3", "transposed_bytes"])
def test_without_its_barrier_a_kernel_is_refused(name: str, builds: Path) -> None:
    case = CASES[name]
    (launch,) = case.launches
    source = launch.code.source
    assert "__syncthreads();" in source
    wrong = source.replace("__syncthreads();", "")
    program = harness.build([wrong], builds, harness.COUNTING)[wrong]
    buffers = case.buffers(case.random_source(), launch.outputs)
    with pytest.raises(harness.KernelFaultError, match="shared memory"):
        program.run(launch.grid, launch.block, buffers, arguments=launch.argument_bytes)


def test_the_cases_reach_every_kernel() -> None:
    sources = Path(__file__).parents[2].joinpath("cuda").glob("*.cu")
    reached = set().union(*(case.kernels for case in CASES.values()))
    assert reached == {source.stem for source in sources} - {"probe"}  # of the self-test alone


def in_elements(strides: tuple[int, ...] | None, element_bytes: int) -> tuple[int, ...] | None:
    return strides and tuple(step // element_bytes for step in strides)


@pytest.mark.slow
@each_toolchain
def test_scaled_workloads_give_numpy_bytes(builds: Path, toolchain: harness.Toolchain) -> None:
    small = [scaled(workload, 1 << 16) for workload in WORKLOADS]
    chosen = [workload for workload in small if workload.total_bytes <= 1 << 20]
    assert len(chosen) >= 22
    cases = [
        Case(
            w.shape,
            w.sizes,
            w.axis,
            width,
            in_elements(w.strides, width),
            tuple(in_elements(each, width) for each in w.output_strides),
            where,
        )
        for w in chosen
        for width in [w.element_bytes]
        for where in {(0, 0), w.misaligned, (width, 3 * width)}
    ]
    kernel_cases.check_all(cases, builds, toolchain)
