"""The probe on a stand-in library with DirectML's binary interface, which runs without Windows."""

import ast
import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from dmlsplit.directml.tensor import TensorDataType
from tests.conformance import probe
from tests.conformance.check import compare
from tests.conformance.conftest import Observe
from tests.conformance.observation import read_observation
from tests.conformance.stand_in import build as stand_in
from tests.conformance.stand_in.build import observed

TYPES = {kind.name: int(kind) for kind in TensorDataType}


def fields_of(tensor: dict[str, Any]) -> list[Any]:
    """The fields of a tensor in the order of DML_BUFFER_TENSOR_DESC, after DML_TENSOR_TYPE."""
    return [
        1,
        TYPES[tensor["DataType"]],
        {"NONE": 0, "OWNED_BY_DML": 1}[tensor["Flags"]],
        tensor["DimensionCount"],
        tensor["Sizes"],
        tensor.get("Strides"),
        tensor["TotalTensorSizeInBytes"],
        tensor["GuaranteedBaseOffsetAlignment"],
    ]


def test_every_field_of_every_case_reaches_the_library(
    observe: Observe, kit: Path, tmp_path: Path
) -> None:
    observe(STAND_IN_LOG=str(tmp_path / "log"))
    arrived = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    cases = json.loads((kit / "cases.json").read_text())["cases"]
    wanted = [case["desc"] for case in cases if case["last_stage"] != "bind"]
    assert len(wanted) > 200
    assert arrived == [
        [
            62,
            fields_of(desc["InputTensor"]),
            desc["OutputCount"],
            [fields_of(tensor) for tensor in desc["OutputTensors"]],
            desc["Axis"],
        ]
        for desc in wanted
    ]


def test_an_observation_records_library_and_adapter(observe: Observe, library: Path) -> None:
    seen = observed(observe(level=0x5000))
    assert seen["directml"] == {
        "file": library.name,
        "bytes": library.stat().st_size,
        "sha256": sha256(library.read_bytes()).hexdigest(),
        "version": "1.2.3.4",
        "stand_in": True,
    }
    assert seen["adapter"] == {
        "name": "Stand-in Render Driver",
        "vendor": 5140,
        "device": 140,
        "driver": "10.0.20348.3451",
        "software": True,
    }
    assert (seen["level"], seen["debug"]) == (0x5000, False)
    assert all(seen["data_types"].values())
    assert len(seen["data_types"]) == 13
    assert seen["system"]["build"]
    assert str(library.parent) not in json.dumps(seen)


def by_id(path: Path) -> dict[str, dict[str, Any]]:
    return {case["id"]: case for case in observed(path)["cases"]}


def test_a_removed_device_does_not_change_later_answers(observe: Observe) -> None:
    cases, right = by_id(observe("remove-count")), by_id(observe())
    (spoilt,) = {name for name, case in cases.items() if "after_others" in case}
    assert list(cases).index(spoilt) == list(cases).index("rule-SPLIT-OUTPUT-COUNT") + 1
    assert cases[spoilt].pop("after_others")["outcome"] == "removed"
    assert cases == right


def test_a_library_that_always_crashes_does_not_end_the_probe(
    observe: Observe, kit: Path, tmp_path: Path
) -> None:
    listed = json.loads((kit / "cases.json").read_text())
    (tmp_path / "few.json").write_text(json.dumps(listed | {"cases": listed["cases"][:5]}))
    cases = by_id(observe("crash-all", arguments=["--cases", str(tmp_path / "few.json")]))
    assert [(case["outcome"], case["exit"]) for case in cases.values()] == [("crashed", -6)] * 5


def test_output_of_the_library_is_not_taken_for_an_answer(observe: Observe) -> None:
    assert by_id(observe("noise")) == by_id(observe())


def test_messages_of_the_debug_layer_are_stored_with_their_case(observe: Observe) -> None:
    cases = by_id(observe(arguments=["--debug"]))
    assert cases["rule-SPLIT-AXIS-RANGE"]["debug"] == ["a message about axis 4"]
    assert "debug" not in cases["limit-stride-one"]
    assert all("debug" not in case for case in by_id(observe()).values())


def test_the_first_directml_has_neither_levels_nor_dmlcreatedevice1(
    kit: Path, builds: Path, library: Path, tmp_path: Path
) -> None:
    oldest = stand_in.built(builds, "-DFIRST_RELEASE")
    environment = {"STAND_IN_SWITCHES": "no-levels", "STAND_IN_LEVEL": "1000"}
    done = stand_in.probed(kit, oldest, tmp_path / "o.json", **environment)
    assert (done.returncode, done.stderr) == (0, "")
    seen = observed(tmp_path / "o.json")
    assert (seen["level"], seen["minimum_levels"]) == (0x1000, [])
    assert compare(read_observation(tmp_path / "o.json")).differences == ()


def test_an_adapter_is_chosen_by_number(observe: Observe) -> None:
    assert observed(observe(arguments=["--adapter", "0"]))["adapter"]["vendor"] == 5140


ON_WINDOWS_ONLY = "DirectML's licence allows its use on Windows only"


@pytest.mark.parametrize(
    ("switches", "arguments", "said"),
    [
        ("no-device", [], "DMLCreateDevice1 returned 0x887A0004"),
        ("no-debug-layer", ["--debug"], "D3D12GetDebugInterface returned 0x887A002D"),
        ("", ["--adapter", "7"], "EnumAdapters1(7) returned 0x887A0002"),
        ("", ["--adapter", "gpu"], "--adapter is 'gpu'; it must be warp or a number such as 0"),
        ("", ["--timeout", "nan"], "--timeout is nan; it must be above 0 and at most 86400 sec"),
        ("", ["--timeout", "-1"], "--timeout is -1.0"),
        ("", ["--timeout", "inf"], "--timeout is inf"),
        ("", ["--cases", "missing.json"], "No such file"),
        # Only a stand-in is loaded here.
        ("", ["--directml", b"MZ\x90\0 a DLL"], ON_WINDOWS_ONLY),
        ("", ["--directml", b"\x7fELF libdirectml.so"], ON_WINDOWS_ONLY),
        ("", ["--directml", probe.STAND_IN], " cannot be loaded: "),
        ("", ["--directml", "missing.dll"], "missing.dll: No such file or directory"),
    ],
)
def test_a_probe_that_cannot_run_prints_one_line_and_writes_no_file(
    kit: Path, library: Path, tmp_path: Path, switches: str, arguments: list[Any], said: str
) -> None:
    output, content = tmp_path / "o.json", (arguments or [""])[-1]
    if isinstance(content, bytes):
        arguments = ["--directml", str(tmp_path / "DirectML.dll")]
        (tmp_path / "DirectML.dll").write_bytes(content)
    done = stand_in.probed(kit, library, output, *arguments, STAND_IN_SWITCHES=switches)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not output.exists()


def test_an_old_observation_is_not_overwritten(observe: Observe, kit: Path, library: Path) -> None:
    path = observe()
    before = path.read_bytes()
    done = stand_in.probed(kit, library, path)
    assert (done.returncode, done.stderr) == (
        2,
        f"error: {path} exists; it is not replaced. Fix: name a new file\n",
    )
    assert path.read_bytes() == before


def test_the_program_of_the_kit_needs_python_3_8_and_nothing_else(kit: Path) -> None:
    program = kit / "probe.py"
    tree = ast.parse(program.read_text("utf-8"), feature_version=(3, 8))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    modules = {alias.name for node in imports for alias in node.names}
    modules |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in modules} <= sys.stdlib_module_names
    done = subprocess.run(
        [sys.executable, "-I", str(program), "--help"], capture_output=True, text=True, check=True
    )
    assert "NOT RUN ON WINDOWS YET" in done.stdout.upper()
