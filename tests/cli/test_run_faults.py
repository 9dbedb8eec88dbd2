"""Whatever fails or kills a run, files are old or new, and the same command starts over.

A sample of the file operations fails, with each error, and each signal arrives during some. The
slow test takes every operation of a short run, each with another fault; the exhaustive one takes
each operation with each fault.
"""

import errno
import json
import random
import re
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.faults import harness
from tests.support.dxdispatch import dispatch, model, split_desc, tensor, values, zeros

ERRORS = ["ENOSPC", "EIO", "EACCES", "EINTR"]
SIGNALS = ["SIGKILL", "SIGTERM", "SIGINT"]
FAULTS = [*ERRORS, *SIGNALS]

INPUT = np.arange(24, dtype="f4").reshape(6, 4)
NPY = ["run", "q.npy", "--axis", "1", "--split", "1,3", "-o", "out"]
DXDISPATCH = ["run", "model.json", "--overwrite"]
PIECES = [tensor([1, 1, 3, 4])] * 2
DESC = split_desc(Axis=2, InputTensor=tensor([1, 1, 6, 4]), OutputCount=2, OutputTensors=PIECES)
MODEL = model(
    resources={"A": values("FLOAT32", {"sourcePath": "q.npy"}), "B": zeros(12), "C": zeros(12)},
    dispatchables={"cut": {"type": "DML_OPERATOR_SPLIT", "desc": DESC}},
    commands=[
        dispatch(InputTensor="A", OutputTensors=["B", "C"]),
        {"type": "writeFile", "resource": "B", "targetPath": "out/b.npy"},
        {"type": "writeFile", "resource": "C", "targetPath": "out/c.dat"},
    ],
)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@dataclass(frozen=True)
class Case:
    """A command, and the files that it writes."""

    line: list[str]
    targets: tuple[str, ...]
    has_old: bool = False  # whether the targets exist before

    def prepare(self, folder: Path) -> None:
        """Write the input, and old targets."""
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "out").mkdir(parents=True)
        np.save(folder / "q.npy", INPUT)
        (folder / "model.json").write_text(json.dumps(MODEL))
        for name in self.targets if self.has_old else ():
            (folder / "out" / name).write_bytes(b"old")


NPY_PIECES = ("q_0.npy", "q_1.npy")
CASES = {
    "npy": Case(NPY, NPY_PIECES),
    "npy over old pieces": Case([*NPY, "--overwrite"], NPY_PIECES, True),
    "dxdispatch": Case(DXDISPATCH, ("b.npy", "c.dat")),
    "dxdispatch over old files": Case(DXDISPATCH, ("b.npy", "c.dat"), True),
}


@pytest.fixture(scope="module")
def runs(builds: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Runs]:
    """Runs of commands in which an operation on a file fails, or ends the process."""
    if not shutil.which("g++"):
        pytest.skip("g++ is not installed")
    with harness.running(builds, tmp_path_factory.mktemp("scratch")) as fault_runs:
        yield fault_runs


Content = bytes | None


def target_contents(folder: Path, case: Case) -> list[Content]:
    """The bytes of each target; None if it does not exist."""
    paths = [folder / "out" / name for name in case.targets]
    return [path.read_bytes() if path.exists() else None for path in paths]


@dataclass(frozen=True)
class Expected:
    """The files before and after a complete run, and how many calls it makes."""

    input: dict[str, bytes]
    old: list[Content]
    new: list[Content]
    calls: int


def expected(runs: harness.Runs, case: Case, folder: Path) -> Expected:
    case.prepare(folder)
    old = target_contents(folder, case)
    whole = runs.run(case.line, folder)
    assert (whole.status, whole.err) == (0, "")
    new = target_contents(folder, case)
    assert not [
        old_content
        for old_content, new_content in zip(old, new, strict=True)
        if old_content == new_content
    ]
    return Expected(the_input(folder), old, new, whole.calls)


def the_input(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in contents(folder).items() if not name.startswith("out/")}


# The folder is opened to remove what it holds.
CLEAN_UP = re.compile(r"(unlink|unlinkat|rmdir) |open .*/\.dmlsplit-\w{16}$")


def check(
    runs: harness.Runs, case: Case, folder: Path, right: Expected, call_number: int, fault: str
) -> None:
    """Run once with a fault and once without."""
    case.prepare(folder)
    if fault in ERRORS:
        outcome = runs.run(case.line, folder, call_number, error=getattr(errno, fault))
    else:
        outcome = runs.run(case.line, folder, call_number, signal=getattr(signal, fault))
    place = f"{fault} at call {call_number}, {outcome.failed}: {outcome.status} {outcome.err}"
    files_left = target_contents(folder, case)
    pairs = zip(files_left, right.old, right.new, strict=True)
    assert all(target in (old, new) for target, old, new in pairs), place
    assert the_input(folder) == right.input, place
    if outcome.failed and fault in ERRORS:
        assert outcome.status in (0, 2), place
        if outcome.status:
            named_file = re.fullmatch(r"dmlsplit: error: .*(out|q\.|json).*\n", outcome.err)
            assert named_file, place
            assert ".dmlsplit-" not in outcome.err, place
    elif outcome.failed:
        number = getattr(signal, fault)
        assert outcome.status in ((-number,) if fault == "SIGKILL" else (0, 128 + number)), place
        assert outcome.err.count("\n") <= 1, place
    if outcome.status == 0:
        assert files_left == right.new, place
    hidden = list(folder.rglob(".*"))
    # A kill, or a clean-up that fails, leaves one file or folder.
    assert len([path for path in hidden if path.parent.name == "out"]) == len(hidden) <= 1, place
    assert not hidden or fault == "SIGKILL" or CLEAN_UP.match(outcome.failed), place
    for path in hidden:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    again = runs.run(case.line, folder)
    if any(files_left) and case.line[-1] != "--overwrite":
        assert again.status == 2, place
        assert "exists; it is not replaced. Fix: add --overwrite" in again.err, place
        again = runs.run([*case.line, "--overwrite"], folder)
    assert (again.status, again.err) == (0, ""), f"{place} then {again}"
    assert target_contents(folder, case) == right.new, place
    assert not list(folder.rglob(".*")), place


def sample(name: str, count: int, runs: harness.Runs, folder: Path) -> None:
    """Faults in turn, at `count` calls that are spread over the run."""
    right = expected(runs, CASES[name], folder)
    count, draw = min(count, right.calls), random.Random(name)
    for number in range(count):
        call_number = 1 + (number * right.calls + draw.randrange(right.calls)) // count
        check(runs, CASES[name], folder, right, call_number, FAULTS[number % len(FAULTS)])


@pytest.mark.parametrize("name", [name for name in CASES if " over " not in name])
def test_files_are_old_or_new_after_a_sample_of_faults(
    name: str, runs: harness.Runs, tmp_path: Path
) -> None:
    sample(name, len(FAULTS), runs, tmp_path / "here")


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_files_are_old_or_new_after_a_larger_sample_of_faults(
    name: str, runs: harness.Runs, tmp_path: Path
) -> None:
    """Every call of a run that is short."""
    sample(name, 100, runs, tmp_path / "here")


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", CASES)
def test_files_are_old_or_new_after_every_fault(
    name: str, fault: str, runs: harness.Runs, tmp_path: Path
) -> None:
    right = expected(runs, CASES[name], tmp_path / "here")
    for call_number in range(1, right.calls + 1):
        check(runs, CASES[name], tmp_path / "here", right, call_number, fault)
