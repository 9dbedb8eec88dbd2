"""Verdicts as text, json, github, sarif or junit: the only place that formats them.

Every writer is a pure function from an `Assessment` to a string.
"""

from __future__ import annotations

from collections.abc import Callable

from dmlsplit.lint.judge import Assessment
from dmlsplit.lint.report.github import github_report
from dmlsplit.lint.report.json import json_report
from dmlsplit.lint.report.junit import junit_report
from dmlsplit.lint.report.sarif import sarif_report
from dmlsplit.lint.report.text import text_report

REPORTS: dict[str, Callable[[Assessment], str]] = {
    "text": text_report,
    "json": json_report,
    "github": github_report,
    "sarif": sarif_report,
    "junit": junit_report,
}
