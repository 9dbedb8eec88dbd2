"""The self-test on a card: what passes, what is caught, and what cannot run."""

import gc
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate, cycle, product
from pathlib import Path
from typing import Any

import cupy
import pytest

import dmlsplit as dml
from dmlsplit.backends.cuda import cupy_driver as driver
from dmlsplit.backends.cuda.engine import CudaProgram
from dmlsplit.backends.cuda.gpus import this_gpu
from dmlsplit.backends.cuda.nvml import device_at
from dmlsplit.backends.cuda.raw_kernels import OPTIONS, RawKernels
from dmlsplit.directml.operator import descriptor_geometry
from dmlsplit.self_test import environment, memory, speed, stages
from dmlsplit.self_test.case import Mode
from dmlsplit.self_test.cases import LAYOUTS, cases
from tests.simulated_card import card
from tests.support.command import ROOT, ran
from tests.support.gpu_arrays import another_driver

# Each layout, the first in a graph, as in a complete self-test.
FEW = [replace(case, mode=mode) for case, mode in zip(LAYOUTS, cycle(reversed(Mode)), strict=False)]
# One split of each kernel runs in two other kinds of memory; those whose speeds are measured are
# compared, too.
MORE = 8 + len(speed.WORKLOADS)
PAGE = Path(__file__).parents[2] / "docs" / "devices.md"
CHECK = re.compile(r"^(?:ok|warn|fail) +(.+?)  ", re.MULTILINE)


@pytest.fixture(autouse=True)
def _few_splits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The layouts, and some of them in other modes; a complete self-test takes a long time here."""
    if "complete" not in request.node.name:
        monkeypatch.setattr(stages, "cases", lambda _: FEW)


def test_a_complete_self_test_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARD_NVRTC", "")  # which takes as long as the rest, for sources like FEW's
    card.set_memory_limit(0, 64 << 20)
    test = dml.selftest("cuda:0", seconds=1)
    assert test.status == 0, str(test)
    assert test.programs is not None
    assert set(test.programs.kernels) == {"rows", "tile", "strided", "transpose"}
    assert [is_caught for _, is_caught in test.faulty_kernels] == [True] * 4
    page_checks = set(CHECK.findall(PAGE.read_text()))
    assert page_checks <= set(CHECK.findall(str(test)))
    assert test.speeds[0].name == "copy"
    count = len(list(cases(driver.load().limits(0)))) + MORE
    assert f"exact on Simulated H200 (sm_90): {count} of {count} splits" in str(test)
    assert "14 splits of 4.3 to " in " ".join(str(test).split())
    version = cupy.cuda.runtime.runtimeGetVersion()
    assert f"CuPy for CUDA {version // 1000}.{version % 1000 // 10}, NVRTC" in str(test)
    names = [result.case.name.rpartition(", ")[2] for result in test.results[-MORE:][:8]]
    assert names == ["cudaMallocAsync"] * 4 + ["managed memory"] * 4


def flipped(offset: Callable[[int], int]) -> Callable[..., Any]:
    """A bind whose copies are followed by one wrong byte of output 0."""
    bind = CudaProgram.bind

    def wrong(program: CudaProgram, src: int, dsts: Sequence[int]) -> Any:
        copy = bind(program, src, dsts)
        piece = program.geometry.pieces[0]
        size = piece.run_bytes
        for loop in piece.loops:
            size += (loop.size - 1) * abs(loop.output_stride)
        address = dsts[0] + offset(size)

        def both(stream: Any = None) -> None:
            copy(stream)
            pointer = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(address, 1, None), 0)
            if stream is None:
                pointer.memset(0x5A, 1)
            else:
                handle = getattr(stream, "ptr", stream)
                cupy.cuda.runtime.memsetAsync(address, 0x5A, 1, handle)

        return both

    return wrong


@pytest.mark.parametrize(
    ("fault", "byte"), [(lambda size: 0, 0), (lambda size: size - 1, None), (lambda size: -1, -1)]
)
def test_a_wrong_byte_in_or_before_an_output_fails_the_self_test(
    fault: Callable[[int], int], byte: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flipped byte, a tail, and a byte before an output."""
    monkeypatch.setattr(CudaProgram, "bind", flipped(fault))
    test = dml.selftest("cuda:0", seconds=0)
    assert test.status == 1
    differences = [result.difference for result in test.results if result.difference]
    assert len(differences) > len(FEW) * 3 // 4
    assert differences[0].tensor == "output 0"
    assert byte in (None, differences[0].byte)
    assert "wrong bytes on Simulated H200" in str(test)


def test_work_on_another_device_fails_the_self_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work goes to another device's memory, and nothing is written here."""

    def elsewhere(program: CudaProgram, src: int, dsts: Sequence[int]) -> Any:
        with cupy.cuda.Device(1):
            other_memory = cupy.cuda.alloc(256)
        return lambda stream=None: other_memory.memset(0, 256)

    monkeypatch.setattr(CudaProgram, "bind", elsewhere)
    monkeypatch.setattr(memory.GpuMemory, "capture", lambda self, copy: copy)
    test = dml.selftest("cuda:0", seconds=0)
    assert test.status == 1
    first = next(result.difference for result in test.results if result.difference)
    assert (first.tensor, first.byte, first.actual) == ("output 0", 0, 0xA5)


COUNT = len(FEW) + MORE


def test_little_free_memory_skips_the_checks_of_speeds_but_no_split() -> None:
    gc.collect()
    cupy.get_default_memory_pool().free_all_blocks()
    card.set_memory_limit(0, card.memory_used(0) + (3 << 19))
    test = dml.selftest("cuda:0", seconds=0)
    assert test.status == 0, str(test)
    assert len(test.results) == COUNT - len(speed.WORKLOADS)
    assert "speed" in {check.name for check in test.checks if check.state == "warn"}
    assert "not measured: a copy to the device" in " ".join(str(test).split())
    card.set_memory_limit(0, card.memory_used(0))
    cupy.get_default_memory_pool().free_all_blocks()
    card.set_memory_limit(0, card.memory_used(0))
    test = dml.selftest("cuda:0", seconds=0)
    assert test.status == 2
    assert "bytes are free" in test.summary


# What refutes an assumption of docs/reliability.md: the check that sees it, and the status. The
# tests above refute the others: wrong bytes, a byte outside, a wrong device.


def replaced(
    owner: Any, name: str, value: Callable[..., Any]
) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(owner, name, value)


def launches_are_refused(patch: pytest.MonkeyPatch) -> None:
    card.fail("cuLaunchKernel", 1)


def attributes_load_nothing(patch: pytest.MonkeyPatch) -> None:
    """A kernel's code is loaded by its first launch, which is captured."""
    patch.setattr(RawKernels, "_load", lambda self, _, *code: self._cupy.RawKernel(*code, OPTIONS))
    patch.setattr(driver.Driver, "attributes", lambda *_: (40, 0))


def graphs_repeat_what_was_captured(patch: pytest.MonkeyPatch) -> None:
    """A replay copies the input as it was when it was captured."""
    captured = memory.GpuMemory.capture
    patch.setattr(memory.GpuMemory, "capture", lambda *arguments: cache(captured(*arguments)))


def memory_is_aligned_less(patch: pytest.MonkeyPatch) -> None:
    malloc = cupy.get_default_memory_pool().malloc
    patch.setattr(cupy.cuda, "get_allocator", lambda: lambda size: malloc(size + 16) + 16)


def managed_memory_differs(patch: pytest.MonkeyPatch) -> None:
    read, managed = memory.GpuMemory.read, cupy.cuda.malloc_managed
    patch.setattr(
        memory.GpuMemory,
        "read",
        lambda self, *part: read(self, *part) ^ (self._allocator is managed),
    )


def nvml(**figures: Any) -> Callable[[pytest.MonkeyPatch], None]:
    """NVML's figures of the device; none if it does not list it."""

    def replace_device(patch: pytest.MonkeyPatch) -> None:
        device = device_at(0)
        assert device
        changed_device = replace(device, **figures) if figures else None
        patch.setattr(environment, "device_at", lambda _: changed_device)

    return replace_device


REFUTED: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str, int]] = {
    "first launch": (attributes_load_nothing, "could not run on Simulated H200", 2),
    "parameters": (launches_are_refused, "the launch failed on cuda:0", 2),
    "second stream": (replaced(memory.GpuMemory, "on_stream", lambda *_: None),
                      "(second stream), output 0, byte 0", 1),
    "graph replay": (graphs_repeat_what_was_captured, "(graph replay), output 0", 1),
    "compilation": (replaced(driver.Driver, "attributes", lambda *_: (255, 64)),
                    "64 bytes of local memory: speeds may be lower", 0),
    "memory": (memory_is_aligned_less, "no multiple of 256; kernels for less aligned", 0),
    "owners": (replaced(driver.Driver, "device_of", lambda *_: 0),
               "memory of devices [0, 1] is of [0, 0]. Fix: hide", 2),
    "managed memory": (managed_memory_differs, "managed memory' (", 1),
    "NVML": (nvml(), "it does not list this device", 0),
    "figures": (nvml(name="NVIDIA H200"), "documents 132 SMs and 60 MiB of L2 cache", 0),
    "MIG": (nvml(is_divided=True), "this device is a MIG instance", 0),
    "others": (nvml(processes=2), "2 other processes use the GPU", 0),
}  # fmt: skip


@pytest.mark.parametrize("belief", REFUTED)
def test_the_self_test_detects_each_wrong_assumption(
    belief: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refute, words, status = REFUTED[belief]
    gc.collect()
    refute(monkeypatch)
    with another_driver():
        test = dml.selftest("cuda:0", seconds=0)
    text = " ".join(str(test).split())
    assert words in text
    assert test.status == status, text
    lines = [check for check in test.checks if check.name == belief]
    assert all(check.state != "ok" for check in lines)


@pytest.fixture
def small_speeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Speeds are measured with 1 MiB, because the simulated card is slow."""
    monkeypatch.setattr(speed, "MAX_BYTES", 1 << 20)


def test_every_documented_assumption_has_a_check_that_exists(small_speeds: None) -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    table = page.partition("| assumption | check in `selftest` |")[2].partition("\n\n")[0]
    checks = [re.findall("`([^`]+)`", row.split("|")[2]) for row in table.splitlines()[2:]]
    assert len(checks) >= 14
    assert all(checks), "an assumption has no check"
    test = dml.selftest("cuda:0", seconds=1)
    lines = {check.name for check in test.checks} | {*REFUTED, "speed"}
    assert {name for row in checks for name in row} <= lines


def test_the_prediction_is_that_of_explain(small_speeds: None) -> None:
    test = dml.selftest("cuda:0", seconds=600)
    assert len(test.speeds) == 6
    copy, qkv, *_ = test.speeds
    x = dml.TensorDesc("UINT8", (1, 1, qkv.bytes // 12288, 12288))
    desc = dml.SplitOperatorDesc.from_sizes(x, axis=3, sizes=(8192, 2048, 2048))
    total = descriptor_geometry(desc).total_bytes
    assert qkv.predicted_seconds == this_gpu().seconds(total)
    assert copy.predicted_seconds == this_gpu().seconds(copy.bytes)
    assert qkv.share == qkv.rate / copy.rate
    assert " of the copy, " in str(test)
    assert " of the prediction" in str(test)


@pytest.mark.parametrize(("min_share", "status"), [(1e-9, 0), (1e9, 1)])
def test_only_a_strict_self_test_fails_if_a_speed_is_below_its_minimum(
    min_share: float, status: int, small_speeds: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = tuple(load._replace(min_share=min_share) for load in speed.WORKLOADS)
    monkeypatch.setattr(speed, "WORKLOADS", loads)
    monkeypatch.setattr(speed, "MIN_CHECKED_BYTES", 0)
    assert dml.selftest("cuda:0", seconds=600).status == 0
    test = dml.selftest("cuda:0", seconds=600, strict=True)
    assert test.status == status
    assert ("warn  minimum shares     query, key, value: " in str(test)) is bool(status)
    assert test.summary.startswith("too slow" if status else "exact")


def test_a_strict_self_test_fails_without_speeds_to_check() -> None:
    test = dml.selftest("cuda:0", seconds=0, strict=True)
    assert test.status == 2
    assert "only 0 of 5 speeds have a minimum. Fix: " in " ".join(str(test).split())
    assert test.summary.startswith("not proved")


@pytest.mark.parametrize("splits", [0, 5, len(FEW)])
def test_a_device_failure_ends_the_self_test_with_the_results_so_far(splits: int) -> None:
    def fail(count: int, total: int) -> None:
        if count == splits:
            card.break_device(0, 700)

    if not splits:
        card.break_device(0, 700)
    test = dml.selftest("cuda:0", seconds=0, progress=fail)
    assert test.status == 2
    assert len(test.results) == splits
    assert test.summary.startswith("could not run on ")
    assert "is gone or has failed" in " ".join(str(test).split())
    assert json.loads(test.to_json())["status"] == 2


WITHOUT_CUPY = "import sys; sys.modules['cupy'] = None\n"
CUPY_11 = """
from cupy.cuda import runtime
runtime.runtimeGetVersion = lambda: 11080
"""
CUPY_14_0 = """
import cupy
cupy.__version__ = "14.0.1"
"""
NO_HEADERS = """
import cuda.pathfinder
cuda.pathfinder.find_nvidia_header_directory = lambda name: None
"""
NO_NVRTC = """
from cupy.cuda import nvrtc
def missing(): raise RuntimeError("no libnvrtc")
nvrtc.getVersion = missing
"""
LOADED = "from tests.simulated_card import card; card.load()\n"
RUN = (
    "import sys\nfrom dmlsplit.cli import main\nsys.exit(main(['selftest', '--device', 'cuda']))\n"
)
# The table of failures: code that runs first, and the environment.
ROWS: dict[str, tuple[str, dict[str, str]]] = {
    "both extras are installed": ("", {"PYTHONPATH": "both"}),
    "CuPy is missing": (WITHOUT_CUPY, {}),
    "CuPy is of an older major version": (LOADED + CUPY_11, {}),
    "CuPy is too old": (LOADED + CUPY_14_0, {}),
    "CUDA's headers are missing": (LOADED + NO_HEADERS, {}),
    "the driver is too old": (LOADED, {"CARD_DRIVER": "12080"}),
    "there is no driver": (LOADED, {"CARD_DRIVER": "0"}),
    "NVRTC is missing": (LOADED + NO_NVRTC, {}),
    "NVRTC is of another major version": (LOADED, {"CARD_NVRTC_VERSION": "12"}),
    "the card is too old for CUDA 13": (LOADED, {"CARD_CAPABILITY": "70"}),
    "the card is too old": (LOADED, {"CARD_CAPABILITY": "60"}),
    "the card is too new for NVRTC": (LOADED, {"CARD_CAPABILITY": "107"}),
    "the card is too new for CuPy": (LOADED, {"CARD_CAPABILITY": "130"}),
    "every device is hidden": (LOADED, {"CUDA_VISIBLE_DEVICES": ""}),
}


def transcript(row: str, folder: Path) -> str:
    code, environment = ROWS[row]
    if "PYTHONPATH" in environment:
        metadata = folder / "cupy_cuda12x-14.2.0.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text("Metadata-Version: 2.1\nName: cupy-cuda12x\nVersion: 14.2.0\n")
        environment = {"PYTHONPATH": os.pathsep.join((str(folder), *sys.path))}
    process = ran(sys.executable, "-W", "ignore", "-c", code + RUN, env=environment)
    assert process.returncode == 2, process.stdout + process.stderr
    assert not process.stderr, process.stderr
    stable = re.sub(r"(cupy-\w+ )\d\S*", r"\1VERSION", process.stdout)
    stable = re.sub(r"(NVRTC 12)[.]\d+", r"\1.x", stable)
    return f"# {row}\n{stable}"


GOLDEN = Path(__file__).parents[1] / "golden" / "selftest.txt"


@pytest.mark.parametrize("row", ROWS)
def test_every_installation_failure_has_a_fix(row: str, tmp_path: Path) -> None:
    text = transcript(row, tmp_path)
    assert text in GOLDEN.read_text()
    assert "Fix: " in " ".join(text.split())


def test_a_card_too_new_for_cupy_runs_ptx_if_the_user_asks_for_it_and_is_exact() -> None:
    code = (
        "import dmlsplit as dml; from dmlsplit.self_test import cases, stages;"
        "stages.cases = lambda _: cases.LAYOUTS[::4]; print(dml.selftest(seconds=0))"
    )
    environment = {"CARD_CAPABILITY": "130", "CUPY_COMPILE_WITH_PTX": "1", "CARD_NVRTC": ""}
    process = ran(sys.executable, "-W", "ignore", "-c", LOADED + code, env=environment)
    assert "compiling for compute_121\n" in process.stdout
    last = process.stdout.splitlines()[-1]
    count = len(LAYOUTS[::4]) + MORE
    all_splits = f"{count} of {count} splits"
    assert last == f"exact on Simulated H200 (compute_121): {all_splits}", process.stderr


LISTED = """
from dmlsplit.cli import main; main(['devices', '--format', 'json'])
from dmlsplit.backends.cuda.nvml import device_at; print(device_at(0).index)
"""


@pytest.mark.parametrize(
    ("environment", "indices"),
    [
        ({}, [0, 1]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, [1, 0]),
        ({"CARD_FASTEST": "1"}, [1, 0]),
        ({"CARD_FASTEST": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, [0, 1]),
        ({"CARD_FASTEST": "1", "CUDA_VISIBLE_DEVICES": "0"}, [1]),
    ],
)
def test_devices_have_the_ordinals_of_cuda(environment: dict[str, str], indices: list[int]) -> None:
    """CUDA's name, NVML's index and usability of each device, and what `explain` plans for."""
    line = (sys.executable, "-W", "ignore", "-c", LOADED + LISTED)
    text, _, first = ran(*line, env=environment).stdout.rstrip().rpartition("\n")
    devices = [
        (device["device"], device["index"], device["usable"])
        for device in json.loads(text)["devices"]
    ]
    expected_devices = [(f"cuda:{number}", index, True) for number, index in enumerate(indices)]
    hidden = [(None, index, False) for index in (0, 1) if index not in indices]
    assert devices == expected_devices + hidden
    assert int(first) == indices[0]


@pytest.mark.parametrize("alignment", [None, 4])
def test_after_warm_no_call_compiles(alignment: int | None) -> None:
    x = dml.TensorDesc("UINT8", (1, 1, 70, 900))
    desc = dml.SplitOperatorDesc.from_sizes(x, axis=3, sizes=(448, 452))
    device = dml.Device("cuda")
    device.warm([desc], alignment)
    memory, step = cupy.empty(3 * (70 * 900 + 64), "u1"), alignment or 1
    with card.calls() as cuda_calls:
        op = device.compile(desc)
        for start, first in product((0, 8, 4, 2, 1), repeat=2):
            if start % step or first % step:
                continue
            starts = accumulate((start, 70 * 900 + 64 - start + first, 70 * 448))
            source, *outs = (
                memory[begin : begin + 70 * size].reshape(1, 1, 70, size)
                for begin, size in zip(starts, (900, 448, 452), strict=True)
            )
            op.bind(source, outs).dispatch()
            dml.split(source, (448, 452), 3, out=outs)
            dml.split(source, (448, 452), 3)
    assert cuda_calls.count("cuLaunchKernel") >= 27
    assert cuda_calls.count("nvrtcCompileProgram") == 0
