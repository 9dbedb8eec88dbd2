"""The table of rules, and the report of broken rules."""

from pathlib import Path
from typing import get_args

import pytest

import dmlsplit as dml
from dmlsplit.directml.rules import RULES, BrokenRule, violation_of
from dmlsplit.directml.rules.bindings import BINDINGS
from dmlsplit.directml.rules.rule import Basis, FixKind, Rule, Severity, read_rules
from dmlsplit.directml.rules.violation import ValidationReport
from dmlsplit.lint import rules as lint_rules

# Of one rule, in 25 places.
VIOLATIONS = tuple(
    violation_of(
        "InputTensor", BrokenRule("DML-TENSOR-ZERO-SIZE", f"Sizes[{index}]", 0, "at least 1")
    )
    for index in range(25)
)


def test_every_rule_has_its_id_a_sentence_and_a_hint() -> None:
    for rule_id, rule in RULES.items():
        assert rule_id == rule.id
        assert rule.sentence.endswith(".")
        assert rule.hint


GOOD = "A: {sentence: A., hint: b, basis: policy, source: dmlsplit; c, fixable_by: [level]}"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("hint: b", "hint: b, hints: c", "A: .*unexpected keyword argument 'hints'"),
        ("hint: b, ", "", "A: .*missing 1 required .*'hint'"),
        ("sentence: A., ", "", "A: .*missing 1 required .*'sentence'"),
    ],
)
def test_a_record_names_its_rule_and_an_unknown_or_missing_field(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(GOOD)
    assert read_rules(path)["A"].fixable_by == ("level",)
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(TypeError, match=message):
        read_rules(path)


@pytest.mark.parametrize("rule", lint_rules.RULES.values(), ids=lambda rule: rule.id)
def test_a_record_in_yaml_has_a_known_basis_severity_fix_and_hresult(rule: Rule) -> None:
    """YAML takes any word; a misspelt one would be in reports."""
    assert rule.basis in get_args(Basis)
    assert rule.severity in get_args(Severity)
    assert set(rule.fixable_by) <= set(get_args(FixKind))
    assert rule.hresult is None or rule.hresult in lint_rules.HRESULTS


def test_every_rule_cites_microsoft_or_is_a_policy_of_dmlsplit() -> None:
    sources = {"documented": "https://learn.microsoft.com/windows/", "policy": "dmlsplit; "}
    assert all(rule.source.startswith(sources[rule.basis]) for rule in RULES.values())
    assert {rule.basis for rule in RULES.values()} == set(sources)


def test_binding_rules_of_directml_have_device_removed_and_all_others_e_invalidarg() -> None:
    """Rules about arrays, which DirectML does not have, are checked by dmlsplit alone."""
    for name, rule in RULES.items():
        is_of_directml = name in BINDINGS and rule.basis == "documented"
        assert rule.hresult == (0x887A0005 if is_of_directml else 0x80070057)


def test_a_violation_names_its_field_the_value_the_allowed_value_and_the_fix() -> None:
    first, second = dml.TensorDesc("INT32", (2,)), dml.TensorDesc("FLOAT32", (4,))
    desc = dml.SplitOperatorDesc(dml.TensorDesc("FLOAT32", (6,)), [first, second], axis=0)
    (violation,) = dml.validate(desc).violations
    assert (violation.tensor, violation.field) == ("OutputTensors[0]", "DataType")
    assert (violation.found, violation.allowed) == ("INT32", "FLOAT32, as in InputTensor")
    assert str(violation) == (
        "DML-SPLIT-DATA-TYPE-MATCH: OutputTensors[0].DataType is INT32; it must be FLOAT32, as in "
        "InputTensor. Fix: give the output the input's data type."
    )


def test_the_place_of_a_violation_joins_tensor_and_field() -> None:
    def place(tensor: str, field: str) -> str:
        return violation_of(tensor, BrokenRule("DML-BIND-KIND", field, "found", "allowed")).place

    assert place("InputTensor", "Buffer") == "InputTensor.Buffer"
    assert place("InputTensor", "") == "InputTensor"
    assert place("", "Buffer") == "Buffer"
    assert place("", "") == ""


def test_a_report_without_violations_is_ok() -> None:
    good = ValidationReport("SPLIT", "3_0", ())
    assert good.ok
    assert str(good) == "SPLIT at feature level 3_0: ok"
    assert str(ValidationReport("binding", "", ())) == "binding: ok"


def test_a_report_counts_broken_rules_and_places() -> None:
    report = ValidationReport("SPLIT", "3_0", VIOLATIONS[:1])
    assert not report.ok
    assert str(report) == f"SPLIT at feature level 3_0: 1 rule broken\n  {VIOLATIONS[0]}"
    assert str(ValidationReport("SPLIT", "", VIOLATIONS[:2])).startswith(
        "SPLIT: 1 rule broken in 2 places\n  DML-"
    )
    assert ValidationReport("SPLIT", "", VIOLATIONS).rule_ids == ("DML-TENSOR-ZERO-SIZE",)


def test_a_report_prints_20_violations_and_the_number_of_the_rest() -> None:
    report = ValidationReport("SPLIT", "3_0", VIOLATIONS)
    heading, *lines, last_line, rest = str(report).splitlines()
    assert heading == "SPLIT at feature level 3_0: 1 rule broken in 25 places"
    # Only the last line has the fix, which all have in common.
    *without_fix, last = VIOLATIONS[:20]
    assert lines == [f"  {violation.rule.id}: {violation.message}." for violation in without_fix]
    assert last_line == f"  {last}"
    assert rest == "  ... and 5 more"


def test_a_report_of_20_violations_ends_with_the_last_one() -> None:
    lines = str(ValidationReport("SPLIT", "3_0", VIOLATIONS[:20])).splitlines()
    assert len(lines) == 1 + 20
    assert lines[-1] == f"  {VIOLATIONS[19]}"
