"""`dmlsplit selftest`: what it prints, writes and returns."""

import json
from pathlib import Path

import pytest

from dmlsplit.cli import main
from dmlsplit.self_test import stages
from dmlsplit.self_test.cases import LAYOUTS
from tests.support.fixtures import Capsys, Patch

CPU = "selftest --device cpu --seconds 0".split()


@pytest.fixture(autouse=True)
def _only_layouts(monkeypatch: Patch) -> None:
    """The self-test has a split of each layout, instead of one for each path of the kernels."""
    monkeypatch.setattr(stages, "cases", lambda _: LAYOUTS)


def test_the_report_is_printed_and_written(here: Path, capsys: Capsys) -> None:
    assert main([*CPU, "-o", "report.json"]) == 0
    out, err = capsys.readouterr()
    splits = json.loads(Path("report.json").read_text())["splits"]
    assert len(splits) > len(LAYOUTS)
    end = f"exact on the CPU: {len(splits)} of {len(splits)} splits"
    assert out.splitlines()[-1].startswith(end)
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "report.json" in err


def test_a_strict_self_test_of_the_cpu_exits_with_2_and_json_says_so_alone(
    here: Path, capsys: Capsys
) -> None:
    assert main([*CPU, "--strict", "--format", "json"]) == 2
    assert json.loads(capsys.readouterr().out)["status"] == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--device gpu", "it must be 'cpu', 'cuda' or 'cuda:N'"),
        ("--seconds -1", "0 or more"),
        ("--device cpu -o none/report.json", "there is no such folder"),
    ],
)
def test_invalid_options_are_reported_in_one_line(
    options: str, words: str, here: Path, capsys: Capsys
) -> None:
    assert main(["selftest", *options.split()]) == 2
    out, err = capsys.readouterr()
    assert words in err
    assert (out, err.count("\n")) == ("", 1)
