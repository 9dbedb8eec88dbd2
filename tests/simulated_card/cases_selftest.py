"""The self-test on a card: what passes, what is caught, and what cannot run."""

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cupy
import pytest

import dmlsplit as dml
from dmlsplit.backends.cuda.engine import CudaProgram
from dmlsplit.self_test import memory
from dmlsplit.self_test.cases import CASES
from tests.simulated_card import card
from tests.support.command import ran

# One split of each kernel runs in each of two other kinds of memory.
COUNT = len(CASES) + 8
ALL = f"{COUNT} of {COUNT} splits"
GOLDEN = Path(__file__).parents[1] / "golden" / "selftest.txt"


def test_a_whole_run_is_exact_and_takes_little_processor_time() -> None:
    card.set_memory_limit(0, 64 << 20)
    begin = os.times()
    test = dml.selftest("cuda:0", seconds=1)
    used = sum(os.times()[:4]) - sum(begin[:4])
    assert test.status == 0, str(test)
    assert test.programs is not None
    assert set(test.programs.kernels) == {"rows", "tile", "strided", "transpose"}
    assert [caught for _, caught in test.wrong_kernels] == [True] * 4
    assert test.speeds[0].name == "copy"
    assert f"exact on Simulated H200 (sm_90): {ALL}" in str(test)
    assert "there is no room for 4.3 GB" in str(test)
    names = [one.case.name.rpartition(", ")[2] for one in test.outcomes[-8:]]
    assert names == ["cudaMallocAsync"] * 4 + ["managed memory"] * 4
    assert used < 30


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
                pointer.memset_async(0x5A, 1, stream)

        return both

    return wrong


@pytest.mark.parametrize(
    ("fault", "byte"), [(lambda size: 0, 0), (lambda size: size - 1, None), (lambda size: -1, -1)]
)
def test_a_wrong_byte_is_caught(
    fault: Callable[[int], int], byte: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flipped byte, a tail, and a byte before an output."""
    monkeypatch.setattr(CudaProgram, "bind", flipped(fault))
    test = dml.selftest("cuda:0", seconds=0)
    assert test.status == 1
    differences = [one.difference for one in test.outcomes if one.difference]
    assert len(differences) > len(CASES) * 3 // 4
    assert differences[0].tensor == "output 0"
    assert byte in (None, differences[0].byte)
    assert "wrong bytes on Simulated H200" in str(test)


@pytest.mark.parametrize("kernel", ["rows", "tile", "strided", "transpose"])
def test_one_wrong_kernel_is_caught(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from dmlsplit.backends.cuda.launch import Code
    from dmlsplit.self_test.wrong_kernels import STORE, WRONG

    right = Code.source.func

    def source(code: Code) -> str:
        text: str = right(code)
        return text.replace(STORE, WRONG) if code.kernel == kernel else text

    monkeypatch.setattr(Code, "source", property(source))
    test = dml.selftest("cuda:0", seconds=0)
    assert test.status == 1
    wrong = {one.case.name for one in test.outcomes if one.difference}
    assert 0 < len(wrong) < len(CASES) // 2
    assert json.loads(test.to_json())["splits"]


def test_a_stale_graph_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its replay copies what was captured, not what the input holds now."""
    captured = memory.CardMemory.capture

    def stale(self: Any, copy: Any) -> Any:
        replay, done = captured(self, copy), []

        def once() -> None:
            if not done:
                done.append(replay())

        return once

    monkeypatch.setattr(memory.CardMemory, "capture", stale)
    test = dml.selftest("cuda:0", seconds=0)
    assert test.status == 1
    assert {one.case.mode for one in test.outcomes if one.difference} == {"graph replay"}


def test_a_wrong_device_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work goes to another device's memory, and nothing is written here."""

    def elsewhere(program: CudaProgram, src: int, dsts: Sequence[int]) -> Any:
        with cupy.cuda.Device(1):
            other = cupy.cuda.alloc(256)
        return lambda stream=None: other.memset(0, 256)

    monkeypatch.setattr(CudaProgram, "bind", elsewhere)
    monkeypatch.setattr(memory.CardMemory, "capture", lambda self, copy: copy)
    test = dml.selftest("cuda:0", seconds=0)
    assert test.status == 1
    first = next(one.difference for one in test.outcomes if one.difference)
    assert (first.tensor, first.byte, first.actual) == ("output 0", 0, 0xA5)


WITHOUT_CUPY = "import sys; sys.modules['cupy'] = None\n"
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
    "the driver is too old": (LOADED, {"CARD_DRIVER": "12080"}),
    "there is no driver": (LOADED, {"CARD_DRIVER": "0"}),
    "NVRTC is missing": (LOADED + NO_NVRTC, {}),
    "NVRTC is of another major version": (LOADED, {"CARD_NVRTC_VERSION": "12"}),
    "the card is too old for CUDA 13": (LOADED, {"CARD_CAPABILITY": "70"}),
    "the card is too old": (LOADED, {"CARD_CAPABILITY": "60"}),
    "every device is hidden": (LOADED, {"CUDA_VISIBLE_DEVICES": ""}),
}


def transcript(row: str, folder: Path) -> str:
    code, environment = ROWS[row]
    if "PYTHONPATH" in environment:
        metadata = folder / "cupy_cuda12x-14.2.0.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text("Metadata-Version: 2.1\nName: cupy-cuda12x\nVersion: 14.2.0\n")
        environment = {"PYTHONPATH": os.pathsep.join((str(folder), *sys.path))}
    done = ran(sys.executable, "-W", "ignore", "-c", code + RUN, env=environment)
    assert done.returncode == 2, done.stdout + done.stderr
    assert not done.stderr, done.stderr
    stable = re.sub(r"(cupy-\w+ )\d\S*", r"\1VERSION", done.stdout)
    stable = re.sub(r"(NVRTC 12)[.]\d+", r"\1.x", stable)
    return f"# {row}\n{stable}"


@pytest.mark.parametrize("row", ROWS)
def test_a_failure_of_the_table_has_its_fix(row: str, tmp_path: Path) -> None:
    text = transcript(row, tmp_path)
    assert text in GOLDEN.read_text()
    assert "Fix: " in " ".join(text.split())


def test_a_card_newer_than_nvrtc_runs_ptx_and_is_exact() -> None:
    code = "import dmlsplit as dml; print(dml.selftest(seconds=0).summary)"
    environment = {"CARD_CAPABILITY": "130", "CARD_NVRTC": ""}
    done = ran(sys.executable, "-W", "ignore", "-c", LOADED + code, env=environment)
    assert done.stdout == f"exact on Simulated H200 (compute_121): {ALL}\n", done.stderr


def test_hidden_devices_keep_their_ordinals() -> None:
    code = "from dmlsplit.cli import main; main(['devices', '--format', 'json'])"
    line = (sys.executable, "-W", "ignore", "-c", LOADED + code)
    done = ran(*line, env={"CUDA_VISIBLE_DEVICES": "1"})
    first, second = json.loads(done.stdout)["devices"]
    assert (first["device"], first["index"], first["usable"]) == ("cuda:0", 1, True)
    assert (second["device"], second["index"], second["usable"]) == (None, 0, False)


def test_after_warm_no_call_compiles() -> None:
    x = dml.TensorDesc("UINT8", (1, 1, 70, 901))
    desc = dml.SplitOperatorDesc.from_sizes(x, axis=3, sizes=(450, 451))
    device = dml.Device("cuda")
    device.warm([desc])
    buffer = cupy.empty(70 * 901 + 3, "u1")
    with card.calls() as recorded:
        op = device.compile(desc)
        for start in (0, 1, 2):
            source = buffer[start : start + 70 * 901].reshape(1, 1, 70, 901)
            outs = [cupy.empty((1, 1, 70, size), "u1") for size in (450, 451)]
            op.bind(source, outs).dispatch()
    assert recorded.names.count("nvrtcCompileProgram") == 0
