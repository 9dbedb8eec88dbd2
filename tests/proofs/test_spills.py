"""No specialization that the planner can choose spills; all leave room for the planned blocks."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dmlsplit.backends.cuda.launch import KernelLaunch
from dmlsplit.backends.cuda.planner import strided
from tests.proofs import forms
from tests.proofs.test_sass import ARCHES, check_spills
from tests.sass import launch as sass
from tests.support import nvrtc
from tests.support.plans import constants_and_arguments

pytestmark = pytest.mark.skipif(bool(nvrtc.missing()), reason=str(nvrtc.missing()))
BRANCHES = "kUnit kAligned kEdges kWindow Index input_strides".split()
TABLES = ("kNests", "kPlanes", "kEntries")  # one entry, or more
# Numbers and architectures for which every specialization is compiled. Those with 64-bit numbers,
# of splits beyond 2^30 items or 2^31 bytes, are compiled for one architecture; the heaviest of them
# also for those on which specializations have spilled.
JOBS = [
    *((forms.SMALL_NUMBERS, arch) for arch in ARCHES),
    *((numbers, sass.ARCH) for numbers in forms.LARGE_NUMBERS),
]


def specializations(runs: Iterable[forms.Run]) -> dict[Any, KernelLaunch]:
    """A launch of every specialization, those that differ only in sizes of tables but once."""
    distinct: dict[Any, KernelLaunch] = {}
    for run in runs:
        for launch in run.case.launches:
            code = launch.code
            constants = [
                (name, min(value, 2) if name in TABLES else value)
                for _, name, value in code.own_constants
            ]
            # Staged blocks read no strides.
            is_staged = bool(dict(constants).get("kStagedAlign"))
            types = [] if is_staged else [(member.type, member.name) for member in code.members]
            distinct.setdefault((code.kernel, *constants, *types), launch)
    return distinct


@cache
def planned(numbers: forms.Numbers) -> list[KernelLaunch]:
    """A launch of every specialization of a whole sweep."""
    return list(specializations(forms.sweep(True, numbers=numbers, most_bytes=1 << 40)).values())


def heaviest(runs: Iterable[forms.Run]) -> list[KernelLaunch]:
    """Of specializations with the same branches and types, the one with most bytes in flight."""
    largest: dict[Any, KernelLaunch] = {}
    for launch in specializations(runs).values():
        have = constants_and_arguments(launch) | {
            member.name: member.type for member in launch.code.members
        }
        is_deep = have.get("kDimensions", 0) >= strided.MAX_CHEAP_DEPTH
        kind = launch.code.kernel, is_deep, bool(have.get("kStagedAlign")), *map(have.get, BRANCHES)
        largest[kind] = max(largest.get(kind, launch), launch, key=in_flight)
    return list(largest.values())


def in_flight(launch: KernelLaunch) -> tuple[int, int]:
    return launch.bytes_in_flight * launch.code.resident, constants_and_arguments(launch).get(
        "kDimensions", 0
    )


def test_the_specializations_with_most_bytes_in_flight_do_not_spill(builds: Path) -> None:
    launches = heaviest(
        forms.sweep(False, [forms.nested], forms.Numbers(are_large=True, are_far=True))
    )
    assert len(launches) >= 10
    check_spills(launches, builds, [sass.ARCH])


@pytest.mark.exhaustive
@pytest.mark.parametrize("arch", ["sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize(
    "numbers", [forms.Numbers(are_far=True), forms.Numbers(are_large=True, are_far=True)]
)
def test_the_heaviest_64_bit_specializations_do_not_spill(
    numbers: forms.Numbers, arch: str, builds: Path
) -> None:
    """Strides of 64 bits, on the architectures on which specializations have spilled before."""
    runs = forms.sweep(is_fine=False, numbers=numbers, most_bytes=1 << 40)
    check_spills(heaviest(runs), builds, [arch])


@pytest.mark.exhaustive
@pytest.mark.parametrize(("numbers", "arch"), JOBS)
def test_no_specialization_spills(numbers: forms.Numbers, arch: str, builds: Path) -> None:
    check_spills(planned(numbers), builds, [arch])
