"""The page of the verdicts, which `validate --help` names."""

from dmlsplit.cli import main
from dmlsplit.lint.verdict import Outcome
from dmlsplit.lint.verdict_page import verdicts_page
from tests.support.fixtures import Capsys


def test_the_page_says_what_each_verdict_means_the_worst_first() -> None:
    lines = [line for line in verdicts_page().splitlines() if line.startswith("- ")]
    assert [line.split("**")[1] for line in lines] == list(map(str, Outcome))
    assert all(line.partition("**: ")[2].endswith(".") for line in lines)


def test_explain_verdicts_prints_the_page(capsys: Capsys) -> None:
    assert main(["explain", "verdicts"]) == 0
    assert capsys.readouterr().out.startswith("Verdicts\n")
