"""Annotations. Source: GitHub, "Workflow commands for GitHub Actions", error messages."""

from dmlsplit.lint.report.findings import DEFECT, Finding, findings, with_slashes
from dmlsplit.lint.verdict import Assessment
from dmlsplit.messages import printable


def github_report(assessment: Assessment) -> str:
    """One workflow command per finding that needs attention."""
    return "\n".join(
        _command(finding) for finding in findings(assessment) if finding.status != "plain"
    )


def _command(finding: Finding) -> str:
    def escaped(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    def value(text: str) -> str:
        return escaped(printable(text)).replace(":", "%3A").replace(",", "%2C")

    kind = {"failed": "error", "note": "notice"}.get(finding.status, "warning")
    where = f",file={value(with_slashes(finding.file))},line=1" if finding.file else ""
    # The subject of a defect ends with its rule, which the headline continues.
    mark = " " if finding.title == DEFECT else ": "
    head = f"{finding.subject}{mark}{finding.headline}" if finding.subject else finding.headline
    message = escaped("\n".join([head, *finding.details]))
    return f"::{kind} title={value(f'dmlsplit: {finding.title}')}{where}::{message}"
