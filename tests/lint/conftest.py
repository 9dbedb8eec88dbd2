"""Fixtures of reports."""

from typing import Any

import pytest

from dmlsplit.cli import main
from dmlsplit.lint import check
from dmlsplit.lint.verdict import Assessment, Verdict
from tests.support.advice import Reported
from tests.support.fixtures import Capsys, Patch


@pytest.fixture
def reported(monkeypatch: Patch, capsys: Capsys) -> Reported:
    """Runs the command; the verdicts that it reports."""
    assessments: list[Assessment] = []
    honest = check.assess

    def recorded(*arguments: Any, **options: Any) -> Assessment:
        assessments.append(honest(*arguments, **options))
        return assessments[-1]

    def run(*line: str) -> tuple[Verdict, ...]:
        monkeypatch.setattr(check, "assess", recorded)
        assert main(["validate", *line]) in (0, 1), capsys.readouterr().err
        capsys.readouterr()
        return assessments[-1].verdicts

    return run
