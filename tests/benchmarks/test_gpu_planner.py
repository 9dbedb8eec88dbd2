"""Cells on both sides of each estimate: each form is another plan, and its bytes are right."""

from itertools import product
from pathlib import Path

import pytest

from benchmarks import gpu_planner, l2_policies
from benchmarks.cases import Case
from benchmarks.gpu_planner import THRESHOLDS, Threshold
from benchmarks.l2_policies import POLICIES
from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.planner import KernelLaunch, estimates, plan
from tests.host_cuda import harness
from tests.sass import listing
from tests.support import kernel_cases, nvrtc
from tests.support.large_splits import of_workload

every_threshold = pytest.mark.parametrize(
    "threshold", THRESHOLDS, ids=lambda threshold: threshold.name
)
needs_gcc = pytest.mark.skipif(bool(harness.missing()), reason=str(harness.missing()))
needs_nvrtc = pytest.mark.skipif(bool(nvrtc.missing()), reason=str(nvrtc.missing()))


def launches(case: Case) -> tuple[KernelLaunch, ...]:
    return plan(case.geometry, *case.alignments, H200.limits)


def test_every_estimate_has_cells() -> None:
    names = {name for name in vars(estimates) if name.isupper()}
    assert {threshold.name for threshold in THRESHOLDS} == names
    assert 30 <= sum(len(list(threshold.cells())) for threshold in THRESHOLDS) <= 60


@every_threshold
def test_each_form_of_a_cell_is_another_plan(threshold: Threshold) -> None:
    ats = []
    for cell_place, case in threshold.cells():
        sources = set()
        for form in threshold.forms:
            with threshold.choosing(form):
                sources.add(tuple(launch.code.source for launch in launches(case)))
        assert len(sources) == 2, case.name
        ats.append(cell_place)
    # There are cells on both sides of today's estimate, or up to it.
    assert min(ats) < getattr(estimates, threshold.name) <= 2 * max(ats)


@needs_gcc
@every_threshold
def test_both_forms_of_small_cells_give_the_bytes_of_numpy(
    threshold: Threshold, builds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_planner, "TOTAL_BYTES", 1 << 17)
    (_, smallest), *_, (_, largest) = threshold.cells()
    for case, form in product((smallest, largest), threshold.forms):
        with threshold.choosing(form):
            split = of_workload(case)
            assert split.launches
        kernel_cases.run_and_compare([split], builds, harness.PLAIN)


def test_the_table_has_the_speed_of_each_form_or_why_there_is_none() -> None:
    def speed(case: Case) -> float:
        if launches(case)[0].code.kernel == "tile":
            raise RuntimeError("no room")
        return 0.5

    (cell,) = gpu_planner.cells(speed, "8 x 49 bytes, odd")
    assert cell.fractions == {"rows": 0.5, "tile": "failed: no room"}
    assert str(cell).split() == (
        "WIDE_BYTES 49 8 x 49 bytes, odd rows 0.500 tile failed: no room".split()
    )


def test_policies_are_timed_below_and_above_the_size_of_the_cache() -> None:
    def time(policy: l2_policies.Policy, size: int) -> tuple[float, float]:
        if size > 1 << 25:
            raise MemoryError("full")
        return 1e-6 * (1 + policy.loads_first), 2e-6

    rows = list(l2_policies.rows(1 << 25, time))
    assert len(rows) == 4 * 4
    assert (
        rows[0].split()
        == "loads normal stores normal 0.25 x L2 1.0 us copy 2.0 us consumer 3.0 us both".split()
    )
    assert rows[-1].endswith("failed: full")


KINDS = ("LDG", "STG")


@needs_nvrtc
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_each_policy_is_in_the_machine_code(policy: l2_policies.Policy, builds: Path) -> None:
    """On sm_80, only accesses with a policy have a descriptor."""
    for arch in ("sm_90", "sm_100"):
        nvrtc.compile_cubin(policy.source, arch, builds)
    cubin = nvrtc.compile_cubin(policy.source, "sm_80", builds)
    (text,) = nvrtc.disassemble([listing.code(cubin)], "sm_80", builds)
    code = listing.parse(text).instructions
    loads, stores = (
        {"desc" in str(instruction) for instruction in code if instruction.opcode == name}
        for name in KINDS
    )
    assert (loads, stores) == ({policy.loads_first}, {policy.stores_first})
