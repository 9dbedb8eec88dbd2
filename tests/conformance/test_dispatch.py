"""The DxDispatch models of the cases, run by our own front end, and the record of a run."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from dmlsplit.device import Device
from dmlsplit.directml.levels import FeatureLevel
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.frontends.dxdispatch import run
from tests.conformance import probe
from tests.conformance.case import expected, output_hashes
from tests.conformance.cases import all_cases
from tests.conformance.check import compare
from tests.conformance.observation import read_observation
from tests.conformance.stand_in import build as stand_in
from tests.support import command
from tests.support.fixtures import Patch

CASES = {case.id: case for case in all_cases()}

# A program with the options of dxdispatch.exe that runs a model with our own front end.
PROGRAM = f"""
import os, pathlib, sys
sys.path.insert(0, {str(command.ROOT)!r})
from dmlsplit.device import Device
from dmlsplit.errors import DmlError
from dmlsplit.frontends.dxdispatch import run
*options, model, output_path, folder = sys.argv[1:]
assert options == ["--dml_feature_level", "2.0", "-a", "Stand-in Render Driver"], options
assert output_path == "--output_path"
assert pathlib.Path(folder) == pathlib.Path(model).parent == pathlib.Path.cwd()
fault = os.environ.get("DXDISPATCH_FAULT")
try:
    run(model, Device("cpu"))
except DmlError as error:
    sys.exit("Failed to execute the model: " + str(error))
files = sorted(pathlib.Path(folder).glob("outputs/*"))
if fault == "flip":
    data = bytearray(files[0].read_bytes()); data[0] ^= 1; files[0].write_bytes(data)
if fault == "behind":
    data = bytearray(files[0].read_bytes()); data[-1] ^= 1; files[0].write_bytes(data)
if fault == "unwritten":
    files[0].unlink()
if fault == "crash":
    os.abort()
if fault == "hang":
    import time; time.sleep(60)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return command.program(tmp_path / "dxdispatch.exe", "-c", PROGRAM)


def some(kit: Path, *names: str) -> list[dict[str, Any]]:
    listed = json.loads((kit / "cases.json").read_text())["cases"]
    return [case for case in listed if not names or case["id"] in names]


def dispatched(kit: Path, program: Path, *names: str, timeout: float = 60) -> dict[str, Any]:
    options = ["-a", "Stand-in Render Driver"]
    ran = probe.run_models(kit, some(kit, *names), program, options, timeout)
    return {name: record["dispatched"] for name, record in ran}


SLOW_LEVELS = [pytest.param(level, marks=pytest.mark.slow) for level in ("1_0", "2_1", "3_0")]


@pytest.mark.parametrize("level", ["6_4", *SLOW_LEVELS])
def test_the_dxdispatch_front_end_gives_the_expected_result_for_every_model(
    kit: Path, monkeypatch: Patch, level: str
) -> None:
    device = Device("cpu", feature_level=level)

    def ran(line: list[str], *_: object) -> dict[str, Any]:
        """Run a model in this process, which is much faster."""
        try:
            run(line[-3], device)
        except InvalidArgumentError as error:
            return {"outcome": "refused", "rules": getattr(error.report, "rule_ids", error)}
        return {"outcome": "accepted", "rules": ()}

    monkeypatch.setattr(probe, "_run", ran)
    monkeypatch.setattr(os, "fsync", lambda file: None)  # hundreds of files are only read again
    compared = set()
    for name, record in dispatched(kit, Path("unused")).items():
        now = expected(CASES[name], FeatureLevel.parse(level))
        assert (record["outcome"], record["rules"]) == (now.verdict, now.rules)
        if not now.rules and record["outputs"]:
            hashes = output_hashes(CASES[name])
            assert record["outputs"] == [{"sha256": each, "kept_behind": True} for each in hashes]
            compared.add(name)
    accepted = {
        name for name, case in CASES.items() if not expected(case, device.feature_level).rules
    }
    assert compared == {name for name in accepted if name.startswith("bytes-")}


@pytest.mark.parametrize(
    ("fault", "first"), [("flip", (False, True)), ("behind", (True, False)), ("unwritten", None)]
)
def test_a_fault_in_one_output_is_recorded_for_that_output_alone(
    kit: Path, program: Path, monkeypatch: Patch, fault: str, first: Any
) -> None:
    monkeypatch.setenv("DXDISPATCH_FAULT", fault)
    name = "bytes-type-INT64"
    found = dispatched(kit, program, name)[name]["outputs"]
    outputs = zip(found, output_hashes(CASES[name]), strict=True)
    seen = [each and (each["sha256"] == right, each["kept_behind"]) for each, right in outputs]
    assert seen == [first, (True, True), (True, True)]


@pytest.mark.parametrize(
    ("fault", "seconds", "outcome"), [("hang", 0.5, "hung"), ("crash", 60, "crashed")]
)
def test_a_program_that_hangs_and_one_that_crashes_have_different_outcomes(
    kit: Path, program: Path, monkeypatch: Patch, fault: str, seconds: float, outcome: str
) -> None:
    monkeypatch.setenv("DXDISPATCH_FAULT", fault)
    found = dispatched(kit, program, "bind-swapped", timeout=seconds)
    assert found["bind-swapped"]["outcome"] == outcome


def test_an_observation_can_include_a_program(
    kit: Path, library: Path, tmp_path: Path, program: Path
) -> None:
    """With a kit of four cases. The library beside the program must be the observed one."""
    beside, small = tmp_path / library.name, tmp_path / "kit"
    shutil.copytree(kit, small)
    names = ("bytes-type-INT64", "bind-in-place", "rule-SPLIT-OUTPUT-COUNT", "limit-index")
    listed = json.loads((kit / "cases.json").read_text()) | {"cases": some(kit, *names)}
    (small / "cases.json").write_text(json.dumps(listed))
    line = (small, library, tmp_path / "o.json", "--dxdispatch", str(program))
    for content in (None, b"another"):
        if content:
            beside.write_bytes(content)
        done = stand_in.probed(*line)
        assert (done.returncode, done.stderr) == (
            2,
            f"error: {beside} is not a copy of {library}. Fix: copy that file there\n",
        )
    shutil.copy(library, beside)
    done = stand_in.probed(*line)
    assert (done.returncode, done.stderr) == (0, "")
    seen = stand_in.observed(tmp_path / "o.json")["cases"]
    asked = [case["id"] for case in seen if "outcome" in case]
    assert asked == ["rule-SPLIT-OUTPUT-COUNT", "limit-index", "bytes-type-INT64"]
    ran = [case["id"] for case in seen if "dispatched" in case]
    assert ran == ["rule-SPLIT-OUTPUT-COUNT", "bytes-type-INT64", "bind-in-place"]
    (refused,) = (case["dispatched"] for case in seen if case["id"] == "rule-SPLIT-OUTPUT-COUNT")
    assert (refused["outcome"], refused["exit"]) == ("refused", 1)
    assert "model: rule-SPLIT-OUTPUT-COUNT.json: " in refused["said"]  # without its folder
    assert compare(read_observation(tmp_path / "o.json")).differences == ()


def test_a_program_that_cannot_be_started_is_an_error(kit: Path, tmp_path: Path) -> None:
    with pytest.raises(probe.UnusableError, match="No such file"):
        dispatched(kit, tmp_path / "none.exe", "bind-swapped")
