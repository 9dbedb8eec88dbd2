"""The verdicts of targets on sites, with a model built for each verdict."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlsplit as dml
from dmlsplit.frontends import Invalid, Known, SplitSite, Unknown
from dmlsplit.lint.check import assess, check_site
from dmlsplit.lint.report import FORMATS, render
from dmlsplit.lint.report.text import text_report
from dmlsplit.lint.target import resolve_target
from dmlsplit.lint.verdict import FAILING, Outcome, Verdict
from dmlsplit.models.site import Cause, State
from tests.support.descriptors import split_descriptors


def rules(verdict: Verdict) -> set[str]:
    return {diagnostic.rule.id for diagnostic in verdict.diagnostics}


# test_examples has each rule of ONNX Runtime's provider alone, and tests/golden/cli the rest of the
# texts of verdicts.


def test_no_minimum_level_is_claimed_while_the_data_type_is_unknown() -> None:
    """The type may be INT64, which only level 4_1 accepts, or a string."""
    x = dml.TensorDesc("FLOAT32", (2, 6))
    smallest = dml.SplitOperatorDesc.from_sizes(x, axis=1, sizes=(6,))
    state = Unknown("the type is not known", Cause.TYPE, smallest, (2, 4))
    site = SplitSite("f", "net", "n", 0, "Split-13", state, format="onnx", input_name="y")
    verdict = check_site(site, resolve_target(feature_level="2_0"))
    assert (verdict.outcome, verdict.minimum) == (Outcome.REFUSED_FOR_EVERY_SIZE, None)
    assert verdict.fix.startswith("declare the type and sizes of every value")
    report = text_report(assess([site], resolve_target(feature_level="2_0")))
    assert "first accepted" not in report
    assert "use DirectML" not in report


# The verdict and the library agree.


@given(desc=split_descriptors(), level=st.sampled_from(list(dml.FeatureLevel)))
def test_verdicts_agree_with_validate_and_legalize(
    desc: dml.SplitOperatorDesc, level: dml.FeatureLevel
) -> None:
    site = SplitSite("f", "net", "n", 0, "Split-13", Known(desc))
    verdict = check_site(site, resolve_target(feature_level=str(level)))
    report = dml.validate(desc, level)
    assert (verdict.outcome is Outcome.RUNS) == report.ok
    assert rules(verdict) == set(report.rule_ids)
    assert bool(verdict.fix) == (verdict.outcome is not Outcome.RUNS)
    assert (verdict.outcome is Outcome.EQUIVALENT) == bool(verdict.equivalent)
    assert verdict.equivalent is None or dml.validate(verdict.equivalent, level).ok
    if verdict.minimum is not None:
        assert dml.validate(desc, verdict.minimum.level).ok


# --- nodes that DirectML does not get ---------------------------------------------------------


def site(state: State, **fields: Any) -> SplitSite:
    return SplitSite("f", "net", "n", 0, "Split-13", state, format="onnx", **fields)


INT64 = Known(dml.SplitOperatorDesc.from_sizes(dml.TensorDesc("INT64", (6,)), axis=0, sizes=(2, 4)))
DEAD = {"never_runs": "it is in the else_branch of If #0 of net, whose condition is always true"}
OLD = resolve_target(windows="19041")


@pytest.mark.parametrize(
    ("split_site", "outcome"),
    [
        (site(INT64), Outcome.EQUIVALENT),
        (site(INT64, is_folded=True), Outcome.FOLDED),
        (site(INT64, **DEAD), Outcome.NEVER_RUNS),
        (site(Unknown("why", Cause.DYNAMIC), **DEAD), Outcome.NEVER_RUNS),
        (site(Unknown("why", Cause.DYNAMIC), is_folded=True), Outcome.UNKNOWN),
        # A loader infers the shapes in every branch.
        (site(Invalid("axis is 9"), **DEAD), Outcome.REFUSED),
        (site(Invalid("num_outputs is 9", is_loaded=True), **DEAD), Outcome.NEVER_RUNS),
        (site(Invalid("num_outputs is 9", is_loaded=True)), Outcome.REFUSED),
        (site(INT64, model_fault="a is two values", is_folded=True, **DEAD), Outcome.REFUSED),
        (site(Known(), model_fault="a is two values"), Outcome.REFUSED),
    ],
)
def test_folded_nodes_and_those_that_never_run_are_not_refused_in_a_model_that_loads(
    split_site: SplitSite, outcome: Outcome
) -> None:
    assessment = assess([split_site], OLD)
    (verdict,) = assessment.verdicts
    assert verdict.outcome is outcome
    assert assessment.counts[outcome] == 1
    assert assessment.accepted == (outcome not in FAILING)
    if outcome in (Outcome.FOLDED, Outcome.NEVER_RUNS):
        assert (verdict.diagnostics, verdict.fixes) == ((), ())
        assert verdict.notes
    if split_site.model_fault:
        assert [error.rule.id for error in verdict.errors] == ["SPLIT-MODEL-INVALID"]


def test_an_invalid_node_that_never_runs_is_refused_with_the_reason() -> None:
    (verdict,) = assess([site(Invalid("axis is 9"), **DEAD)], OLD).verdicts
    assert "but ONNX Runtime checks it when it loads the model" in verdict.notes[-1]


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_shows_folded_nodes_as_accepted(form: str) -> None:
    text = render(assess([site(INT64, is_folded=True), site(INT64, **DEAD)], OLD), form)
    if form == "json":
        report = json.loads(text)
        assert [split["verdict"] for split in report["splits"]] == ["constant-folded", "never runs"]
        assert [
            report["summary"][name] for name in ("constant-folded", "never runs", "refused")
        ] == [
            1,
            1,
            0,
        ]
        assert DEAD["never_runs"] in report["splits"][1]["notes"]
    elif form == "text":
        assert text.endswith("1 constant-folded; 1 never runs")
        assert len(text.splitlines()) == 2
    elif form == "junit":
        assert "ONNX Runtime computes it when it loads the model" in " ".join(text.split())
        assert "<failure" not in text
    elif form == "sarif":
        assert json.loads(text)["runs"][0]["results"] == []
    else:
        assert not text
