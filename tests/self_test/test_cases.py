"""The table of splits reaches all that the planner can choose; the comparison works on the CPU."""

import ctypes
from typing import Any

import pytest

import dmlsplit as dml
from dmlsplit.backends.cuda import driver, libcuda, planner
from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.launch import KernelLaunch
from dmlsplit.backends.cuda.planner import plan
from dmlsplit.backends.find import find_backend
from dmlsplit.self_test.cases import CASES, FAR, NEAR, Mode
from dmlsplit.self_test.comparison import compare
from dmlsplit.self_test.kernels import STORE
from dmlsplit.self_test.memory import GpuMemory, HostMemory
from tests.proofs import forms
from tests.support.command import ROOT
from tests.support.each import each

# Constants that select a path of a kernel, and those with a size of an element.
SWITCHES = set(
    "kAligned kShort kOneRow kEqual kPadded kPointers kWindow kEdges kLeads kStagedAlign".split()
)
SIZES = {"kUnit", "kPartBytes", "kStep", "kShiftWords"}


def modes(launch: KernelLaunch) -> set[tuple[Any, ...]]:
    """A kernel's path; and, apart from it, each size of its elements and direction of steps."""
    form = forms.form_of(launch)
    path = tuple(one for one in form.constants if one[0] in SWITCHES)
    return {
        (form.kernel, *path),
        *((form.kernel, *one) for one in form.constants if one[0] in SIZES),
    }


def launches(case: Any) -> tuple[planner.KernelLaunch, ...]:
    return plan(case.geometry, *case.alignments, H200.limits)


def test_the_table_reaches_every_kernel_and_mode_that_the_planner_can_choose() -> None:
    required = {
        mode for run in forms.sweep(False) for one in run.case.launches for mode in modes(one)
    }
    reached = {mode for case in CASES for one in launches(case) for mode in modes(one)}
    assert len(required) > 40
    assert required - reached == set()
    pairs = {(one.code.kernel, case.mode) for case in CASES for one in launches(case)}
    assert len(pairs) == 4 * len(Mode)
    assert 60 <= len(CASES) <= 80


@each(name=[case.name for case in CASES[::2]])
def test_each_split_is_exact_on_the_cpu(name: str) -> None:
    for case in CASES:
        if case.name == name:
            program = find_backend("cpu").compile(case.geometry)
            assert compare(case, program.bind, HostMemory()).difference is None


@pytest.mark.gpu
@each(name=[case.name for case in CASES[::2]])
def test_each_split_is_exact_on_the_gpu(name: str) -> None:
    for case in CASES:
        if case.name == name:
            program = find_backend("cuda:0").compile(case.geometry)
            assert compare(case, program.bind, GpuMemory(0)).difference is None


def test_common_cuh_has_exactly_one_store_to_inject_faults_into() -> None:
    assert (ROOT / "cuda" / "common.cuh").read_text().count(STORE) == 1


def test_without_a_gpu_the_cpu_is_tested_and_the_report_has_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> None:
        raise dml.UnsupportedError("why. Fix: this")

    monkeypatch.setattr(driver, "load", refuse)
    monkeypatch.setattr(libcuda, "driver_version", lambda: None)
    test = dml.selftest(seconds=0)
    assert (test.status, test.device, test.ok) == (0, "cpu", True)
    assert "warn  GPU                why. Fix: this" in str(test)
    assert str(test).splitlines()[-1] == "exact on the CPU: 71 of 71 splits"
    assert max(map(len, str(test).splitlines())) <= 80
    # With a driver, a card was meant to be used.
    monkeypatch.setattr(libcuda, "driver_version", lambda: 13000)
    assert dml.selftest(seconds=0).status == 2
    assert dml.selftest("cuda:0").status == 2


@pytest.mark.parametrize("offset", [0, -1, 1000])
def test_a_changed_byte_inside_or_outside_an_output_is_the_first_difference(offset: int) -> None:
    case = CASES[0]
    program = find_backend("cpu").compile(case.geometry)

    def bind(src: int, dsts: Any) -> Any:
        copy = program.bind(src, dsts)

        def wrong(stream: Any = None) -> None:
            copy(stream)
            ctypes.c_ubyte.from_address(dsts[1] + offset).value ^= 0xFF

        return wrong

    difference = compare(case, bind, HostMemory()).difference
    assert difference is not None
    assert (difference.tensor, difference.byte) == ("output 1", offset)
    assert difference.expected ^ difference.actual == 0xFF


def test_rows_beyond_4_gib_are_read() -> None:
    assert FAR.source.size > 1 << 32
    memory = HostMemory()
    far = memory.upload_spread_rows(NEAR.data().reshape(NEAR.shape), FAR.source)
    if far is None:
        pytest.skip("the system lends no 4.3 GB")
    program = find_backend("cpu").compile(FAR.geometry)
    assert compare(NEAR, program.bind, memory, far.address).difference is None
    assert compare(NEAR, program.bind, memory, far.address + 1).difference is not None


def test_the_report_says_that_memory_is_too_small_for_rows_beyond_4_gib(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HostMemory, "upload_spread_rows", lambda *_: None)
    test = dml.selftest("cpu", seconds=0)
    assert test.ok
    assert len(test.results) == len(CASES)
    assert "warn  beyond 4 GiB       there is no room for 4.3 GB; not tested" in str(test)
