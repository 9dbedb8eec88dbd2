"""JUnit XML, for CI servers."""

import xml.etree.ElementTree as ET

from dmlsplit.lint.report.findings import DEFECT, Finding, address, findings
from dmlsplit.lint.verdict import Assessment
from dmlsplit.messages import printable

# The attribute that counts the elements of each tag.
_COUNTS = {"testcase": "tests", "failure": "failures", "error": "errors", "skipped": "skipped"}


def junit_report(assessment: Assessment) -> str:
    """JUnit XML: one suite per file, one case per split."""
    root = ET.Element("testsuites", name="dmlsplit")
    suites: dict[str, ET.Element] = {}
    for finding in findings(assessment):
        file = printable(finding.file or finding.subject or finding.title)
        if file not in suites:
            suites[file] = ET.SubElement(root, "testsuite", name=file)
        if finding.title != DEFECT and finding.sites:
            first, *_ = finding.sites
            name = f"{address(first)} ({first.operator})"
        else:
            name = finding.subject or "read"
        _describe(ET.SubElement(suites[file], "testcase", classname=file, name=name), finding)
    for element in (*suites.values(), root):
        for tag, count in _COUNTS.items():
            element.set(count, str(sum(1 for _ in element.iter(tag))))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode")


def _describe(case: ET.Element, finding: Finding) -> None:
    """Add to a case what became of its finding."""
    details = "\n".join(finding.details)
    if finding.status == "failed":
        tag = "error" if finding.title == "unreadable" else "failure"
        failure = ET.SubElement(case, tag, message=finding.headline, type=finding.title)
        failure.text = details
    elif finding.status == "unknown":
        ET.SubElement(case, "skipped", message="; ".join([finding.headline, *finding.details]))
    elif details:
        ET.SubElement(case, "system-out").text = details
