"""The DxDispatch models of the cases, run by our own front end, and what is kept of a run."""

import hashlib
import json
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dmlsplit.conformance import run_dxdispatch
from dmlsplit.conformance.byte_cases import output_hashes
from dmlsplit.conformance.case import expected
from dmlsplit.conformance.cases import all_cases
from dmlsplit.conformance.kit import dispatched_models
from dmlsplit.device import Device
from dmlsplit.directml.levels import FeatureLevel
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.frontends.dxdispatch import run
from tests.conformance.stand_in import build as stand_in

ROOT = Path(__file__).parents[2]
TEXTS, LISTED = dispatched_models()
CASES = {case.id: case for case in all_cases()}

# A program with the options of dxdispatch.exe that runs a model with our own front end.
PROGRAM = f"""#!{sys.executable}
import os, pathlib, sys
sys.path.insert(0, {str(ROOT)!r})
from dmlsplit.device import Device
from dmlsplit.errors import DmlError
from dmlsplit.frontends.dxdispatch import run
model, *options = sys.argv[1:]
assert options[:4] == ["-a", "Basic", "--dml_feature_level", "2.0"], options
folder = pathlib.Path(options[options.index("--output_path") + 1])
assert folder == pathlib.Path(model).parent == pathlib.Path.cwd()
fault = os.environ.get("DXDISPATCH_FAULT")
try:
    run(model, Device("cpu"))
except DmlError as error:
    sys.exit("Failed to execute the model: " + str(error))
files = sorted(folder.glob("outputs/*"))
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
    path = tmp_path / "dxdispatch.exe"
    path.write_text(PROGRAM)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[FeatureLevel], None]:
    """Let models run here, without a process for each."""

    def use(level: FeatureLevel) -> None:
        device = Device("cpu", feature_level=level)

        def ran(_: Path, model: Path, *__: object) -> dict[str, Any]:
            try:
                run(model, device)
            except InvalidArgumentError as error:
                if error.report is None:
                    raise
                return {"outcome": "refused", "exit": 1, "said": " ".join(error.report.rule_ids)}
            return {"outcome": "accepted", "exit": 0, "said": ""}

        monkeypatch.setattr(run_dxdispatch, "_run", ran)

    return use


SLOW_LEVELS = [pytest.param(level, marks=pytest.mark.slow) for level in ("1_0", "3_0")]


@pytest.mark.parametrize("level", ["2_1", "6_4", *SLOW_LEVELS])
def test_our_front_end_gives_what_is_expected_of_every_model(
    in_process: Callable[[FeatureLevel], None], level: str
) -> None:
    at = FeatureLevel.parse(level)
    in_process(at)
    records = run_dxdispatch.run_models(TEXTS, LISTED, Path("unused"))
    assert len(records) == len(TEXTS)
    compared = 0
    for record in records:
        wanted = {
            rule for each in record["cases"] for rule in expected(CASES[each["id"]], at).rules
        }
        assert (record["outcome"] == "accepted") == (not wanted), record["model"]
        assert set(record["said"].split()) == wanted
        for each in record["cases"] * (not wanted):
            if each["outputs"]:
                hashes = output_hashes(CASES[each["id"]])
                assert [out["sha256"] for out in each["outputs"]] == list(hashes)
                assert all(out["kept_behind"] for out in each["outputs"])
                compared += 1
    assert compared == sum(
        case.id.startswith("bytes-") and expected(case, at).accepted for case in CASES.values()
    )


def test_every_small_case_has_a_model() -> None:
    ids = {case["id"] for entry in LISTED for case in entry["cases"]}
    assert set(CASES) - ids == {
        "rule-TENSOR-ELEMENT-COUNT",
        "rule-TENSOR-SIZE-WRAP",
        "limit-total-huge",
        "limit-elements",
        "limit-index",
    }


def some(*names: str) -> list[dict[str, Any]]:
    return [entry for entry in LISTED if entry["model"].removesuffix(".json") in names]


def test_a_program_is_run_on_each_model(program: Path) -> None:
    listed = some("bytes-type-INT64", "rule-SPLIT-AXIS-SUM-less", "bind-in-place", "bind-swapped")
    records = {each["model"]: each for each in run_dxdispatch.run_models(TEXTS, listed, program)}
    assert {name: each["outcome"] for name, each in records.items()} == {
        "bytes-type-INT64.json": "accepted",
        "rule-SPLIT-AXIS-SUM-less.json": "refused",
        "bind-in-place.json": "refused",
        "bind-swapped.json": "accepted",
    }
    refused = records["rule-SPLIT-AXIS-SUM-less.json"]
    assert "DML-SPLIT-AXIS-SUM" in refused["said"]
    assert refused["exit"] == 1
    (case,) = records["bytes-type-INT64.json"]["cases"]
    hashes = output_hashes(CASES["bytes-type-INT64"])
    assert case["outputs"] == [{"sha256": each, "kept_behind": True} for each in hashes]


@pytest.mark.parametrize(
    ("fault", "first"),
    [("flip", {"kept_behind": True}), ("behind", {"kept_behind": False}), ("unwritten", None)],
)
def test_a_fault_in_an_output_is_seen(
    program: Path, monkeypatch: pytest.MonkeyPatch, fault: str, first: dict[str, Any] | None
) -> None:
    monkeypatch.setenv("DXDISPATCH_FAULT", fault)
    (record,) = run_dxdispatch.run_models(TEXTS, some("bytes-type-INT64"), program)
    wanted = output_hashes(CASES["bytes-type-INT64"])
    seen, *others = record["cases"][0]["outputs"]
    assert [each["sha256"] for each in others] == list(wanted[1:])
    if first is None:
        assert seen is None
    else:
        assert seen["kept_behind"] == first["kept_behind"]
        assert (seen["sha256"] == wanted[0]) == (fault == "behind")


@pytest.mark.parametrize(("fault", "outcome"), [("hang", "hung"), ("crash", "crashed")])
def test_a_program_that_hangs_or_crashes_is_told_apart(
    program: Path, monkeypatch: pytest.MonkeyPatch, fault: str, outcome: str
) -> None:
    monkeypatch.setenv("DXDISPATCH_FAULT", fault)
    (record,) = run_dxdispatch.run_models(TEXTS, some("bind-swapped"), program, timeout=3)
    assert record["outcome"] == outcome


def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(run_dxdispatch.UnusableError, match="No such file"):
        run_dxdispatch.run_models(TEXTS, some("bind-swapped"), tmp_path / "none.exe")


def test_the_observed_library_lies_beside_the_program(tmp_path: Path, program: Path) -> None:
    seen = {"directml": {"file": "DirectML.dll", "sha256": hashlib.sha256(b"one").hexdigest()}}
    with pytest.raises(run_dxdispatch.UnusableError, match="would load another"):
        run_dxdispatch.check_library(program, seen)
    (tmp_path / "DirectML.dll").write_bytes(b"two")
    with pytest.raises(run_dxdispatch.UnusableError, match="is not the library"):
        run_dxdispatch.check_library(program, seen)
    (tmp_path / "DirectML.dll").write_bytes(b"one")
    run_dxdispatch.check_library(program, seen)


def test_the_kit_adds_a_run_to_an_observation(
    kit: Path, library: Path, tmp_path: Path, program: Path
) -> None:
    """The kit's program, on a kit of three models; the library beside it is the observed one."""
    beside, small = tmp_path / library.name, tmp_path / "kit"
    shutil.copy(library, beside)
    shutil.copytree(kit, small)
    entries = some("bytes-type-INT64", "bind-in-place", "rule-SPLIT-OUTPUT-COUNT")
    (small / "dxdispatch.json").write_text(json.dumps({"schema": 1, "models": entries}))
    assert stand_in.probed(small, beside, tmp_path / "o.json").returncode == 0
    line = [sys.executable, "-I", str(small / "run_dxdispatch.py"), "--dxdispatch", str(program)]
    line += ["--observed", str(tmp_path / "o.json"), "-o", str(tmp_path / "with.json")]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    before, after = (stand_in.observed(tmp_path / name) for name in ("o.json", "with.json"))
    assert {**after, "dxdispatch": None} == {**before, "dxdispatch": None}
    assert [each["outcome"] for each in after["dxdispatch"]] == ["refused", "accepted", "refused"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "exists" in done.stderr
