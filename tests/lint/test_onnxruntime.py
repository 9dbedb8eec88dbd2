"""ONNX Runtime's DirectML provider: the descriptors that it makes, and the rules that it adds."""

from pathlib import Path

import onnx
import pytest
from hypothesis import given

import dmlsplit as dml
from dmlsplit.frontends import Known
from dmlsplit.lint import onnxruntime
from dmlsplit.lint.check import assess
from dmlsplit.lint.runtimes import runtime_table
from dmlsplit.lint.target import resolve_target
from dmlsplit.lint.verdict import Outcome
from dmlsplit.models.discovery import scan_file
from dmlsplit.models.onnx.portability import EMPTY_LAST_SINCE
from tests.support.descriptors import split_descriptors
from tests.support.models import parsed
from tests.support.sites import split_site


@given(desc=split_descriptors())
def test_padding_to_four_dimensions_keeps_axis_and_sizes(desc: dml.SplitOperatorDesc) -> None:
    lowered = onnxruntime.provider_descriptor(desc)
    assert lowered.input_tensor.dimension_count >= 4
    assert lowered.split_sizes == desc.split_sizes
    assert lowered.input_tensor.element_count == desc.input_tensor.element_count
    assert lowered.input_tensor.sizes[lowered.axis] == desc.input_tensor.sizes[desc.axis]


def test_empty_outputs_break_a_rule_only_beside_outputs_with_elements() -> None:
    def broken(*pieces: int) -> list[str]:
        x = dml.TensorDesc("FLOAT32", (6,))
        desc = dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=[6])
        site = split_site(state=Known(desc if any(pieces) else None, pieces))
        violations = onnxruntime.provider_violations(site, resolve_target(ort=""))
        return [f"{violation.rule.id} {violation.field}" for violation in violations]

    assert broken(2, 0, 0) == ["ORT-EMPTY-PIECE Sizes"] * 2
    assert broken(0, 0) == []
    assert broken(1, 2) == []


def test_the_warnings_of_a_scan_agree_with_the_table_of_releases() -> None:
    releases = runtime_table().onnxruntime
    first = next(release for release in releases if release.provider.cpu_empty_last.value)
    assert str(first) == EMPTY_LAST_SINCE


# A Split with an output that nothing uses, in the fused graphs of an old DirectML.


@pytest.mark.parametrize(
    ("joined_names", "target_options", "message"),
    [
        ("a", {"ort": "1.12"}, "output 1 is unused"),
        ("b", {"ort": "1.16", "directml": "1.8.0"}, "output 0 is unused"),
        ("ab", {"ort": "1.12"}, ""),
        ("a", {"ort": "1.13"}, ""),
        ("a", {"ort": ""}, ""),
        ("a", {"directml": "1.9.0"}, ""),  # no graph is fused
    ],
)
def test_an_unused_output_is_a_defect_before_directml_1_9_1(
    joined_names: str, target_options: dict[str, str], message: str, tmp_path: Path
) -> None:
    branch = f"() => (float[] y) {{ y = Concat <axis = 0> ({', '.join(joined_names)}) }}"
    header = '<ir_version: 8, opset_import: ["" : 17]>'
    text = f"""{header} net (bool flag, float[6] x) => (float[] z) {{
        a, b = Split (x)
        z = If (flag) <else_branch = no {branch}, then_branch = yes {branch}>
    }}"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    (verdict,) = assess(
        scan_file(str(tmp_path / "m.onnx")), resolve_target(**target_options)
    ).verdicts
    defects = [diagnostic for diagnostic in verdict.diagnostics if diagnostic.severity == "defect"]
    assert [diagnostic.rule.id for diagnostic in defects] == ["SPLIT-DEFECT-UNCONNECTED"] * bool(
        message
    )
    assert all(diagnostic.message.startswith(message) for diagnostic in defects)
    assert all("ship DirectML 1.9.1 or later" in diagnostic.hint for diagnostic in defects)
    assert verdict.outcome is Outcome.RUNS


@pytest.mark.parametrize(
    ("size", "by_runtime"), [(4, Outcome.UNWRITTEN), (0, Outcome.RUNS), (5, Outcome.RUNS)]
)
def test_num_outputs_may_leave_nothing_for_the_last_piece_but_not_through_the_provider(
    size: int, by_runtime: Outcome, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    cut = "a, b, c = Split <num_outputs = 3> (x)"
    onnx.save(parsed(f"(float[{size}] x) => (float[] a, float[] b, float[] c) {{ {cut} }}"), path)
    sites = scan_file(str(path))
    (valid,) = assess(sites, resolve_target()).verdicts
    assert (valid.outcome, valid.errors) == (Outcome.RUNS, ())
    (verdict,) = assess(sites, resolve_target(ort="")).verdicts
    assert verdict.outcome is by_runtime
    empty = ["ORT-EMPTY-PIECE"] if by_runtime is Outcome.UNWRITTEN else []
    assert [error.rule.id for error in verdict.errors] == empty
