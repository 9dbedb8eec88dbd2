"""The commands that the fixes of runtimes print are run, and the next verdict is better."""

import os
from pathlib import Path

import onnx
import onnx.version_converter
import pytest

from dmlsplit.frontends.onnx import scan
from dmlsplit.lint.verdict import Outcome
from tests.support.advice import COMMAND, FUNCTION, carry_out, external
from tests.support.assessments import verdict_of
from tests.support.models import halves, one_split, parsed

RUNS = Outcome.RUNS


@pytest.fixture(autouse=True)
def _in(here: Path) -> None:
    """Commands name their files as the report does."""


def followed(content: onnx.ModelProto, folder: Path, **target_options: str) -> Outcome:
    """The outcome once every command of the fix has been run, each on what the last one wrote."""
    verdict = verdict_of(content, Path(os.curdir), **target_options)
    text = verdict.fix or " ".join(v.message for v in verdict.diagnostics)
    commands = COMMAND.findall(text)
    assert commands, text
    model_file = "model.onnx"
    for command in commands:
        before = set(Path().glob("*.onnx"))
        carry_out(command.replace("'model.onnx'", f"'{model_file}'"))
        (model_file,) = map(str, set(Path().glob("*.onnx")) - before)
    return verdict_of(
        onnx.load(model_file, load_external_data=False), folder, **target_options
    ).outcome


@pytest.mark.parametrize(
    ("content", "target_options"),
    [
        (halves(26, 13), {"ort": "1.24"}),
        (halves(18, 10), {"ort": "1.17"}),
        (halves(21, 10), {"ort": "1.16"}),  # opset and IR version
        (halves(10, 4), {"winml": "19041"}),
        (halves(13, 7), {"winml": "22000"}),
        (halves(13, 7), {"winml": "22621"}),
        (halves(13, 7), {"ort": "1.10"}),
        (external(), {"ort": ""}),
    ],
)
def test_a_converted_model_runs_on_directml(
    content: onnx.ModelProto, target_options: dict[str, str], tmp_path: Path
) -> None:
    if content.graph.initializer:
        options = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
        onnx.save(content, "model.onnx", **options)
        content = onnx.load("model.onnx", load_external_data=False)
    assert verdict_of(content, tmp_path, **target_options).outcome is not RUNS
    assert followed(content, tmp_path, **target_options) is RUNS


@pytest.mark.parametrize(
    ("content", "target_options", "opset"),
    [
        (halves(1, 3), {"ort": ""}, 13),
        (halves(18, 8), {"ort": "1.15"}, 17),
        (halves(13, 4), {"winml": "19041"}, 9),
    ],
)
def test_where_onnx_cannot_convert_a_split_the_fix_is_to_export_the_model_again(
    content: onnx.ModelProto, target_options: dict[str, str], opset: int, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError, match="No Adapter From Version"):
        onnx.version_converter.convert_version(content, opset)
    verdict = verdict_of(content, tmp_path, **target_options)
    assert f"export the model again at opset {opset}" in verdict.fix


@pytest.mark.parametrize(
    "content",
    [
        one_split(onnx.TensorProto.FLOAT, ("batch", 4), sizes=(1, 1), axis=0),
        one_split(onnx.TensorProto.FLOAT, ("batch", 4), sizes=(1, 1), axis=0, opset=13),
        # In a branch, the input of the split is a value of the graph around it.
        parsed(
            "(float[batch,4] x, bool flag) => (float[] y) { o = Identity (x) y = If (flag) <"
            "then_branch = t () => (float[] y) { s = Constant <value = int64[2] {1, 1}> () "
            "y, z = Split <axis = 0> (o, s) },"
            "else_branch = e () => (float[] y) { y = Identity (x) }> }"
        ),
    ],
)
def test_a_split_whose_equal_sizes_are_removed_takes_other_sizes(
    content: onnx.ModelProto, tmp_path: Path
) -> None:
    content.ir_version = 8
    before = verdict_of(content, tmp_path, ort="")
    assert (before.outcome, before.site.frozen) == (RUNS, ("batch", 2))
    assert followed(content, tmp_path, ort="") is Outcome.UNKNOWN  # any size, so none is known
    (site,) = scan(tmp_path / "model.onnx")
    assert site.frozen is None


def test_a_split_in_a_function_is_inlined_before_its_sizes_are_removed(tmp_path: Path) -> None:
    body = (
        "(a) => (b, c) { s = Constant <value = int64[2] {1, 1}> () b, c = Split <axis = 0> (a, s) }"
    )
    content = parsed("(float[batch] x) => (float[] p) { p, q = local.Cut (x) }", FUNCTION + body)
    (warning,) = verdict_of(content, tmp_path, ort="").diagnostics
    assert "inline the functions, then validate again" in warning.message


def test_unequal_sizes_have_to_be_exported_again(tmp_path: Path) -> None:
    body = "{ s = Constant <value = int64[2] {2, 4}> () a, b = Split <axis = 0> (x, s) }"
    verdict = verdict_of(parsed(f"(float[batch] x) => (float[] a) {body}"), tmp_path, ort="")
    (warning,) = verdict.diagnostics
    start = "works only for batch=6: the exporter wrote the sizes as constants. Fix: "
    assert warning.message.startswith(start)
    assert warning.message.endswith("or declare the axis as 6")
