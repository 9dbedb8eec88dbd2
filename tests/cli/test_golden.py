"""The whole output of the command line, against transcripts: tests/golden/cli."""

import re
from pathlib import Path

import pynvml
import pytest

from dmlsplit.cli import main
from tests.golden import commands

LINES = [line for lines in commands.COMMANDS.values() for line in lines]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the files that the commands read, on a machine without a GPU."""

    def absent() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", absent)
    for name, value in commands.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    commands.write_inputs(tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")


@pytest.mark.parametrize("line", LINES)
def test_the_output_is_golden(line: str) -> None:
    found, expected = commands.transcript(line, main), commands.golden()[line]
    if "usage: " in expected:  # argparse breaks lines differently from version to version.
        assert re.sub(r"\n[>!]", "", found).split() == re.sub(r"\n[>!]", "", expected).split()
    else:
        assert found == expected


def test_every_transcript_is_of_a_command() -> None:
    assert set(commands.golden()) == set(LINES)
