"""What the documents say is what the code does."""

import doctest
import re
import shlex
from pathlib import Path

import pytest

from dmlsplit.cli import main
from dmlsplit.cli.levels import level_table

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_python_examples_of_the_readme_work() -> None:
    results = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert results.attempted > 10
    assert results.failed == 0


def test_the_level_table_of_the_readme_is_the_real_one() -> None:
    (shown,) = re.findall(r"<!-- levels:.*?```text\n(.*?)```", README, re.DOTALL)
    assert shown == level_table() + "\n"


def test_the_first_command_of_the_readme_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line, shown = re.findall(r"```console\n\$ (.*?)\n(.*?)```", README, re.DOTALL)[0]
    monkeypatch.chdir(ROOT)
    arguments = shlex.split(line.rpartition("bin/dmlsplit ")[2])
    assert arguments[-2:] == ["-o", "out"]
    assert main([*arguments[:-1], str(tmp_path)]) == 0
    assert capsys.readouterr().out.replace(str(tmp_path), "out") == shown


def test_the_dispatch_example_of_the_readme_prints_what_it_shows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    (shown,) = re.findall(r"\$ dmlsplit run (\S+\.json)\n(.*?)```", README, re.DOTALL)
    assert main(["run", shown[0]]) == 0
    assert capsys.readouterr().out == shown[1]


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"])
def test_links_inside_the_project_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", (ROOT / name).read_text()):
        assert (ROOT / target).exists(), target
