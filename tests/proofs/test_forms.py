"""Every form of a launch runs at every address that it allows, every path with little data."""

from collections.abc import Callable, Iterable
from itertools import product
from math import lcm
from pathlib import Path

import pytest

from dmlsplit.backends.cuda.launch import VECTOR, Assumptions
from dmlsplit.backends.cuda.planner import strided
from tests.host_cuda import harness
from tests.proofs import adversary, forms, paths
from tests.proofs.forms import Reached
from tests.support import kernel_cases
from tests.support.kernel_cases import Case
from tests.support.kernel_splits import SMALL
from tests.support.large_splits import LARGE

needs_gcc = pytest.mark.skipif(bool(harness.missing()), reason=str(harness.missing()))
KERNELS = ("rows", "tile", "transpose", "strided")


@pytest.fixture(scope="module")
def scope() -> tuple[Reached, list[Case], Reached]:
    return forms.chosen(forms.sweep(is_fine=False))


def check_covered(required_sides: Reached, covered_sides: Reached) -> None:
    missing = {str(form): needs - covered_sides[form] for form, needs in required_sides.items()}
    assert not any(missing.values()), {form: needs for form, needs in missing.items() if needs}


@needs_gcc
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_form_runs_at_every_address(
    kernel: str, scope: tuple[Reached, list[Case], Reached], builds: Path
) -> None:
    required_sides, cases, covered_sides = scope
    assert {form.kernel for form in required_sides} == set(KERNELS)
    check_covered(required_sides, covered_sides)
    few = [case for case in cases if case.launches[0].code.kernel == kernel]
    kernel_cases.check_all(few, builds, harness.PLAIN)


@needs_gcc
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_path_that_arguments_choose_runs(kernel: str, builds: Path) -> None:
    """Rounds, chunks, tiles of ends and loops, in any two combinations, each with little data."""
    few = [case for case in paths.splits() if kernel in case.kernels]
    assert len(few) >= 5
    kernel_cases.check_all(few, builds, harness.PLAIN)


def test_no_split_takes_a_path_that_no_small_split_takes() -> None:
    """Nothing that arguments choose, and no two choices, whatever the limits of the device."""
    small = [*paths.splits(), *SMALL.values()]  # all of which run, here and in test_kernels.py
    small_paths = paths.ways(kernel_launch for case in small for kernel_launch in case.launches)
    other_cases = [*LARGE.values(), *map(adversary.case, range(180))]
    assert small_paths >= paths.ways(
        kernel_launch for case in other_cases for kernel_launch in case.launches
    )


def test_every_launch_of_chosen_and_random_splits_has_a_listed_form(
    scope: tuple[Reached, list[Case], Reached],
) -> None:
    """Neither one chosen by hand nor a random one."""
    other_cases = [*SMALL.values(), *LARGE.values()]
    other_cases += map(adversary.case, range(60))
    launches = [launch for case in other_cases for launch in case.launches]
    assert len(launches) > 300
    assert {forms.form_of(launch) for launch in launches} <= scope[0].keys()


@needs_gcc
def test_a_misaligned_access_is_rejected(builds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs that are sorted in registers have edges of whole elements, at any address."""

    def is_direct(unit: int, assumed: Assumptions) -> bool:
        return lcm(unit, VECTOR) == assumed.output_alignment == VECTOR

    monkeypatch.setattr(strided, "_is_direct", is_direct)
    _, cases, _ = forms.chosen(forms.sweep(False, [lambda _: [Case((257, 8), (4, 4))]]))
    with pytest.raises(harness.KernelFaultError, match="misaligned address: 4 bytes"):
        kernel_cases.check_all(cases, builds, harness.PLAIN)


PARTS = list(product(forms.SCOPE, (forms.SMALL, *forms.LARGE)))


@pytest.mark.slow
@needs_gcc
def test_forms_with_64_bit_numbers_run_at_every_address(
    scope: tuple[Reached, list[Case], Reached], builds: Path
) -> None:
    """Forms whose code is another one than with small numbers."""
    scope_sources = {launch.code.source for case in scope[1] for launch in case.launches}
    loops = forms.nested, forms.uneven  # whose strides and numbers of items may need 64 bits
    required_sides, cases, covered_sides = forms.chosen(forms.sweep(False, loops, forms.LARGE[-1]))
    check_covered(required_sides, covered_sides)
    few = [
        case
        for case in cases
        if scope_sources.isdisjoint(kernel_launch.code.source for kernel_launch in case.launches)
    ]
    assert len(few) > 100
    kernel_cases.check_all(few, builds, harness.PLAIN)


@pytest.mark.exhaustive
@needs_gcc
@pytest.mark.parametrize(("cases", "are"), PARTS)
def test_every_form_of_the_finer_classes_runs_at_every_pair_of_alignments(
    cases: Callable[[bool], Iterable[Case]],
    are: tuple[bool, bool],
    scope: tuple[Reached, list[Case], Reached],
    builds: Path,
) -> None:
    runs = list(forms.sweep(True, [cases], are))
    coarse = {forms.form_of(launch) for run in runs for launch in run.case.launches}
    assert coarse <= scope[0].keys()
    required_sides, few, covered_sides = forms.chosen(runs, forms.FINE)
    check_covered(required_sides, covered_sides)
    kernel_cases.check_all(few, builds, harness.SANITIZED)
