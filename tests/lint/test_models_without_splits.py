"""A model without a split: whether the runtime loads it is still said, in every report."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import onnx
import pytest

from dmlsplit.cli import main
from dmlsplit.lint.check import assess
from dmlsplit.lint.report import FORMATS, render
from dmlsplit.lint.report.sarif import sarif_report
from dmlsplit.lint.target import resolve_target
from dmlsplit.lint.verdict import Assessment, Outcome
from dmlsplit.models.discovery import scan_paths
from dmlsplit.models.site import OnnxModel
from tests.support.assessments import NAMES
from tests.support.command import save
from tests.support.fixtures import Capsys
from tests.support.models import one_split, parsed, parsed_at, without_split
from tests.support.sarif_schema import check_log

NOT_LOADED, UNKNOWN = Outcome.NOT_LOADED, Outcome.UNKNOWN


def assessed(content: onnx.ModelProto, folder: Path, **target_options: str) -> Assessment:
    onnx.save(content, folder / "model.onnx")
    scan = scan_paths([str(folder / "model.onnx")])
    return assess((), resolve_target(**target_options), without_splits=scan.without_splits)


@pytest.mark.parametrize(
    ("opset", "ir", "target_options", "outcome", "rules"),
    [
        (19, 9, {"ort": "1.15"}, None, []),
        (20, 9, {"ort": "1.15"}, NOT_LOADED, ["ORT-OPSET"]),
        (19, 10, {"ort": "1.15"}, NOT_LOADED, ["ORT-IR-VERSION"]),
        (26, 13, {"ort": "1.15"}, NOT_LOADED, ["ORT-OPSET", "ORT-IR-VERSION"]),
        (26, 13, {"winml": "2.5"}, None, []),
        (13, 7, {"winml": "19041"}, NOT_LOADED, ["ORT-OPSET", "ORT-NOT-KNOWN"]),
        (12, 7, {"winml": "22621"}, None, []),
        (13, 7, {"winml": "22621"}, UNKNOWN, ["ORT-NOT-KNOWN"]),
        # An application that calls DirectML directly does not load models.
        (26, 13, {"windows": "19041"}, None, []),
    ],
)
def test_a_model_without_a_split_loads_or_not(
    opset: int,
    ir: int,
    target_options: dict[str, str],
    outcome: Outcome | None,
    rules: list[str],
    tmp_path: Path,
) -> None:
    report = assessed(without_split(opset, ir), tmp_path, **target_options)
    assert [model.outcome for model in report.models] == ([outcome] if outcome else [])
    assert [v.rule.id for model in report.models for v in model.diagnostics] == rules
    assert report.accepted is (outcome is not NOT_LOADED)


def test_the_fix_is_a_release_that_loads_the_model_or_a_conversion(tmp_path: Path) -> None:
    (model,) = assessed(without_split(20, 9), tmp_path, ort="1.15").models
    (fix,) = model.fixes
    assert fix.startswith(
        "use ONNX Runtime 1.17 or later; or convert the model to opset 19: python -c"
    )


def test_a_declared_type_that_contradicts_a_node_keeps_it_from_loading(tmp_path: Path) -> None:
    content = parsed("(float[8] x) => (int32[8] y) { y = Neg (x) }")
    (model,) = assessed(content, tmp_path, ort="").models
    assert [v.rule.id for v in model.diagnostics] == ["SPLIT-MODEL-INVALID"]


def test_a_model_with_a_split_has_the_verdict_of_its_split_only(tmp_path: Path) -> None:
    onnx.save(parsed_at(26, 13, "[cut] a, b = Split <axis = 1, num_outputs = 2> (x)"),
              tmp_path / "m.onnx")  # fmt: skip
    assert not scan_paths([str(tmp_path)]).without_splits


def of(*names: str) -> Assessment:
    models = [OnnxModel(name, 26, 13) for name in names]
    return assess((), resolve_target(ort="1.15"), without_splits=models)


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_has_the_verdict_of_a_model_and_its_fix(form: str) -> None:
    text = " ".join(render(of("a.onnx"), form).split())
    assert "the model does not load" in text
    assert "ORT-OPSET" in text
    assert "use Windows ML" in text or "use ONNX Runtime" in text
    assert "no splits found" not in text


@pytest.mark.parametrize("name", NAMES)
def test_the_name_of_a_file_cannot_change_a_report(name: str) -> None:
    report = of(name, "b.onnx")
    check_log(json.loads(sarif_report(report)))
    assert len(list(ET.fromstring(render(report, "junit")).iter("failure"))) == 2
    assert render(report, "github").count("\n") == 1


def test_json_lists_the_models_that_do_not_load() -> None:
    (model,) = json.loads(render(of("a.onnx"), "json"))["models"]
    assert (model["file"], model["verdict"]) == ("a.onnx", "the model does not load")
    assert [diagnostic["effect"] for diagnostic in model["diagnostics"]] == ["load", "load"]


def test_the_totals_of_a_folder_count_models_that_do_not_load(here: Path, capsys: Capsys) -> None:
    save("a.onnx", without_split(26, 13))
    save("b.onnx", one_split(1, (6,), sizes=(2, 4), axis=0))
    assert main(["validate", ".", "--ort", "1.18"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "2 models: 1 with all splits on DirectML; 1 not loaded" in lines


def test_the_exit_status_follows_the_verdict_of_a_model(here: Path, capsys: Capsys) -> None:
    save("m.onnx", without_split(13, 7))
    for line, status in (
        ("--winml 19041", 1),
        ("--winml 22621", 0),
        ("--winml 22621 --fail-on unknown", 1),
        ("--ort", 0),
    ):
        assert main(["validate", "m.onnx", *line.split()]) == status, line
    assert "no splits found" in capsys.readouterr().out  # of the last one


def test_quiet_shows_a_model_that_does_not_load(here: Path, capsys: Capsys) -> None:
    save("m.onnx", without_split(13, 7))
    assert main(["validate", "m.onnx", "--winml", "19041", "--quiet"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("error[ORT-OPSET] the model has opset 13")
    assert "  --> m.onnx" in lines
    assert "\n  the model does not load " in "\n".join(lines)


def test_a_baseline_has_the_models_that_do_not_load(here: Path) -> None:
    save("a.onnx", without_split(26, 13))
    line = "validate . --ort 1.15 --baseline known.json".split()
    assert [main(line), main(line)] == [1, 0]
    save("b.onnx", without_split(26, 13))
    assert main(line) == 1
