"""Reports, each a pure function of an `Assessment`; the text has options for terminals."""

from collections.abc import Callable

from dmlsplit.lint.report.github import github_report
from dmlsplit.lint.report.json import json_report
from dmlsplit.lint.report.junit import junit_report
from dmlsplit.lint.report.sarif import sarif_report
from dmlsplit.lint.report.text import text_report
from dmlsplit.lint.verdict import Assessment

REPORTS: dict[str, Callable[[Assessment], str]] = {
    "text": text_report,
    "json": json_report,
    "github": github_report,
    "sarif": sarif_report,
    "junit": junit_report,
}
