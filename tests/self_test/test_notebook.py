"""The notebook of one cell installs the extra that fits, and runs the self-test."""

import json
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.command import ROOT

(CELL,) = json.loads((ROOT / "docs" / "selftest.ipynb").read_text())["cells"]


@pytest.mark.parametrize(
    ("answer", "extra"),
    [
        ("580.95.05, 9.0\n", "cuda13"),
        ("550.54.15, 7.5\n", "cuda12"),
        ("580.95.05, 7.0\n", "cuda12"),
        ("590.1, 12.0\n590.1, 7.0\n", "cuda13"),
    ],
)
def test_the_notebook_installs_the_extra_that_fits_driver_and_gpu(
    answer: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = []

    def run(line: list[str], **_: Any) -> Any:
        lines.append(" ".join(line[1:]))
        return SimpleNamespace(stdout=answer)

    monkeypatch.setattr(subprocess, "run", run)
    exec(compile("".join(CELL["source"]), "cell", "exec"), {})
    *_, removal_line, install_line, test_line = lines
    assert removal_line.startswith("-m pip uninstall")
    assert f"dmlsplit[{extra}] @ git+https://" in install_line
    assert test_line == "-m dmlsplit selftest -o selftest.json"


def test_the_bug_form_asks_for_the_report_of_the_self_test() -> None:
    form = (ROOT / ".github" / "ISSUE_TEMPLATE" / "bug.yml").read_text()
    assert "attach the file that `dmlsplit selftest -o report.json` writes" in form
