"""The whole output of the command line, against transcripts: tests/golden/cli."""

import re
from pathlib import Path

import pynvml
import pytest

from dmlsplit.cli import build_parser, main
from tests.golden import commands
from tests.support.command import every_parser
from tests.support.fixtures import Patch

GOLDEN = commands.golden()


@pytest.fixture(autouse=True)
def here(here: Path, monkeypatch: Patch) -> None:
    """A folder with the files that the commands read, on a machine without a GPU."""

    def absent() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", absent)
    for name, value in commands.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    commands.write_inputs(here)


@pytest.mark.parametrize("line", GOLDEN)
def test_each_command_prints_its_transcript(line: str) -> None:
    output, expected = commands.transcript(line, main), GOLDEN[line].rstrip("\n")
    if "usage: " in expected:  # argparse breaks lines differently from version to version.
        assert re.sub(r"\n[>!]", "", output).split() == re.sub(r"\n[>!]", "", expected).split()
    else:
        assert output == expected


def test_every_help_and_every_report_format_has_a_transcript() -> None:
    for parser in every_parser(build_parser()):
        assert f"{parser.prog} --help".removeprefix("dmlsplit ") in GOLDEN
        for action in parser._actions:
            if "--format" in action.option_strings and "validate" in parser.prog:
                assert action.choices
                lines = "\n".join(line for line in GOLDEN if line.startswith("validate "))
                assert all(f"--format {form}" in lines for form in action.choices)
