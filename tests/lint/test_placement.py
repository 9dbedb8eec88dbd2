"""Where the splits of models run, in each runtime: releases at the edges of the table."""

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto

from dmlsplit.directml.levels import NEWEST
from dmlsplit.lint.check import assess
from dmlsplit.lint.target import resolve_target
from dmlsplit.lint.verdict import Outcome
from dmlsplit.models.discovery import scan_file
from tests.support.assessments import verdict_of
from tests.support.models import constant, halves, model, one_split, sequence

NOT_LOADED, CPU, RUNS = Outcome.NOT_LOADED, Outcome.ON_CPU, Outcome.RUNS
FAILS, FOLDED, UNKNOWN = Outcome.FAILS, Outcome.FOLDED, Outcome.UNKNOWN


def of_shape(type_number: str = "") -> onnx.ModelProto:
    """A split of the shape of a value, after a Cast if the number of a type is given."""
    header = '<ir_version: 8, opset_import: ["" : 15]>'
    cast = f"t = Cast <to = {type_number}> (s)" if type_number else "t = Identity (s)"
    kind = "float16" if type_number else "int64"
    body = f"{{ s = Shape (x) {cast} a, b = Split <axis = 0> (t) }}"
    return onnx.parser.parse_model(f"{header} net (float[n,m] x) => ({kind}[] a) {body}")


def of_text(cut: str) -> onnx.ModelProto:
    """A split of strings, which run on the CPU."""
    header = '<ir_version: 8, opset_import: ["" : 18]>'
    return onnx.parser.parse_model(f"{header} net (string[4] x) => (string[] a) {{ {cut} }}")


def of_constant(cut: str, branch: str = "") -> onnx.ModelProto:
    """A split of a constant w, in the main graph or in a branch that runs if `branch` is 1."""
    header = '<ir_version: 8, opset_import: ["" : 18]>'
    nodes = f"w = Constant <value = float[4] {{1, 2, 3, 4}}> () {cut}"
    if branch:
        other = "other () => (float[] z) { z = Relu (x) }"
        bodies = f"then_branch = this () => (float[] a) {{ {nodes} }}, else_branch = {other}"
        nodes = f"c = Constant <value = bool {{{branch}}}> () y = If (c) <{bodies}>"
    return onnx.parser.parse_model(f"{header} net (float[4] x) => (float[] y) {{ {nodes} }}")


def no_sizes(shape: str) -> onnx.ModelProto:
    """A SplitToSequence into no pieces."""
    sizes = "e = Constant <value = int64[0] {}> () s = Identity (e)"
    cut = "y = SplitToSequence <axis = 0> (x, s)"
    header = '<ir_version: 7, opset_import: ["" : 11]>'
    ends = f"(float[{shape}] x) => (seq(float[]) y)"
    return onnx.parser.parse_model(f"{header} net {ends} {{ {sizes} {cut} }}")


IN_TWO = "a, b = Split <num_outputs = 2>"
IN_THREE = "a, b, c = Split <num_outputs = 3> (w)"
SIX, NINE = ("1,8" + ",1" * count for count in (4, 7))  # dimensions
CASES: list[tuple[onnx.ModelProto, dict[str, str], Outcome, str]] = [
    # What loads.
    (halves(25, 13), {"ort": "1.24"}, RUNS, ""),
    (halves(26, 13), {"ort": "1.24"}, NOT_LOADED, "ORT-OPSET"),
    (halves(26, 13), {"winml": "2.5"}, RUNS, ""),
    (halves(24, 11), {"ort": "1.23"}, NOT_LOADED, "ORT-OPSET"),
    (halves(18, 10), {"ort": "1.17"}, NOT_LOADED, "ORT-IR-VERSION"),
    (halves(18, 10), {"ort": "1.18"}, RUNS, ""),
    (halves(9, 4), {"winml": "19041"}, RUNS, ""),
    (halves(13, 7), {"winml": "19041"}, NOT_LOADED, "ORT-OPSET"),
    (halves(12, 7), {"winml": "22000"}, RUNS, ""),
    (halves(13, 7), {"winml": "22000"}, NOT_LOADED, "ORT-OPSET"),
    # What is not known: newer than what loads for certain.
    (halves(9, 5), {"winml": "19041"}, UNKNOWN, "ORT-NOT-KNOWN"),
    (halves(13, 7), {"winml": "22621"}, UNKNOWN, "ORT-NOT-KNOWN"),
    (halves(12, 7), {"winml": "22621"}, RUNS, ""),
    (halves(12, 10), {"winml": "26100"}, NOT_LOADED, "ORT-IR-VERSION"),
    (halves(11, 6, "int64"), {"winml": "22000"}, UNKNOWN, "ORT-NOT-KNOWN"),
    (sequence("float"), {"winml": "22000"}, UNKNOWN, "ORT-NOT-KNOWN"),
    # The level that the provider asks for.
    (halves(15, 8), {"ort": "1.13", "directml": "1.4.0"}, RUNS, ""),
    (halves(15, 8), {"ort": "1.14", "directml": "1.6.0"}, NOT_LOADED, "ORT-FEATURE-LEVEL"),
    (halves(15, 8), {"ort": "1.14", "directml": "1.8.0"}, RUNS, ""),
    # Kernels.
    (halves(13, 7), {"ort": "1.10"}, CPU, "ORT-OPERATOR"),
    (halves(13, 7), {"ort": "1.11"}, RUNS, ""),
    (halves(18, 8), {"ort": "1.15"}, CPU, "ORT-OPERATOR"),
    (halves(18, 8), {"ort": "1.16"}, RUNS, ""),
    # Types and ranks.
    (halves(11, 6, "int64"), {"ort": "1.9"}, CPU, "ORT-DATA-TYPE"),
    (halves(11, 6, "int64"), {"ort": "1.10"}, RUNS, ""),
    (halves(11, 6, "bool"), {"ort": "1.9"}, CPU, "ORT-DATA-TYPE"),
    (halves(11, 6, "bool"), {"ort": "1.10"}, RUNS, ""),
    (halves(11, 6, "uint8"), {"ort": "1.6"}, RUNS, ""),
    (halves(11, 6, "uint8"), {"ort": "1.3"}, UNKNOWN, "DML-LEVEL-DATA-TYPE"),
    (halves(11, 6, "int64"), {"ort": "1.10", "directml": "1.6.0"}, UNKNOWN, "DML-LEVEL-DATA-TYPE"),
    (halves(13, 7, "bfloat16"), {"ort": ""}, CPU, "ORT-DATA-TYPE"),
    (halves(13, 7, "string"), {"ort": ""}, CPU, "SPLIT-NODE-TEXT"),
    (halves(11, 6, shape=SIX), {"ort": "1.4"}, NOT_LOADED, "ORT-DIMENSION-COUNT"),
    (halves(11, 6, shape=SIX), {"ort": "1.6"}, RUNS, ""),
    (halves(13, 7, shape=NINE), {"ort": ""}, NOT_LOADED, "ORT-DIMENSION-COUNT"),
    (halves(13, 7, "string", NINE), {"ort": ""}, CPU, "SPLIT-NODE-TEXT"),
    # Sequences.
    (sequence("float"), {"ort": "1.14"}, FAILS, "ORT-SEQUENCE"),
    (sequence("float"), {"ort": "1.15"}, CPU, "ORT-SEQUENCE"),
    (sequence("float16"), {"ort": "1.16"}, NOT_LOADED, "ORT-SEQUENCE-TYPE"),
    (sequence("float16"), {"ort": "1.17"}, CPU, "ORT-SEQUENCE"),
    (sequence("bool"), {"ort": "1.22"}, NOT_LOADED, "ORT-SEQUENCE-TYPE"),
    (sequence("bool"), {"ort": "1.23"}, CPU, "ORT-SEQUENCE"),
    (sequence("uint8"), {"ort": ""}, NOT_LOADED, "ORT-SEQUENCE-TYPE"),
    (sequence("float", keepdims=0), {"ort": ""}, FAILS, "ORT-KEEPDIMS"),
    (sequence("float", "1", keepdims=0), {"ort": ""}, CPU, "ORT-SEQUENCE"),
    # Names.
    (of_text(f"{IN_TWO} (x, \"\")"), {"ort": "1.24"}, NOT_LOADED, "ORT-INPUT-NAME"),
    (of_text('a, "" = Split <num_outputs = 2> (x)'), {"ort": "1.24"}, FAILS, "ORT-OUTPUT-NAME"),
    # What ONNX Runtime computes when it loads the model, with the kernels for the CPU.
    (of_constant(f"{IN_TWO} (w) y = Relu (a)"), {"ort": "1.24"}, FOLDED, ""),
    (of_constant(f"{IN_THREE} y = Relu (a)"), {"ort": "1.24"}, NOT_LOADED, "ORT-EMPTY-LAST"),
    (of_constant(IN_THREE, "1"), {"ort": "1.24"}, NOT_LOADED, "ORT-EMPTY-LAST"),
    (of_constant(IN_THREE, "0"), {"ort": "1.24"}, NOT_LOADED, "ORT-EMPTY-LAST"),
    (of_constant(f"{IN_TWO} (w)", "0"), {"ort": "1.24"}, Outcome.NEVER_RUNS, ""),
    (of_constant(f"{IN_TWO} (w, \"\")", "1"), {"ort": "1.24"}, NOT_LOADED, "ORT-INPUT-NAME"),
    (of_constant('a, "" = Split <num_outputs = 2> (w)', "1"), {"ort": "1.24"}, NOT_LOADED,
     "ORT-OUTPUT-NAME"),
    (no_sizes("8"), {"ort": ""}, NOT_LOADED, "SPLIT-NODE-INVALID"),
    (no_sizes("n"), {"ort": ""}, NOT_LOADED, "SPLIT-NODE-INVALID"),
    # Shapes.
    (of_shape(), {"ort": "1.13"}, RUNS, ""),
    (of_shape(), {"ort": "1.14"}, CPU, "ORT-SHAPE"),
    (of_shape("10"), {"ort": "1.14"}, RUNS, ""),
]  # fmt: skip


@pytest.mark.parametrize(("content", "target_options", "outcome", "rule"), CASES)
def test_a_release_decides_where_a_split_runs(
    content: onnx.ModelProto,
    target_options: dict[str, str],
    outcome: Outcome,
    rule: str,
    tmp_path: Path,
) -> None:
    verdict = verdict_of(content, tmp_path, **target_options)
    effects = {v.rule.id for v in verdict.diagnostics if v.effect}
    assert verdict.outcome is outcome
    assert effects >= {rule} if rule else not effects
    assert verdict.target == resolve_target(**target_options)


def test_a_runtime_writes_no_output_beside_an_empty_one_except_on_the_cpu(tmp_path: Path) -> None:
    unwritten = Outcome.UNWRITTEN
    for kind, outcome in ((TensorProto.FLOAT, unwritten), (TensorProto.BFLOAT16, CPU)):
        verdict = verdict_of(one_split(kind, (6,), sizes=(2, 0, 4), axis=0), tmp_path, ort="")
        assert verdict.outcome is outcome


def test_neighbours_of_a_split_leave_directml_from_opset_23_on(tmp_path: Path) -> None:
    for opset, expected in ((22, []), (23, ["ORT-NEIGHBOURS"])):
        header = f'<ir_version: 10, opset_import: ["" : {opset}]>'
        body = "{ y = Transpose (x) a, b = Split <axis = 0, num_outputs = 2> (y) c = Relu (a) }"
        content = onnx.parser.parse_model(f"{header} net (float[6,4] x) => (float[] c) {body}")
        verdict = verdict_of(content, tmp_path, ort="")
        assert verdict.outcome is RUNS
        assert [v.rule.id for v in verdict.diagnostics] == expected
    assert "so 96 bytes cross between GPU and CPU" in verdict.diagnostics[0].message


def test_other_formats_are_checked_for_a_program_of_ones_own(tmp_path: Path) -> None:
    from tests.support.openvino_files import variadic, weights

    (tmp_path / "model.xml").write_text(variadic())
    (tmp_path / "model.bin").write_bytes(weights())
    onnx.save(halves(18, 8), tmp_path / "model.onnx")
    sites = [
        site for name in ("model.onnx", "model.xml") for site in scan_file(str(tmp_path / name))
    ]
    assessment = assess(sites, resolve_target(ort="1.18"))
    assert [str(target) for target in assessment.targets] == [
        "ONNX Runtime 1.18 (DirectML 1.14.1, feature level 6_2)",
        f"feature level {NEWEST}",
    ]


def test_a_model_that_contradicts_itself_does_not_load(tmp_path: Path) -> None:
    content = model(
        [constant("s", [2, 4])], {"x": (TensorProto.FLOAT, (6,))}, {"y": TensorProto.FLOAT16}
    )
    content.graph.node.append(onnx.helper.make_node("Split", ["x", "s"], ["y", "z"], axis=0))
    assert verdict_of(content, tmp_path, ort="").outcome is NOT_LOADED


GLU: Any = "s = Sigmoid (b) y = Mul (a, s)"


@pytest.mark.parametrize(("release", "count"), [("1.17", 0), ("1.18", 1), ("1.24", 1)])
def test_a_glu_is_a_known_defect_since_the_release_of_its_first_report(
    release: str, count: int, tmp_path: Path
) -> None:
    header = '<ir_version: 8, opset_import: ["" : 18]>'
    body = f"{{ a, b = Split <axis = 0, num_outputs = 2> (x) {GLU} }}"
    content = onnx.parser.parse_model(f"{header} net (float[6] x) => (float[] y) {body}")
    verdict = verdict_of(content, tmp_path, ort=release)
    assert verdict.outcome is RUNS
    assert [v.rule.id for v in verdict.defects] == ["SPLIT-DEFECT-RECOMBINED"] * count


@pytest.mark.parametrize("target", [{"windows": "22621"}, {"directml": "1.15"}, {"winml": "22621"}])
def test_a_glu_is_no_known_defect_where_onnx_runtime_does_not_fuse_it(
    target: dict[str, str], tmp_path: Path
) -> None:
    """No report is of Windows ML as a part of Windows, or of an application without a runtime."""
    body = f"{{ a, b = Split <axis = 0> (x) {GLU} }}"
    header = '<ir_version: 7, opset_import: ["" : 12]>'
    content = onnx.parser.parse_model(f"{header} net (float[6] x) => (float[] y) {body}")
    assert verdict_of(content, tmp_path, **target).defects == ()
