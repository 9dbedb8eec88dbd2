"""The table of rules, and the report of broken rules."""

from pathlib import Path
from typing import get_args

import pytest

import dmlsplit as dml
from dmlsplit.directml.rules import RULES, BrokenRule, violation_of
from dmlsplit.directml.rules.bindings import BINDINGS
from dmlsplit.directml.rules.descriptors import modified_split
from dmlsplit.directml.rules.rule import Basis, FixKind, Rule, Severity, read_rules
from dmlsplit.directml.rules.violation import ValidationReport
from dmlsplit.lint import rules as lint_rules

BROKEN = tuple(
    violation_of("InputTensor", BrokenRule("DML-TENSOR-ZERO-SIZE", f"Sizes[{i}]", 0, "at least 1"))
    for i in range(25)
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
def test_fields_of_records_have_the_types_of_a_rule(rule: Rule) -> None:
    assert rule.basis in get_args(Basis)
    assert rule.severity in get_args(Severity)
    assert set(rule.fixable_by) <= set(get_args(FixKind))
    assert rule.hresult is None or rule.hresult in lint_rules.HRESULTS
    assert isinstance(rule.at_every_size, bool)
    texts = (
        rule.sentence,
        rule.source,
        rule.hint,
        rule.wording,
        rule.consequence,
        rule.impossible_in_c,
    )
    assert all(isinstance(text, str) for text in texts)


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
    (violation,) = dml.validate(modified_split(first_output={"data_type": "INT32"})).violations
    assert (violation.tensor, violation.field) == ("OutputTensors[0]", "DataType")
    assert (violation.found, violation.allowed) == ("INT32", "FLOAT32, as in InputTensor")
    assert str(violation) == (
        "DML-SPLIT-DATA-TYPE-MATCH: OutputTensors[0].DataType is INT32; it must be FLOAT32, as in "
        "InputTensor. Fix: give the output the input's data type."
    )


def test_the_place_of_a_violation_joins_tensor_and_field() -> None:
    broken = [BrokenRule("DML-BIND-KIND", field, "a", "b") for field in ("Buffer", "")]
    places = [violation_of(name, rule).place for name in ("InputTensor", "") for rule in broken]
    assert places == ["InputTensor.Buffer", "InputTensor", "Buffer", ""]


def test_a_report_without_violations_is_ok() -> None:
    good = ValidationReport("SPLIT", "3_0", ())
    assert good.ok
    assert str(good) == "SPLIT at feature level 3_0: ok"
    assert str(ValidationReport("binding", "", ())) == "binding: ok"


def test_a_report_counts_broken_rules_and_places() -> None:
    report = ValidationReport("SPLIT", "3_0", BROKEN[:1])
    assert not report.ok
    assert str(report) == f"SPLIT at feature level 3_0: 1 rule broken\n  {BROKEN[0]}"
    assert str(ValidationReport("SPLIT", "", BROKEN[:2])).startswith(
        "SPLIT: 1 rule broken in 2 places\n  DML-"
    )
    assert ValidationReport("SPLIT", "", BROKEN).rule_ids == ("DML-TENSOR-ZERO-SIZE",)


def test_a_report_prints_20_violations_and_the_number_of_the_rest() -> None:
    lines = str(ValidationReport("SPLIT", "3_0", BROKEN)).splitlines()
    *shorter, last = BROKEN[:20]  # of one rule, so that its fix is said once
    assert lines[1:-2] == [f"  {violation.rule.id}: {violation.message}." for violation in shorter]
    assert lines[-2:] == [f"  {last}", "  ... and 5 more"]
    assert len(str(ValidationReport("SPLIT", "3_0", BROKEN[:20])).splitlines()) == 21
    x = dml.TensorDesc("INT4", (64,))
    whole = dml.validate(dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=[1] * 64))
    assert str(whole).endswith("... and 45 more")
