"""A comparison as text, and the command that prints it."""

from pathlib import Path

import pytest

from tests.conformance.__main__ import main
from tests.conformance.cases import QUESTIONS
from tests.conformance.check import compare
from tests.conformance.conftest import Observe
from tests.conformance.observation import read_observation
from tests.conformance.report import text_report
from tests.conformance.stand_in.build import edited, observed
from tests.support.fixtures import Capsys


def reported(path: Path) -> str:
    return text_report(compare(read_observation(path)))


def test_the_text_report_has_the_observed_differences_and_fits_80_columns(observe: Observe) -> None:
    text = reported(observe("any-sum", "take-overlap"))
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
    text = " ".join(reported(observe("take-overlap", level=0x2000)).split())
    for question in QUESTIONS:
        assert question.text in text
    assert "refused at create with 0x80070057: table-FLOAT32-1, table-FLOAT32-2" in text
    assert "accepted: rule-TENSOR-OUTPUT-OVERLAP-zero, rule-TENSOR-OUTPUT-OVERLAP-nested" in text
    assert "not observed: bind-overlap, bind-overlap-half" in text
    assert "such a device has level 0x2000" in text


def test_names_from_another_machine_cannot_add_lines_or_control_characters(
    observe: Observe,
) -> None:
    """An observation comes from someone else's machine, so its names are not trusted."""
    path = observe("any-sum", "take-overlap")
    cases = [dict(case, id="x\n| y |") for case in observed(path)["cases"]]
    edited(path, adapter={"name": "\x1b[31mred"}, cases=cases)
    text = reported(path)
    assert "\x1b" not in text
    assert "\n| y |" not in text


def test_a_difference_makes_check_exit_with_1(observe: Observe, capsys: Capsys) -> None:
    for switch, status in (("take-overlap", 0), ("any-sum", 1)):
        path = observe(switch)
        assert main(["check", str(path)]) == status
        assert capsys.readouterr() == (reported(path) + "\n", "")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("check missing.json", "missing.json: cannot be read: No such file or directory"),
        ("check other.json", "other.json: lacks 'schema'"),
        ("write other.json", "other.json: File exists"),
    ],
)
def test_an_error_is_reported_in_one_line(
    here: Path, capsys: Capsys, line: str, message: str
) -> None:
    (here / "other.json").write_text("{}")
    assert main(line.split()) == 2
    assert capsys.readouterr() == ("", f"error: {message}\n")
