"""Writes the golden files anew, from the root: python -m tests.golden.make. Read the diff."""

from pathlib import Path

from dmlsplit.report import REPORTS
from tests.test_report import assessment, unversioned

for name, report in REPORTS.items():
    text = unversioned(report(assessment()))
    Path(__file__).with_name(f"report.{name}").write_text(text + "\n", encoding="utf-8")
