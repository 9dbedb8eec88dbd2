"""The probe on a stand-in library with DirectML's binary interface, which runs without Windows."""

import ast
import json
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from dmlsplit.directml.tensor import TensorDataType, TensorFlags
from tests.conformance import probe
from tests.conformance.check import compare
from tests.conformance.conftest import Observe, edited, observed, probed


def fields_of(tensor: dict[str, Any]) -> list[Any]:
    """The fields of a tensor in the order of DML_BUFFER_TENSOR_DESC, after DML_TENSOR_TYPE."""
    return [
        probe.TENSOR_TYPE_BUFFER,
        TensorDataType[tensor["DataType"]],
        TensorFlags[tensor["Flags"]],
        *map(tensor.get, ("DimensionCount", "Sizes", "Strides")),
        *map(tensor.get, ("TotalTensorSizeInBytes", "GuaranteedBaseOffsetAlignment")),
    ]


def test_every_field_of_every_case_reaches_the_library(
    observe: Observe, kit: Path, tmp_path: Path
) -> None:
    observe(STAND_IN_LOG=str(tmp_path / "log"))
    arrived = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    expected_descriptors = [case["desc"] for case in observed(kit / "cases.json")["cases"]]
    assert len(expected_descriptors) > 160
    assert arrived == [
        [
            probe.OPERATOR_SPLIT,
            fields_of(desc["InputTensor"]),
            desc["OutputCount"],
            [fields_of(tensor) for tensor in desc["OutputTensors"]],
            desc["Axis"],
        ]
        for desc in expected_descriptors
    ]


@pytest.mark.parametrize("arguments", [[], ["--adapter", "0"]])
def test_an_observation_records_library_and_adapter(
    observe: Observe, library: Path, arguments: list[str]
) -> None:
    observation = observed(observe(level=0x5000, arguments=arguments))
    digest = sha256(library.read_bytes()).hexdigest()
    assert observation["directml"] == {"version": "1.2.3.4", "sha256": digest, "stand_in": True}
    assert (observation["adapter"], observation["level"]) == ("Stand-in Render Driver", 0x5000)
    assert all(observation["data_types"].values())
    assert len(observation["data_types"]) == 13
    assert str(library.parent) not in json.dumps(observation)


def by_id(path: Path) -> dict[str, dict[str, Any]]:
    return {case["id"]: case for case in observed(path)["cases"]}


def test_a_removed_device_does_not_change_later_answers(observe: Observe) -> None:
    cases, right = by_id(observe("remove-count")), by_id(observe())
    (spoilt,) = {name for name, case in cases.items() if "after_others" in case}
    assert list(cases).index(spoilt) == list(cases).index("rule-SPLIT-OUTPUT-COUNT") + 1
    assert cases[spoilt].pop("after_others") == "removed"
    assert cases == right


def test_a_library_that_always_crashes_does_not_end_the_probe(
    kit: Path, library: Path, tmp_path: Path
) -> None:
    few = tmp_path / "few"
    shutil.copytree(kit, few)
    edited(few / "cases.json", cases=observed(kit / "cases.json")["cases"][:5])
    process = probed(few, library, tmp_path / "o.json", STAND_IN_SWITCHES="crash-all")
    assert (process.returncode, process.stderr) == (0, "")
    cases = by_id(tmp_path / "o.json")
    assert [case["outcome"] for case in cases.values()] == ["crashed"] * 5


def test_a_case_at_which_the_library_hangs_is_recorded(observe: Observe) -> None:
    cases = by_id(observe("hang-count", arguments=["--timeout", "5"]))
    assert cases["rule-SPLIT-OUTPUT-COUNT"]["outcome"] == "hung"
    assert sum(case["outcome"] == "hung" for case in cases.values()) == 1


def test_output_of_the_library_is_not_taken_for_an_answer(observe: Observe) -> None:
    assert by_id(observe("noise")) == by_id(observe())


def test_a_library_without_levels_has_the_first_one(observe: Observe) -> None:
    path = observe("no-levels", level=0x1000)
    assert observed(path)["level"] == 0x1000
    assert compare(path).differences == ()


ON_WINDOWS_ONLY = "DirectML's licence allows its use on Windows only"


@pytest.mark.parametrize(
    ("switches", "arguments", "message"),
    [
        ("no-device", [], "DMLCreateDevice1 returned 0x887A0004"),
        ("", ["--adapter", "7"], "on adapter 7: EnumAdapters1 returned 0x887A0002"),
        ("", ["--adapter", "gpu"], "--adapter is 'gpu'; it must be warp or a number such as 0"),
        # Only a stand-in is loaded here.
        ("", ["--directml", b"MZ\x90\0 a DLL"], ON_WINDOWS_ONLY),
        ("", ["--directml", b"\x7fELF libdirectml.so"], ON_WINDOWS_ONLY),
        ("", ["--directml", probe.STAND_IN], "DirectML.dll on adapter warp: "),
        ("", ["--directml", "missing.dll"], "No such file or directory: 'missing.dll'"),
    ],
)
def test_a_probe_that_cannot_run_prints_one_line_and_writes_no_file(
    kit: Path, library: Path, tmp_path: Path, switches: str, arguments: list[Any], message: str
) -> None:
    output, content = tmp_path / "o.json", (arguments or [""])[-1]
    if isinstance(content, bytes):
        arguments = ["--directml", str(tmp_path / "DirectML.dll")]
        (tmp_path / "DirectML.dll").write_bytes(content)
    process = probed(kit, library, output, *arguments, STAND_IN_SWITCHES=switches)
    assert process.returncode == 2
    assert process.stderr.startswith("error: ")
    assert message in process.stderr
    assert process.stderr.count("\n") == 1
    assert not output.exists()


def test_an_old_observation_is_not_overwritten(observe: Observe, kit: Path, library: Path) -> None:
    path = observe()
    before = path.read_bytes()
    process = probed(kit, library, path)
    assert process.stderr == f"error: {path} exists; it is not replaced. Fix: name a new file\n"
    assert (process.returncode, path.read_bytes()) == (2, before)


def test_the_program_of_the_kit_needs_python_3_8_and_nothing_else(kit: Path) -> None:
    program = kit / "probe.py"
    tree = ast.parse(program.read_text("utf-8"), feature_version=(3, 8))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    modules = {alias.name for node in imports for alias in node.names}
    modules |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in modules} <= sys.stdlib_module_names
    process = subprocess.run(
        [sys.executable, "-I", str(program), "--help"], capture_output=True, text=True, check=True
    )
    assert "NOT RUN ON WINDOWS YET" in process.stdout.upper()
