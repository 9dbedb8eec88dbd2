"""The verdicts of targets on sites, with a model built for each verdict."""

from itertools import count
from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto

import dmlsplit as dml
from dmlsplit.directml import validation
from dmlsplit.frontends import SplitSite
from dmlsplit.lint.discovery import scan_file
from dmlsplit.lint.judge import assess, judge
from dmlsplit.lint.target import resolve_target
from dmlsplit.lint.verdict import Outcome, Verdict
from tests.support.descriptors import split_descriptors
from tests.support.models import single


def verdicts(content: onnx.ModelProto, tmp_path: Path, **asked: str) -> dict[str, Verdict]:
    """Verdicts by the name of the node."""
    path = tmp_path / "model.onnx"
    onnx.save(content, path)
    found = assess(scan_file(str(path)), resolve_target(**asked)).verdicts
    return {verdict.site.node: verdict for verdict in found}


def rules(verdict: Verdict) -> set[str]:
    return {diagnostic.rule.id for diagnostic in verdict.diagnostics}


NOT_SEEN = count(997)  # results are remembered, also those of an earlier run in this process


def test_equal_splits_are_validated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    size = next(NOT_SEEN)
    x = dml.TensorDesc("INT64", (1, 1, 1, size))
    desc = dml.SplitOperatorDesc.from_sizes(x, axis=3, sizes=(2, size - 2))
    sites = [SplitSite("m.json", "", f"cut{i}", i, "DML_OPERATOR_SPLIT", (desc,)) for i in range(9)]
    seen: list[dml.SplitOperatorDesc] = []
    honest = validation._of_every_level
    monkeypatch.setattr(validation, "_of_every_level", lambda d: seen.append(d) or honest(d))
    found = assess(sites, resolve_target(feature_level="1_0")).verdicts
    assert {verdict.outcome for verdict in found} == {Outcome.EQUIVALENT}
    # Once for the target, once for the minimum level, then the equivalent.
    assert seen.count(desc) == 2
    assert len(seen) == 3


# test_examples has each rule of ONNX Runtime's provider alone, and tests/golden/cli the rest of the
# texts of verdicts.


@pytest.mark.parametrize(
    ("names", "outcome"),
    [("BFLOAT16 COMPLEX64", Outcome.REFUSED), ("BOOL FLOAT16 DOUBLE UINT8 INT8", Outcome.OK)],
)
def test_ort_supports_some_types(tmp_path: Path, names: str, outcome: Outcome) -> None:
    for name in names.split():
        content = single(getattr(TensorProto, name), (6,), (2, 4), 0)
        verdict = verdicts(content, tmp_path, feature_level="5_0", via="ort")["cut"]
        assert (verdict.outcome, str(verdict.descriptor)[:6]) == (outcome, "SPLIT ")
        assert ("ORT-DATA-TYPE" in rules(verdict)) == (outcome is Outcome.REFUSED)


def test_a_rule_that_an_implied_split_breaks_is_a_warning() -> None:
    desc = dml.SplitOperatorDesc.from_sizes(dml.TensorDesc("INT64", (6,)), axis=0, sizes=(2, 4))
    site = SplitSite("f", "net", "n", 0, "Slice", (desc,), implied="a Slice")
    verdict = judge(site, resolve_target(feature_level="2_1"))
    found = {(each.rule.id, each.severity) for each in verdict.diagnostics}
    assert found == {("SPLIT-IMPLIED", "note"), ("DML-LEVEL-DATA-TYPE", "warning")}
    assert (verdict.outcome, verdict.errors, bool(verdict.fix)) == (Outcome.OK, (), True)
    assert verdict.minimum is not None
    assert verdict.minimum.level == dml.FeatureLevel.LEVEL_4_1


# The verdict and the library agree.


@given(desc=split_descriptors(), level=st.sampled_from(list(dml.FeatureLevel)))
def test_verdicts_agree_with_validate_and_legalize(
    desc: dml.SplitOperatorDesc, level: dml.FeatureLevel
) -> None:
    site = SplitSite("f", "net", "n", 0, "Split-13", (desc,))
    verdict = judge(site, resolve_target(feature_level=str(level)))
    report = dml.validate(desc, level)
    assert (verdict.outcome is Outcome.OK) == report.ok
    assert rules(verdict) == set(report.rule_ids)
    assert bool(verdict.fix) == (verdict.outcome is not Outcome.OK)
    assert (verdict.outcome is Outcome.EQUIVALENT) == bool(verdict.equivalent)
    assert verdict.equivalent is None or dml.validate(verdict.equivalent, level).ok
    if verdict.minimum is not None:
        assert dml.validate(desc, verdict.minimum.level).ok
