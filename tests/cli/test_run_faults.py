"""Whatever fails or kills a run, files are old or new, and the same command starts over.

A sample of the file operations fails, with each error, and each signal arrives during some. The
slow test takes every operation of a short run, each with another fault; the exhaustive one takes
each operation with each fault.
"""

import errno
import json
import os
import random
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import zarr

from tests.faults import harness
from tests.support.dxdispatch import dispatch, model, split_desc, tensor, values, zeros
from tests.support.stores import contents

ERRORS = ["ENOSPC", "EIO", "EACCES", "EINTR"]
SIGNALS = ["SIGKILL", "SIGTERM", "SIGINT"]
FAULTS = [*ERRORS, *SIGNALS]

INPUT = np.arange(24, dtype="f4").reshape(6, 4)
OLD = np.zeros((2, 2), "i2")
NPY = ["run", "q.npy", "--axis", "1", "--split", "1,3", "-o", "out"]
ZARR = ["run", "q.zarr", "--axis", "1", "--split", "1,3", "-o", "out"]
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


@cache
def store(name: str) -> dict[str, bytes]:
    """The files of a Zarr array, which Zarr takes longer to make than a run takes."""
    data, chunks = (INPUT, (3, 2)) if name == "q.zarr" else (OLD, (1, 2))
    with tempfile.TemporaryDirectory() as folder:
        zarr.create_array(folder, data=data, chunks=chunks)
        return contents(Path(folder))


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


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
        if self.line[1] == "q.zarr":
            write(folder / "q.zarr", store("q.zarr"))
        else:
            np.save(folder / "q.npy", INPUT)
        (folder / "model.json").write_text(json.dumps(MODEL))
        for path in folder.rglob("*"):
            os.utime(path, (0, 0))  # a run waits for the clock if its input was written just now
        for name in self.targets if self.has_old else ():
            if name.endswith(".zarr"):
                write(folder / "out" / name, store("old"))
            else:
                (folder / "out" / name).write_bytes(b"old")


NPY_PIECES, ZARR_PIECES = ("q_0.npy", "q_1.npy"), ("q_0.zarr", "q_1.zarr")
CASES = {
    "npy": Case(NPY, NPY_PIECES),
    "npy over old pieces": Case([*NPY, "--overwrite"], NPY_PIECES, True),
    "zarr": Case(ZARR, ZARR_PIECES),
    "zarr over old pieces": Case([*ZARR, "--overwrite"], ZARR_PIECES, True),
    "npy to zarr": Case([*NPY, "--format", "zarr"], ZARR_PIECES),
    "dxdispatch": Case(DXDISPATCH, ("b.npy", "c.dat")),
    "dxdispatch over old files": Case(DXDISPATCH, ("b.npy", "c.dat"), True),
}


@pytest.fixture(scope="module")
def runs(builds: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Runs]:
    if not shutil.which("g++"):
        pytest.skip("g++ is not installed")
    with harness.running(builds, tmp_path_factory.mktemp("scratch")) as found:
        yield found


Found = dict[str, bytes] | None


def found(folder: Path, case: Case) -> list[Found]:
    """The bytes of each target; None if it does not exist."""
    return [target_bytes(folder / "out" / name) for name in case.targets]


def target_bytes(path: Path) -> Found:
    if path.is_dir():
        return contents(path)
    return {"": path.read_bytes()} if path.exists() else None


@dataclass(frozen=True)
class Expected:
    """The files before and after a complete run, and how many calls it makes."""

    input: dict[str, bytes]
    old: list[Found]
    new: list[Found]
    calls: int


def expected(runs: harness.Runs, case: Case, folder: Path) -> Expected:
    case.prepare(folder)
    old = found(folder, case)
    whole = runs.run(case.line, folder)
    assert (whole.status, whole.err) == (0, "")
    new = found(folder, case)
    assert not [one for one, other in zip(old, new, strict=True) if one == other]
    return Expected(the_input(folder), old, new, whole.calls)


def the_input(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in contents(folder).items() if not name.startswith("out/")}


def check(
    runs: harness.Runs, case: Case, folder: Path, right: Expected, at: int, fault: str
) -> None:
    """Run once with a fault and once without."""
    case.prepare(folder)
    if fault in ERRORS:
        outcome = runs.run(case.line, folder, at, error=getattr(errno, fault))
    else:
        outcome = runs.run(case.line, folder, at, signal=getattr(signal, fault))
    place = f"{fault} at call {at}, {outcome.failed}: {outcome.status} {outcome.err}"
    left = found(folder, case)
    pairs = zip(left, right.old, right.new, strict=True)
    assert all(target in (old, new) for target, old, new in pairs), place
    assert the_input(folder) == right.input, place
    if outcome.failed and fault in ERRORS:
        assert outcome.status in (0, 2), place
        if outcome.status:
            named = re.fullmatch(r"dmlsplit: error: .*(out|q\.|json).*\n", outcome.err)
            assert named, place
            assert not re.search("unfinished/[01]-", outcome.err), place
    elif outcome.failed:
        number = getattr(signal, fault)
        assert outcome.status in ((-number,) if fault == "SIGKILL" else (0, 128 + number)), place
        assert outcome.err.count("\n") <= 1, place
    if outcome.status == 0:
        assert left == right.new, place
    again = runs.run(case.line, folder)
    if any(left) and case.line[-1] != "--overwrite":
        assert again.status == 2, place
        assert "exists; it is not replaced. Fix: add --overwrite" in again.err, place
        again = runs.run([*case.line, "--overwrite"], folder)
    assert (again.status, again.err) == (0, ""), f"{place} then {again}"
    assert found(folder, case) == right.new, place
    assert not [entry for entry in folder.rglob(".*") if entry.name != ".zarray"], place
    assert not list(folder.rglob("*.partial")), place


def sample(name: str, count: int, runs: harness.Runs, folder: Path) -> None:
    """Faults in turn, at `count` calls that are spread over the run."""
    right = expected(runs, CASES[name], folder)
    count, chosen = min(count, right.calls), random.Random(name)
    for number in range(count):
        at = 1 + (number * right.calls + chosen.randrange(right.calls)) // count
        check(runs, CASES[name], folder, right, at, FAULTS[number % len(FAULTS)])


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
    sample(name, 8 if "zarr" in name else 100, runs, tmp_path / "here")


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", CASES)
def test_files_are_old_or_new_after_every_fault(
    name: str, fault: str, runs: harness.Runs, tmp_path: Path
) -> None:
    right = expected(runs, CASES[name], tmp_path / "here")
    for at in range(1, right.calls + 1):
        check(runs, CASES[name], tmp_path / "here", right, at, fault)
