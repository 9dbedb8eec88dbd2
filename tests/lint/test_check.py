"""The verdicts of targets on sites, with a model built for each verdict."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlsplit as dml
from dmlsplit.frontends import Implied, Known, SplitSite, Unknown
from dmlsplit.frontends.site import Cause
from dmlsplit.lint.check import assess, check_site
from dmlsplit.lint.report.text import text_report
from dmlsplit.lint.target import Via, resolve_target
from dmlsplit.lint.verdict import Outcome, Verdict
from tests.support.descriptors import split_descriptors


def rules(verdict: Verdict) -> set[str]:
    return {diagnostic.rule.id for diagnostic in verdict.diagnostics}


# test_examples has each rule of ONNX Runtime's provider alone, and tests/golden/cli the rest of the
# texts of verdicts.


def test_a_rule_that_an_implied_split_breaks_is_a_warning() -> None:
    desc = dml.SplitOperatorDesc.from_sizes(dml.TensorDesc("INT64", (6,)), axis=0, sizes=(2, 4))
    site = SplitSite("f", "net", "n", 0, "Slice", Implied("a Slice", desc))
    verdict = check_site(site, resolve_target(feature_level="2_1"))
    found = {(each.rule.id, each.severity) for each in verdict.diagnostics}
    assert found == {("SPLIT-IMPLIED", "note"), ("DML-LEVEL-DATA-TYPE", "warning")}
    assert (verdict.outcome, verdict.errors, bool(verdict.fix)) == (Outcome.OK, (), True)
    assert verdict.minimum is not None
    assert verdict.minimum.level == dml.FeatureLevel.LEVEL_4_1


@pytest.mark.parametrize("via", ["directml", "ort"])
def test_no_minimum_level_is_claimed_while_the_data_type_is_unknown(via: Via) -> None:
    """The type may be INT64, which only level 4_1 accepts, or a string."""
    x = dml.TensorDesc("FLOAT32", (2, 6))
    smallest = dml.SplitOperatorDesc.from_sizes(x, axis=1, sizes=(6,))
    state = Unknown("the type is not known", Cause.TYPE, smallest, (2, 4))
    site = SplitSite("f", "net", "n", 0, "Split-13", state, format="onnx", input_name="y")
    verdict = check_site(site, resolve_target(feature_level="2_0", via=via))
    assert (verdict.outcome, verdict.minimum) == (Outcome.REFUSED_FOR_EVERY_SIZE, None)
    if via == "directml":
        assert verdict.fix.startswith("declare the type and sizes of every value")
    report = text_report(assess([site], resolve_target(feature_level="2_0", via=via)))
    assert "first accepted" not in report
    assert re.search(r"refused for every size +- +- +-\n", report)


# The verdict and the library agree.


@given(desc=split_descriptors(), level=st.sampled_from(list(dml.FeatureLevel)))
def test_verdicts_agree_with_validate_and_legalize(
    desc: dml.SplitOperatorDesc, level: dml.FeatureLevel
) -> None:
    site = SplitSite("f", "net", "n", 0, "Split-13", Known(desc))
    verdict = check_site(site, resolve_target(feature_level=str(level)))
    report = dml.validate(desc, level)
    assert (verdict.outcome is Outcome.OK) == report.ok
    assert rules(verdict) == set(report.rule_ids)
    assert bool(verdict.fix) == (verdict.outcome is not Outcome.OK)
    assert (verdict.outcome is Outcome.EQUIVALENT) == bool(verdict.equivalent)
    assert verdict.equivalent is None or dml.validate(verdict.equivalent, level).ok
    if verdict.minimum is not None:
        assert dml.validate(desc, verdict.minimum.level).ok
