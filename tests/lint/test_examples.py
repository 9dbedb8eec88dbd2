"""The examples of the rules: each is run and breaks its rule, and its other half fixes that."""

import json
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import onnx
import pytest
from onnx import parser

import dmlsplit as dml
from dmlsplit.cli import main
from dmlsplit.directml.rules.violation import Violation
from dmlsplit.lint.report.rule_page import example_of
from dmlsplit.lint.rules import RULES

EXAMPLES = {name: example_of(rule) for name, rule in RULES.items()}
PROGRAMS = [name for name, example in EXAMPLES.items() if example.kind == "python"]
MODELS = [name for name, example in EXAMPLES.items() if example.kind == "onnx"]
# The front end also warns about these, whatever the target is.
WARNED = {"SPLIT-NODE-TEXT", "ORT-NUM-OUTPUTS", "ORT-SEQUENCE", "ORT-EMPTY-PIECE"}


class Found(NamedTuple):
    """The report on an example: rules with their messages, and the exit status of a command."""

    said: list[tuple[str, str]]
    status: int = 0

    @property
    def rules(self) -> set[str]:
        return {rule for rule, _ in self.said}


def run_program(text: str) -> Found:
    """Run a program. It prints a report, or binds arrays and raises an error with a report."""
    printed: list[dml.ValidationReport] = []
    try:
        exec(text, {"print": printed.append})
    except dml.InvalidArgumentError as error:
        return Found(messages(error.report.violations if error.report else ()))
    return Found([each for report in printed for each in messages(report.violations)])


def messages(violations: Iterable[Violation]) -> list[tuple[str, str]]:
    return [(v.rule.id, v.message) for v in violations]


@pytest.fixture
def command(here: Path, capsys: pytest.CaptureFixture[str]) -> "Command":
    return Command(capsys)


class Command:
    """Validates a model in the text form, with the command in its first line."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, text: str) -> Found:
        program, *arguments = shlex.split(text.splitlines()[0].removeprefix("# "))
        assert program == "dmlsplit"
        assert arguments[:2] == ["validate", "model.onnx"]
        onnx.save(parser.parse_model(text), "model.onnx")
        status = main([*arguments, "--format", "json"])
        report = json.loads(self.capsys.readouterr().out)
        said = report["target"]["diagnostics"] + [
            each for split in report["splits"] for each in split["diagnostics"]
        ]
        return Found([(each["rule"], each["message"]) for each in said], status)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_breaks_its_rule_alone_and_says_so(name: str) -> None:
    found = run_program(example_of(RULES[name]).broken)
    assert found.rules == {name}
    assert found.said[0][1] == example_of(RULES[name]).said


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_other_program_breaks_none(name: str) -> None:
    assert run_program(example_of(RULES[name]).kept).said == []


@pytest.mark.parametrize("name", MODELS)
def test_a_model_breaks_its_rule_and_says_so(name: str, command: Command) -> None:
    found = command(EXAMPLES[name].broken)
    assert found.rules == {name, *(["SPLIT-NODE-SURPRISE"] if name in WARNED else [])}
    assert found.said[0] == (name, EXAMPLES[name].said)
    assert found.status == (1 if RULES[name].severity == "error" else 0)


@pytest.mark.parametrize("name", MODELS)
def test_the_other_model_breaks_none_and_is_onnx(name: str, command: Command) -> None:
    assert command(EXAMPLES[name].kept) == Found([], 0)
    onnx.checker.check_model(parser.parse_model(EXAMPLES[name].kept))


@pytest.mark.parametrize("name", EXAMPLES)
def test_both_halves_differ_and_fit_a_page(name: str) -> None:
    broken, kept = EXAMPLES[name].broken, EXAMPLES[name].kept
    assert broken != kept
    assert max(map(len, [*broken.splitlines(), *kept.splitlines()])) <= 76
