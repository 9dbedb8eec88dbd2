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
from dmlsplit.models.site import Cause
from tests.support.descriptors import split_descriptors
from tests.support.sites import split_site


def rules(verdict: Verdict) -> set[str]:
    return {diagnostic.rule.id for diagnostic in verdict.diagnostics}


# test_examples has each rule of ONNX Runtime's provider alone, and tests/golden/cli the rest of the
# texts of verdicts.


@pytest.mark.parametrize(
    ("data_type", "outcome"),
    [
        ("FLOAT32", Outcome.RUNS),
        ("INT64", Outcome.EQUIVALENT),  # the same bytes can be split as UINT32
        ("INT4", Outcome.REFUSED),
    ],
)
def test_level_3_0_runs_rejects_or_could_run_a_split_as_another(
    data_type: str, outcome: Outcome
) -> None:
    x = dml.TensorDesc(data_type, (6,))
    desc = dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=(1, 5))
    verdict = check_site(split_site(state=Known(desc)), resolve_target(feature_level="3_0"))
    assert verdict.outcome is outcome
    assert rules(verdict) == (set() if outcome is Outcome.RUNS else {"DML-LEVEL-DATA-TYPE"})


def test_no_minimum_level_is_claimed_while_the_data_type_is_unknown() -> None:
    """The type may be INT64, which only level 4_1 accepts, or a string."""
    x = dml.TensorDesc("FLOAT32", (2, 6))
    smallest = dml.SplitOperatorDesc.from_sizes(x, axis=1, sizes=(6,))
    state = Unknown("the type is not known", Cause.TYPE, smallest, (2, 4))
    site = split_site(state=state, input_name="y")
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
    verdict = check_site(split_site(state=Known(desc)), resolve_target(feature_level=str(level)))
    report = dml.validate(desc, level)
    assert (verdict.outcome is Outcome.RUNS) == report.ok
    assert rules(verdict) == set(report.rule_ids)
    assert bool(verdict.fix) == (verdict.outcome is not Outcome.RUNS)
    assert (verdict.outcome is Outcome.EQUIVALENT) == bool(verdict.equivalent)
    assert verdict.equivalent is None or dml.validate(verdict.equivalent, level).ok
    if verdict.minimum is not None:
        assert dml.validate(desc, verdict.minimum.level).ok


# --- nodes that DirectML does not get ---------------------------------------------------------


INT64 = Known(dml.SplitOperatorDesc.from_sizes(dml.TensorDesc("INT64", (6,)), axis=0, sizes=(2, 4)))
DYNAMIC = Unknown("why", Cause.DYNAMIC)
DEAD = {"never_runs": "it is in the else_branch of If #0 of net, whose condition is always true"}
OLD = resolve_target(windows="19041")
RUNTIME = resolve_target(ort="")
CASES = {
    "reaches DirectML": (split_site(state=INT64), Outcome.EQUIVALENT),
    "folded by a runtime only": (split_site(state=INT64, is_folded=True), Outcome.EQUIVALENT),
    "never runs": (split_site(state=INT64, **DEAD), Outcome.NEVER_RUNS),
    "unknown, never runs": (split_site(state=DYNAMIC, **DEAD), Outcome.NEVER_RUNS),
    "unknown, folded": (split_site(state=DYNAMIC, is_folded=True), Outcome.UNKNOWN),
    # A loader infers the shapes in every branch.
    "invalid for a loader": (split_site(state=Invalid("axis is 9"), **DEAD), Outcome.REFUSED),
    "invalid when it would run": (
        split_site(state=Invalid("num_outputs is 9", is_loaded=True), **DEAD),
        Outcome.NEVER_RUNS,
    ),
    "invalid when it runs": (
        split_site(state=Invalid("num_outputs is 9", is_loaded=True)),
        Outcome.REFUSED,
    ),
}


@pytest.mark.parametrize(("site", "outcome"), CASES.values(), ids=CASES)
def test_nodes_that_never_run_are_accepted_in_a_model_that_loads(
    site: SplitSite, outcome: Outcome
) -> None:
    assessment = assess([site], OLD)
    (verdict,) = assessment.verdicts
    assert verdict.outcome is outcome
    assert assessment.counts[outcome] == 1
    assert assessment.accepted == (outcome not in FAILING)


@pytest.mark.parametrize("fields", [{"is_folded": True}, DEAD], ids=["folded", "never runs"])
def test_a_node_that_directml_does_not_get_has_a_note_and_neither_error_nor_fix(
    fields: dict[str, Any],
) -> None:
    (verdict,) = assess([split_site(state=INT64, **fields)], RUNTIME).verdicts
    assert (verdict.diagnostics, verdict.fixes) == ((), ())
    assert verdict.notes


@pytest.mark.parametrize("fields", [{"state": INT64, "is_folded": True} | DEAD, {}],
                         ids=["folded, never runs", "without a descriptor"])  # fmt: skip
def test_no_split_of_a_model_that_does_not_load_is_accepted(fields: dict[str, Any]) -> None:
    assessment = assess([split_site(model_fault="a is two values", **fields)], OLD)
    (verdict,) = assessment.verdicts
    assert (verdict.outcome, assessment.accepted) == (Outcome.REFUSED, False)
    assert [error.rule.id for error in verdict.errors] == ["SPLIT-MODEL-INVALID"]


def test_an_invalid_node_that_never_runs_is_refused_with_the_reason() -> None:
    (verdict,) = assess([split_site(state=Invalid("axis is 9"), **DEAD)], OLD).verdicts
    assert "but ONNX Runtime checks it when it loads the model" in verdict.notes[-1]


# How a format names a failure.
FAILURES = {
    "text": "error[",
    "json": '"severity": "error"',
    "github": "::error",
    "sarif": '"ruleId"',
    "junit": "<failure",
}


def report(form: str) -> str:
    """A report on a folded node and one that never runs."""
    sites = [split_site(state=INT64, is_folded=True), split_site(state=INT64, **DEAD)]
    return render(assess(sites, RUNTIME), form)


@pytest.mark.parametrize("form", FORMATS)
def test_no_format_has_a_failure_for_a_node_that_directml_does_not_get(form: str) -> None:
    assert FAILURES[form] in render(assess([split_site(state=INT64)], OLD), form)
    assert FAILURES[form] not in report(form)


def test_the_text_only_counts_nodes_that_directml_does_not_get() -> None:
    assert report("text").endswith("1 constant-folded; 1 never runs")
    assert len(report("text").splitlines()) == 2
    assert report("github") == ""


def test_json_and_junit_say_why_directml_does_not_get_a_node() -> None:
    document = json.loads(report("json"))
    assert [split["verdict"] for split in document["splits"]] == ["constant-folded", "never runs"]
    assert document["summary"]["refused"] == 0
    assert DEAD["never_runs"] in document["splits"][1]["notes"]
    assert "ONNX Runtime computes it when it loads the model" in " ".join(report("junit").split())
