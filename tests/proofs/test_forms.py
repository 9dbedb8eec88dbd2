"""Every form of a launch runs at every address that it allows, every path with little data."""

from collections.abc import Callable, Iterable
from math import lcm
from pathlib import Path

import pytest

from dmlsplit.backends.cuda.launch import VECTOR, Assumptions, KernelLaunch
from dmlsplit.backends.cuda.planner import strided
from tests.host_cuda import harness
from tests.proofs import adversary, forms, paths
from tests.proofs.forms import Numbers, Scope, Sides
from tests.support import kernel_cases
from tests.support.kernel_cases import Case
from tests.support.kernel_splits import SMALL
from tests.support.large_splits import LARGE

needs_gcc = pytest.mark.skipif(bool(harness.missing()), reason=str(harness.missing()))
KERNELS = ("rows", "tile", "transpose", "strided")


@pytest.fixture(scope="module")
def scope() -> Scope:
    """Small splits that run every form at every address that it allows."""
    return forms.chosen(forms.sweep(is_fine=False))


def launches_of(cases: Iterable[Case]) -> list[KernelLaunch]:
    return [launch for case in cases for launch in case.launches]


def check_covered(required_sides: Sides, covered_sides: Sides) -> None:
    missing = {str(form): needs - covered_sides[form] for form, needs in required_sides.items()}
    assert not any(missing.values()), {form: needs for form, needs in missing.items() if needs}


@needs_gcc
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_form_runs_at_every_address(kernel: str, scope: Scope, builds: Path) -> None:
    assert {form.kernel for form in scope.required_sides} == set(KERNELS)
    check_covered(scope.required_sides, scope.covered_sides)
    few = [case for case in scope.cases if case.launches[0].code.kernel == kernel]
    kernel_cases.run_and_compare(few, builds, harness.PLAIN)


@needs_gcc
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_path_that_arguments_choose_runs(kernel: str, builds: Path) -> None:
    """Rounds, chunks, tiles of ends and loops, in any two combinations, each with little data."""
    few = [case for case in paths.splits() if kernel in case.kernels]
    assert len(few) >= 5
    kernel_cases.run_and_compare(few, builds, harness.PLAIN)


def test_no_split_takes_a_path_that_no_small_split_takes() -> None:
    """Nothing that arguments choose, and no two choices, whatever the limits of the device."""
    small = [*paths.splits(), *SMALL.values()]  # all of which run, here and in test_kernels.py
    large_and_random = [*LARGE.values(), *map(adversary.case, range(180))]
    assert paths.ways(launches_of(small)) >= paths.ways(launches_of(large_and_random))


def test_every_launch_of_chosen_and_random_splits_has_a_listed_form(scope: Scope) -> None:
    cases = [*SMALL.values(), *LARGE.values(), *map(adversary.case, range(60))]
    assert {forms.form_of(launch) for launch in launches_of(cases)} <= scope.required_sides.keys()


@needs_gcc
def test_a_misaligned_access_is_rejected(builds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs that are sorted in registers have edges of whole elements, at any address."""

    def is_direct(unit: int, assumed: Assumptions) -> bool:
        return lcm(unit, VECTOR) == assumed.output_alignment == VECTOR

    monkeypatch.setattr(strided, "_is_direct", is_direct)
    pairs_of_4_bytes = Case((257, 8), (4, 4))
    scope = forms.chosen(forms.sweep(is_fine=False, scope=[lambda _: [pairs_of_4_bytes]]))
    with pytest.raises(harness.KernelFaultError, match="misaligned address: 4 bytes"):
        kernel_cases.run_and_compare(scope.cases, builds, harness.PLAIN)


@pytest.mark.slow
@needs_gcc
def test_forms_with_64_bit_numbers_run_at_every_address(scope: Scope, builds: Path) -> None:
    """Only the code that small numbers do not have is run: test_every_form ran the rest."""
    with_64_bits = forms.chosen(
        forms.sweep(
            is_fine=False,
            scope=[forms.nested, forms.uneven],  # whose strides and numbers of items may need them
            numbers=Numbers(are_large=True, are_far=True),
        )
    )
    check_covered(with_64_bits.required_sides, with_64_bits.covered_sides)
    code_that_ran = {launch.code.source for launch in launches_of(scope.cases)}
    new_cases = [
        case
        for case in with_64_bits.cases
        if code_that_ran.isdisjoint(launch.code.source for launch in case.launches)
    ]
    assert new_cases
    kernel_cases.run_and_compare(new_cases, builds, harness.PLAIN)


@pytest.mark.exhaustive
@needs_gcc
@pytest.mark.parametrize("cases", forms.SCOPE)
@pytest.mark.parametrize("numbers", [forms.SMALL_NUMBERS, *forms.LARGE_NUMBERS])
def test_every_form_of_the_finer_classes_runs_at_every_pair_of_alignments(
    cases: Callable[[bool], Iterable[Case]],
    numbers: Numbers,
    scope: Scope,
    builds: Path,
) -> None:
    runs = list(forms.sweep(True, [cases], numbers))
    coarse_forms = {forms.form_of(launch) for launch in launches_of(run.case for run in runs)}
    assert coarse_forms <= scope.required_sides.keys()
    finer = forms.chosen(runs, forms.FINE)
    check_covered(finer.required_sides, finer.covered_sides)
    kernel_cases.run_and_compare(finer.cases, builds, harness.SANITIZED)
