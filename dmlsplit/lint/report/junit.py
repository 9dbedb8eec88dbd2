"""JUnit XML, for CI servers."""

import xml.etree.ElementTree as ET

from dmlsplit.lint.report.phrases import address, details, headline
from dmlsplit.lint.verdict import Assessment, Outcome, Verdict
from dmlsplit.messages import printable

# The attribute that counts the elements of each tag.
_COUNTS = {"testcase": "tests", "failure": "failures", "error": "errors", "skipped": "skipped"}


def junit_report(assessment: Assessment) -> str:
    """JUnit XML: one suite per file, one case per split."""
    root = ET.Element("testsuites", name="dmlsplit")
    suites: dict[str, ET.Element] = {}

    def case(file: str, name: str) -> ET.Element:
        if file not in suites:
            suites[file] = ET.SubElement(root, "testsuite", name=printable(file))
        return ET.SubElement(suites[file], "testcase", classname=printable(file), name=name)

    for each in assessment.diagnostics:
        failure = ET.SubElement(case("target", str(assessment.target)), "failure")
        failure.set("message", f"{each.rule.id}: {each.message}")
        failure.set("type", "target")
        failure.text = f"Fix: {each.hint}"
    for verdict in assessment.verdicts:
        site = verdict.site
        _describe(case(site.file, f"{address(site)} ({site.operator})"), verdict, assessment)
    for file, message in assessment.unreadable:
        ET.SubElement(case(file, "read"), "error", message=printable(message), type="unreadable")
    for element in (*suites.values(), root):
        for tag, count in _COUNTS.items():
            element.set(count, str(sum(1 for _ in element.iter(tag))))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode")


def _describe(case: ET.Element, verdict: Verdict, assessment: Assessment) -> None:
    head, said = headline(verdict, assessment), details(verdict)
    if assessment.fails(verdict):
        failure = ET.SubElement(case, "failure", message=head, type=str(verdict.outcome))
        failure.text = "\n".join(said)
    elif verdict.outcome is Outcome.UNKNOWN:
        ET.SubElement(case, "skipped", message="; ".join([head, *said]))
    elif said:
        ET.SubElement(case, "system-out").text = "\n".join(said)
