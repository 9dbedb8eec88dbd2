"""Loads and stores are as wide as planned, in the machine code for every architecture.

A compiler may split a vector of which it needs only some words. A warp then takes as many loads as
words, and each of them serves sectors that the others serve again.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dmlsplit.backends.cuda.launch import VECTOR, KernelLaunch
from tests.proofs import forms
from tests.proofs.test_sass import ARCHES, LAUNCHES, MARKED
from tests.sass import listing
from tests.support import nvrtc
from tests.support.large_splits import LARGE
from tests.support.plans import constants_and_arguments

pytestmark = pytest.mark.skipif(bool(nvrtc.missing()), reason=str(nvrtc.missing()))


def distinct(launches: Iterable[KernelLaunch]) -> list[KernelLaunch]:
    """One launch of each form; windows differ in their steps and alignments, too."""
    by_form: dict[Any, KernelLaunch] = {}
    for launch in launches:
        window = (
            constants_and_arguments(launch).get("kStep"),
            constants_and_arguments(launch).get("kAlign"),
        )
        by_form.setdefault((forms.form_of(launch), *window), launch)
    return list(by_form.values())


def widths(text: str) -> tuple[Counter[int], Counter[int]]:
    """How many loads and stores of global memory a listing has, by their bytes."""
    instructions = listing.parse(text).instructions
    loads, stores = (
        Counter(instruction.size for instruction in instructions if instruction.opcode == opcode)
        for opcode in ("LDG", "STG")
    )
    return loads, stores


def planned(launch: KernelLaunch) -> tuple[int, set[int], set[int]]:
    """The fewest loads of vectors, and the bytes that narrower loads and stores may have."""
    constants = constants_and_arguments(launch)
    match launch.code.kernel:
        case "rows":
            return constants["kLoads"], {1} - {constants["kAligned"]}, {1} - {constants["kAligned"]}
        case "tile":
            return constants["kLoads"], set(), {constants["kPartBytes"]}
        case "transpose":
            return 1, set(), {constants["kUnit"], max(4, constants["kUnit"])}
    unit, item = constants["kUnit"] & -constants["kUnit"], constants["kItemBytes"]
    if not constants["kWindow"]:
        return 0, {unit}, {unit, item}
    # Unaligned windows may end anywhere in their last vector, whose load may then be narrower.
    # Without edges, only such loads are.
    bytes_ = ((VECTOR // unit - 1) * abs(constants["kStep"]) + constants["kChannels"]) * unit
    if constants["kStagedAlign"]:
        units = item // constants["kUnit"]
        bytes_ = ((units - 1) * constants["kStep"] + constants["kChannels"]) * constants["kUnit"]
    vectors = (bytes_ + 2 * VECTOR - 1 - constants["kAlign"]) // VECTOR
    whole = vectors - (constants["kAlign"] < VECTOR)
    narrow = {1, unit} if constants["kEdges"] or constants["kStagedAlign"] else set()
    # All units of an item are the same one, and the compiler loads only the word that has it.
    if constants["kStep"] == 0:
        return 0, narrow | {max(4, unit)}, narrow
    # A tile that is not full has code of its own, but not if it is staged.
    copies = 1 if constants["kStagedAlign"] else 2
    least = copies * constants["kItems"] * whole
    return least, narrow | ({4, 8} if whole < vectors else set()), narrow


def check_all(launches: Sequence[KernelLaunch], arch: str, builds: Path) -> None:
    cubins = [nvrtc.compile_cubin(launch.code.source, arch, builds) for launch in launches]
    listings = nvrtc.disassemble(map(listing.code, cubins), arch, builds)
    for launch, text in zip(launches, listings, strict=True):
        check(launch, arch, text)


def check(launch: KernelLaunch, arch: str, text: str) -> None:
    loads, stores = widths(text)
    least, narrow_loads, narrow_stores = planned(launch)
    launch_facts = launch.code.kernel, arch, constants_and_arguments(launch), loads, stores
    assert loads[VECTOR] >= least, launch_facts
    assert loads.keys() <= {VECTOR, *narrow_loads}, launch_facts
    assert stores.keys() <= {VECTOR, *narrow_stores}, launch_facts
    is_narrow = constants_and_arguments(launch).get("kItemBytes", VECTOR) < VECTOR
    assert stores[VECTOR] or is_narrow, launch_facts


@pytest.mark.parametrize("arch", MARKED)
def test_large_splits_load_and_store_vectors(arch: str, builds: Path) -> None:
    windows = (
        kernel_launch
        for case in LARGE.values()
        for kernel_launch in case.launches
        if constants_and_arguments(kernel_launch).get("kWindow")
    )
    launches = [*LAUNCHES.values(), *distinct(windows)]
    assert {launch.code.kernel for launch in launches} == {"rows", "tile", "transpose", "strided"}
    check_all(launches, arch, builds)


@pytest.mark.exhaustive
@pytest.mark.parametrize("arch", ARCHES)
def test_every_form_loads_and_stores_vectors(arch: str, builds: Path) -> None:
    launches = distinct(
        launch for run in forms.sweep(is_fine=False) for launch in run.case.launches
    )
    check_all(launches, arch, builds)
