"""The whole output of the command line, against transcripts: tests/golden/cli."""

import re
from pathlib import Path

import pynvml
import pytest

from dmlsplit.cli import build_parser, main
from dmlsplit.cli.completion import parsers
from tests.golden import commands
from tests.support.fixtures import Patch

GOLDEN = commands.golden()
REFUSED = "validate verdicts.onnx --windows 19041"


def times(folder: Path) -> dict[Path, int]:
    """When each file of a folder was written."""
    return {path: path.lstat().st_mtime_ns for path in (folder, *folder.rglob("*"))}


@pytest.fixture(scope="module")
def written() -> dict[Path, dict[Path, int]]:
    """Folders with the files that the commands read, and their times."""
    return {}


@pytest.fixture(autouse=True)
def here(
    written: dict[Path, dict[Path, int]],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: Patch,
) -> None:
    """A folder in which no command has written anything yet, on a machine without a GPU."""

    def absent() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", absent)
    for name, value in commands.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    folder = next((each for each in written if times(each) == written[each]), None)
    if folder is None:
        written.clear()
        folder = tmp_path_factory.mktemp("golden") / "here"
        commands.write_inputs(folder)
        written[folder] = times(folder)
    monkeypatch.chdir(folder)


@pytest.mark.parametrize("line", GOLDEN)
def test_each_command_prints_its_transcript(line: str) -> None:
    found, expected = commands.transcript(line, main), GOLDEN[line].rstrip("\n")
    if "usage: " in expected:  # argparse breaks lines differently from version to version.
        assert re.sub(r"\n[>!]", "", found).split() == re.sub(r"\n[>!]", "", expected).split()
    else:
        assert found == expected


def test_every_command_has_its_help_and_every_format_a_report() -> None:
    for parser in parsers(build_parser()):
        assert f"{parser.prog} --help".removeprefix("dmlsplit ") in GOLDEN
        for action in parser._actions:
            if "--format" in action.option_strings and "validate" in parser.prog:
                assert action.choices
                assert all(f"{REFUSED} --format {form}" in GOLDEN for form in action.choices)
