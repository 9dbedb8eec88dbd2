"""The examples of the rules: each is run and breaks its rule, and its other half fixes that."""

import json
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import onnx
import pytest
from onnx import parser

import dmlsplit as dml
from dmlsplit.cli import main
from dmlsplit.directml.rules.violation import Violation
from dmlsplit.frontends import Known
from dmlsplit.lint.check import check_site
from dmlsplit.lint.rule_page import example_of
from dmlsplit.lint.rules import RULES
from dmlsplit.lint.target import resolve_target
from tests.support.fixtures import Capsys
from tests.support.sites import split_site

EXAMPLES = {name: example_of(rule) for name, rule in RULES.items()}
PROGRAMS = [name for name, example in EXAMPLES.items() if example.kind == "python"]
MODELS = [name for name, example in EXAMPLES.items() if example.kind == "onnx"]


# Their fix depends on the model and the target, and test_runtime_advice.py follows it.
WITH_OWN_FIX = {"ORT-OPSET", "ORT-IR-VERSION", "ORT-OPERATOR", "ORT-EXTERNAL-SIZES"}


class Findings(NamedTuple):
    """The report on an example: rules with their messages, and the exit status of a command."""

    violations: list[tuple[str, str]]
    status: int = 0
    advice: str = ""

    @property
    def rules(self) -> set[str]:
        return {rule for rule, _ in self.violations}


def run_program(text: str) -> Findings:
    """Run a program. It prints a report, or binds arrays and raises an error with a report."""
    reports: list[dml.ValidationReport] = []
    try:
        exec(text, {"print": reports.append})
    except dml.InvalidArgumentError as error:
        return Findings(messages(error.report.violations if error.report else ()))
    return Findings([message for report in reports for message in messages(report.violations)])


def messages(violations: Iterable[Violation]) -> list[tuple[str, str]]:
    return [(v.rule.id, v.message) for v in violations]


Command = Callable[[str], Findings]


@pytest.fixture
def command(here: Path, capsys: Capsys) -> Command:
    """Validates a model in the text form, with the command in its first line."""

    def run(text: str) -> Findings:
        program, *arguments = shlex.split(text.splitlines()[0].removeprefix("# "))
        assert (program, arguments[:2]) == ("dmlsplit", ["validate", "model.onnx"])
        onnx.save(parser.parse_model(text), "model.onnx")
        status = main([*arguments, "--format", "json"])
        report = json.loads(capsys.readouterr().out)
        target, splits = report["target"]["diagnostics"], report["splits"]
        diagnostics = target + [
            diagnostic for split in splits for diagnostic in split["diagnostics"]
        ]
        defects = [
            diagnostic["hint"] for diagnostic in diagnostics if diagnostic["severity"] == "defect"
        ]
        advice = (
            [diagnostic["hint"] for diagnostic in target]
            + [split["fix"] for split in splits]
            + defects
        )
        return Findings(
            [(diagnostic["rule"], diagnostic["message"]) for diagnostic in diagnostics],
            status,
            "; ".join(advice),
        )

    return run


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_broken_program_breaks_its_rule_alone_and_the_kept_one_breaks_none(name: str) -> None:
    example = example_of(RULES[name])  # not EXAMPLES, which a mutant is too late to change
    outcome = run_program(example.broken)
    assert outcome.rules == {name}
    assert outcome.violations[0][1] == example.message
    assert run_program(example.kept).violations == []


@pytest.mark.parametrize("name", MODELS)
def test_the_broken_model_breaks_its_rule_alone_and_the_kept_one_breaks_none(
    name: str, command: Command
) -> None:
    outcome = command(EXAMPLES[name].broken)
    assert outcome.rules == {name}
    assert outcome.violations[0] == (name, EXAMPLES[name].message)
    fails = RULES[name].severity == "error" and RULES[name].effect != "cpu"
    assert outcome.status == (1 if fails else 0)
    # The other model follows the hint, which is advice unless the rule is only a remark, or a level
    # accepts the split: the advice then names the level.
    is_advised = RULES[name].severity in ("error", "defect")
    if name.startswith("DML-LEVEL-"):
        assert "use DirectML" in outcome.advice
    else:
        assert (name in WITH_OWN_FIX or RULES[name].hint in outcome.advice) == is_advised
    assert command(EXAMPLES[name].kept) == Findings([], 0)
    onnx.checker.check_model(parser.parse_model(EXAMPLES[name].kept))


@pytest.mark.parametrize("name", [name for name in RULES if RULES[name].broken])
def test_the_fix_of_a_refused_descriptor_has_the_hint_of_its_rule(name: str) -> None:
    sample = RULES[name].broken[0]
    desc, tensor = sample.desc, sample.desc.input_tensor
    if "level" in RULES[name].fixable_by:  # the hint is advice only if no level accepts the split
        tensor = dml.TensorDesc(tensor.data_type, (2**31, 2, *tensor.sizes[2:]))
        desc = dml.SplitOperatorDesc.from_sizes(tensor, axis=0, sizes=(2**30, 2**30))
    verdict = check_site(split_site(state=Known(desc)), resolve_target(feature_level=sample.level))
    assert RULES[name].hint in verdict.fix
