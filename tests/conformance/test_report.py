"""A comparison as text, JSON and markdown."""

import json
from pathlib import Path

import pytest

from dmlsplit.conformance.cases import QUESTIONS
from dmlsplit.conformance.check import KINDS, compare
from dmlsplit.conformance.observation import read_observation
from dmlsplit.conformance.report import MOST_SHOWN, REPORTS
from tests.conformance.conftest import Observe
from tests.conformance.stand_in.build import edited, observed


def reported(path: Path, form: str) -> str:
    return REPORTS[form](compare(read_observation(path)))


def test_text_says_what_was_observed_and_fits_80_columns(observe: Observe) -> None:
    text = reported(observe("any-sum", "take-overlap"), "text")
    # Only names that cannot be broken, such as a SHA-256, may be longer.
    assert all(len(line) <= 80 for line in text.splitlines())
    assert text.startswith(
        "A STAND-IN, not DirectML, 1.2.3.4 differs from the rules\nlevel 6_4, on "
    )
    assert "verdict: 2 differences: one accepts the split and the other refuses it" in text
    assert "policy: 2 differences (does not count)" in text
    assert "rule-SPLIT-AXIS-SUM-less: expected refused at create with 0x80070057" in text
    assert "bytes and bindings: not observed" in text


def test_every_question_has_an_answer(observe: Observe) -> None:
    text = " ".join(reported(observe("take-overlap", level=0x2000), "text").split())
    for question in QUESTIONS:
        assert question.text in text
    assert "refused at create with 0x80070057: table-FLOAT32-1, table-FLOAT32-2" in text
    assert "accepted: rule-TENSOR-OUTPUT-OVERLAP-zero, rule-TENSOR-OUTPUT-OVERLAP-nested" in text
    assert "not observed: bind-overlap, bind-overlap-half" in text
    assert "such a device has level 0x2000" in text


def test_json_has_everything(observe: Observe) -> None:
    document = json.loads(reported(observe("no-float64", "any-sum"), "json"))
    assert (document["agrees"], document["level"]) == (False, "6_4")
    assert document["directml"]["stand_in"] is True
    assert document["counts"] == dict.fromkeys(KINDS, 0) | {"verdict": 2, "device": 10}
    assert len(document["differences"]) == 12
    assert document["differences"][0]["rules"] == []
    assert len(document["questions"]) == 10


def test_markdown_has_a_table_for_each_kind(observe: Observe) -> None:
    text = reported(observe("any-sum", "take-overlap"), "markdown")
    assert text.startswith("### A STAND-IN, not DirectML, 1.2.3.4 differs from the rules\n")
    row = "| rule-SPLIT-AXIS-SUM-less | refused at create with 0x80070057 | accepted | "
    assert row + "DML-SPLIT-AXIS-SUM |" in text


def test_a_text_names_a_few_differences_and_json_names_all(observe: Observe) -> None:
    path = edited(observe(), level=0x1000, minimum_levels=[])
    many = len(compare(read_observation(path)).differences)
    assert many > MOST_SHOWN
    for form in ("text", "markdown"):
        assert f"... and {many - MOST_SHOWN} more" in reported(path, form)
    assert len(json.loads(reported(path, "json"))["differences"]) == many


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_names_cannot_break_out(observe: Observe, form: str) -> None:
    """An observation comes from someone else's machine, so its names are not trusted."""
    path = observe("any-sum", "take-overlap")
    cases = [dict(case, id="x\n| y |<b>") for case in observed(path)["cases"]]
    edited(path, adapter={"name": "\x1b[31m<script>|`a`"}, cases=cases)
    text = reported(path, form)
    assert "\x1b" not in text
    assert "\n| y |" not in text
    if form == "markdown":
        assert "<script>" not in text.replace("\\<", "")
        assert "x\\\\n\\| y \\|\\<b\\>" in text
