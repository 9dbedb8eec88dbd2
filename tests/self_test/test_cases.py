"""The splits take every path that the planner can choose; the comparison works on the CPU."""

import ctypes
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import count
from math import gcd
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

import dmlsplit as dml
from dmlsplit.backends.cpu.engine import CpuBackend
from dmlsplit.backends.cuda import cupy_driver as driver
from dmlsplit.backends.cuda import libcuda
from dmlsplit.backends.cuda.gpus import H200, find_gpu
from dmlsplit.backends.cuda.launch import VECTOR, DeviceLimits, KernelLaunch
from dmlsplit.backends.find import find_backend
from dmlsplit.geometry import SplitGeometry
from dmlsplit.self_test import beyond, large, stages
from dmlsplit.self_test.byte_comparison import compare
from dmlsplit.self_test.case import Case, Mode
from dmlsplit.self_test.cases import LAYOUTS, cases
from dmlsplit.self_test.kernels import STORE, case_bind, planned
from dmlsplit.self_test.memory import GpuMemory, HostMemory
from dmlsplit.self_test.paths import Choice, Pair, pairs_of
from dmlsplit.self_test.speed import MIN_BYTES, WORKLOADS
from tests.proofs import adversary, forms
from tests.support.command import ROOT
from tests.support.each import each
from tests.support.large_splits import LARGE

GPU_NAMES = ("H200", "B200", "T4", "RTX 5090")
# Constants with a size of an element, all of whose values the planner chooses from.
SIZES = {"kUnit", "kPartBytes", "kStep"}
LAYOUTS_BY_NAME = {case.name: case for case in LAYOUTS}


@cache
def cases_of(name: str) -> list[Case]:
    """The splits for a GPU."""
    return list(cases(find_gpu(name).limits))


@cache
def pairs_taken(name: str) -> set[Pair]:
    """The pairs of choices that all splits for a GPU make, those beyond 4 GiB included."""
    splits = [*cases_of(name), *beyond.large_cases(), *(far for _, far in beyond.FAR)]
    limits = find_gpu(name).limits
    return pairs_of(launch for case in splits for launch in planned(case, limits))


def choices(pairs: Iterable[Pair]) -> set[tuple[str, Choice]]:
    """What is chosen in any pair."""
    return {(kernel, kernel_launch) for kernel, *pair in pairs for kernel_launch in pair}


def sizes(launch: KernelLaunch) -> set[tuple[Any, ...]]:
    """The sizes of a kernel's elements and directions of its steps."""
    form = forms.form_of(launch)
    return {
        (form.kernel, *kernel_launch)
        for kernel_launch in form.constants
        if kernel_launch[0] in SIZES
    }


def users_launches(limits: DeviceLimits) -> Iterator[KernelLaunch]:
    """Launches for what a user may split on a device: layouts of up to a GiB, and random splits."""
    for layout in LAYOUTS:
        row_bytes = max(1, layout.source.size // layout.shape[0])
        can_grow = layout.axis != 0 and layout.source.strides[0] >= row_bytes
        for size in range(15, 31, 3) if can_grow and not layout.output_strides else ():
            case = replace(layout, shape=(1 + (5 << size - 2) // row_bytes, *layout.shape[1:]))
            yield from planned(case, limits)
    few = map(adversary.case, range(40))
    large = [split for name, split in LARGE.items() if name.startswith("workload")]
    for split in (*large, *(case for case in few if case.limits.parameter_bytes > 9000)):
        yield from replace(split, limits=limits).launches


@each(name=GPU_NAMES)
def test_the_splits_take_the_paths_that_users_splits_take_on_a_gpu(name: str) -> None:
    """Every choice of a path, and nearly all pairs of choices."""
    limits = find_gpu(name).limits
    needed_pairs = pairs_of(users_launches(limits))
    assert len(needed_pairs) > 200
    assert choices(needed_pairs) <= choices(pairs_taken(name))
    missing = needed_pairs - pairs_taken(name)
    assert len(missing) <= len(needed_pairs) // 50, missing


@each(name=GPU_NAMES)
def test_the_splits_take_every_path_that_arguments_choose(name: str) -> None:
    required_choices = {
        *(("tile", ("rounds", rounds)) for rounds in (1, 2, 4)),
        *(("rows", ("rounds", rounds)) for rounds in (1, 2, 4)),
        *(("rows", (name, 1)) for name in ("many chunks", "shorter last chunk", "many tiles")),
        *(("tile", ("full tiles", count)) for count in (0, 1, 2)),
        *(("tile", (name, value)) for name in ("rest", "tile of ends") for value in (0, 1)),
        ("tile", ("groups", 2)),
        *(("transpose", ("loops", depth)) for depth in range(7)),
        *(("strided", ("loops", depth)) for depth in range(1, 9)),
    }
    assert required_choices <= choices(pairs_taken(name))


def test_each_kernel_copies_every_number_of_rows_modulo_64() -> None:
    rows: dict[str, set[int]] = {}
    for case in cases_of("H200"):
        for launch in planned(case, H200.limits):
            rows.setdefault(launch.code.kernel, set()).add(case.shape[0] % 64)
    assert set(rows) == {"rows", "tile", "transpose", "strided"}
    assert all(remainders == set(range(64)) for remainders in rows.values())


def test_each_kernel_calculates_places_beyond_4_gib() -> None:
    far = {
        kernel_launch.code.kernel
        for _, case in beyond.FAR
        for kernel_launch in planned(case, H200.limits)
    }
    large = {
        kernel_launch.code.kernel
        for case in beyond.large_cases()
        for kernel_launch in planned(case, H200.limits)
    }
    assert far == large == {"rows", "tile", "transpose", "strided"}
    assert all(case.source.size > 1 << 32 for _, case in beyond.FAR)
    for case in beyond.large_cases():
        assert max(tensor.size for tensor in case.output_tensors) > 1 << 32


def test_neighbouring_outputs_have_different_phases_unless_they_are_aligned() -> None:
    unaligned = [case for case in LAYOUTS if case.phases[1] and len(case.sizes) > 1]
    assert len(unaligned) > 15
    for case in unaligned:
        assert len({phase % VECTOR for phase in case.output_phases[:2]}) == 2
        assert gcd(VECTOR, *case.output_phases) == gcd(VECTOR, case.phases[1])


def test_the_layouts_have_every_size_and_every_mode() -> None:
    needed_pairs = {
        mode
        for run in forms.sweep(is_fine=False)
        for kernel_launch in run.case.launches
        for mode in sizes(kernel_launch)
    }
    table = [(case, planned(case, H200.limits)) for case in cases_of("H200")]
    assert {
        size for _, launches in table for kernel_launch in launches for size in sizes(kernel_launch)
    } >= needed_pairs
    pairs = {
        (kernel_launch.code.kernel, case.mode)
        for case, launches in table
        for kernel_launch in launches
    }
    assert len(pairs) == 4 * len(Mode)


def check_on_the_gpu(case: Case) -> None:
    bind = case_bind(case, find_backend("cuda:0").compile(case.geometry))
    assert compare(case, bind, GpuMemory(0)).difference is None


@pytest.mark.gpu
@each(name=LAYOUTS_BY_NAME)
def test_each_layout_is_exact_on_the_gpu(name: str) -> None:
    check_on_the_gpu(LAYOUTS_BY_NAME[name])


@pytest.mark.gpu
@pytest.mark.slow
def test_each_split_that_is_derived_from_the_layouts_is_exact_on_the_gpu() -> None:
    for case in cases(driver.load().limits(0)):
        check_on_the_gpu(case)


def test_common_cuh_has_exactly_one_store_to_inject_faults_into() -> None:
    assert (ROOT / "cuda" / "common.cuh").read_text().count(STORE) == 1


def test_without_a_gpu_the_cpu_is_tested_and_the_report_has_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusal = dml.UnsupportedError("why. Fix: this")  # a public name cannot be imported in a load
    monkeypatch.setattr(driver, "load", Mock(side_effect=refusal))
    monkeypatch.setattr(stages, "cases", lambda _: LAYOUTS)
    monkeypatch.setattr(libcuda, "driver_version", lambda: None)
    test = dml.selftest(seconds=0)
    assert (test.status, test.device, test.ok) == (0, "cpu", True)
    assert "warn  GPU                why. Fix: this" in str(test)
    assert re.fullmatch(r"exact on the CPU: (\d+) of \1 splits", str(test).splitlines()[-1])
    assert max(map(len, str(test).splitlines())) <= 80
    # With a driver, a card was meant to be used.
    monkeypatch.setattr(libcuda, "driver_version", lambda: 13000)
    assert dml.selftest(seconds=0).status == 2
    assert dml.selftest("cuda:0").status == 2


@pytest.mark.parametrize("offset", [0, -1, 1000])
def test_a_changed_byte_inside_or_outside_an_output_is_the_first_difference(offset: int) -> None:
    case = LAYOUTS[0]
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


@each(number=range(len(beyond.FAR)))
def test_rows_beyond_4_gib_are_read(number: int) -> None:
    backend, memory = find_backend("cpu"), HostMemory()
    near, far = beyond.FAR[number]
    if memory.reserve(far.source.size) is None:
        pytest.skip("the system lends no 4.6 GB")
    result = beyond._compare_far(near, far, backend, memory)
    assert result is not None
    assert result.difference is None


def test_the_report_says_that_memory_is_too_small_for_rows_beyond_4_gib(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HostMemory, "reserve", lambda *_: None)
    monkeypatch.setattr(stages, "cases", lambda _: LAYOUTS)
    test = dml.selftest("cpu", seconds=0)
    assert test.ok
    assert len(test.results) == len(LAYOUTS) + len(WORKLOADS)
    text = "6 splits of 4.3 to 4.6 GB not tested: there is no room in memory"
    assert f"warn beyond 4 GiB {text}" in " ".join(str(test).split())


@pytest.fixture
def reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs beyond 1 MiB instead of 4 GiB."""
    monkeypatch.setattr(beyond, "OUTPUT_BYTES", 1 << 20)
    monkeypatch.setattr(beyond, "MORE_BYTES", 1 << 18)


@each(number=range(len(beyond.SLICES)))
def test_every_byte_of_a_large_split_is_compared(number: int, reduced: None) -> None:
    """The middle byte of each output, and the bytes before and after it."""
    case, memory = list(beyond.large_cases())[number], HostMemory()
    source = memory.reserve(large.source_bytes(case))
    target = memory.reserve(large.target_bytes(case))
    assert source
    assert target
    bind = find_backend("cpu").compile(case.geometry).bind
    large.prepared_copy(case, bind, memory, source, target)()
    assert large.compare_outputs(case, memory, target).difference is None
    for name, start, tensor in zip(
        count(), large._output_starts(case), case.output_tensors, strict=False
    ):
        for byte in (-1, 0, tensor.size // 2, tensor.size - 1, tensor.size):
            target.owner[start + byte] ^= 1
            difference = large.compare_outputs(case, memory, target).difference
            assert difference is not None
            # A byte between two outputs is around both of them.
            is_inside = 0 <= byte < tensor.size
            assert not is_inside or difference[:2] == (f"output {name}", byte)
            target.owner[start + byte] ^= 1


def test_a_wrong_byte_of_a_speed_fails_the_self_test(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_program = CpuBackend.compile

    def reading_one_byte_late(backend: CpuBackend, geometry: SplitGeometry) -> Any:
        program = compile_program(backend, geometry)
        # The splits whose speed is measured have about MIN_BYTES, all others much less.
        if geometry.total_bytes < MIN_BYTES - (1 << 14):
            return program
        return SimpleNamespace(bind=lambda src, dsts: program.bind(src + 1, dsts))

    monkeypatch.setattr(stages, "cases", lambda _: LAYOUTS)
    monkeypatch.setattr(CpuBackend, "compile", reading_one_byte_late)
    test = dml.selftest("cpu", seconds=0)
    assert test.status == 1
    wrong_names = [result.case.name for result in test.results if result.difference]
    assert wrong_names == [workload.name for workload in WORKLOADS]
