"""JUnit XML, as CI servers read it."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from dmlsplit.lint.judge import Assessment, Outcome, Verdict
from dmlsplit.lint.report.phrases import address, grouped, headline, sentence
from dmlsplit.messages import printable


def junit_report(assessment: Assessment) -> str:
    """Return JUnit XML: one suite per file, one case per split."""
    root = ET.Element("testsuites", name="dmlsplit")
    suites: dict[str, ET.Element] = {}
    for verdict in assessment.verdicts:
        suite = _suite(root, suites, verdict.site.file)
        name = f"{address(verdict.site)} ({verdict.site.operator})"
        case = ET.SubElement(suite, "testcase", classname=suite.attrib["name"], name=name)
        _case_body(case, verdict, assessment)
    for file, message in assessment.unreadable:
        suite = _suite(root, suites, file)
        case = ET.SubElement(suite, "testcase", classname=suite.attrib["name"], name="read")
        ET.SubElement(case, "error", message=printable(message), type="unreadable")
    for element in (*suites.values(), root):
        for kind in ("testcase", "failure", "error", "skipped"):
            tag = {"testcase": "tests", "failure": "failures", "error": "errors"}.get(kind, kind)
            element.set(tag, str(sum(1 for _ in element.iter(kind))))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode")


def _suite(root: ET.Element, suites: dict[str, ET.Element], file: str) -> ET.Element:
    if file not in suites:
        suites[file] = ET.SubElement(root, "testsuite", name=printable(file))
    return suites[file]


def _case_body(case: ET.Element, verdict: Verdict, assessment: Assessment) -> None:
    said = [f"{r.rule.id}: {sentence(r, n)}" for r, n in grouped(verdict.diagnostics)]
    said += [f"Fix: {verdict.fix}"] if verdict.fix else []
    head = headline(verdict, assessment)
    if assessment.fails(verdict):
        failure = ET.SubElement(case, "failure", message=head, type=str(verdict.outcome))
        failure.text = "\n".join(said)
    elif verdict.outcome is Outcome.UNKNOWN:
        ET.SubElement(case, "skipped", message="; ".join([head, *said]))
    elif said:
        ET.SubElement(case, "system-out").text = "\n".join(said)
