"""Annotations. Source: GitHub, "Workflow commands for GitHub Actions", error messages."""

from collections.abc import Sequence
from itertools import groupby

from dmlsplit.lint.report.finding_groups import grouped
from dmlsplit.lint.report.findings import (
    DEFECT,
    MAX_SPLITS,
    Finding,
    address,
    findings,
    with_slashes,
)
from dmlsplit.lint.verdict import Assessment
from dmlsplit.messages import omitted_lines, printable


def github_report(assessment: Assessment) -> str:
    """One workflow command per group and file: GitHub shows the first ten errors of a step."""
    all_findings = list(findings(assessment))
    commands = [
        _command(list(alike))
        for group in grouped(all_findings)
        for _, alike in groupby(group.findings, key=lambda finding: finding.file)
    ]
    unread = [_command([finding]) for finding in all_findings if finding.title == "unreadable"]
    return "\n".join([*commands, *unread])


def _command(alike: Sequence[Finding]) -> str:
    """The workflow command for findings that are alike in one file."""

    def escaped(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    def value(text: str) -> str:
        return escaped(printable(text)).replace(":", "%3A").replace(",", "%2C")

    finding, *others_alike = alike
    others = [address(other.sites[0]) for other in others_alike if other.sites]
    kind = {"failed": "error", "note": "notice"}.get(finding.status, "warning")
    where = f",file={value(with_slashes(finding.file))},line=1" if finding.file else ""
    # The subject of a defect ends with its rule, which the headline continues.
    mark = " " if finding.title == DEFECT else ": "
    head = f"{finding.subject}{mark}{finding.headline}" if finding.subject else finding.headline
    lines = [head, *finding.details]
    if others:
        names = [*others[:MAX_SPLITS], *omitted_lines(len(others), MAX_SPLITS)]
        lines.append(f"the same: {', '.join(names)}")
    message = escaped("\n".join(lines))
    return f"::{kind} title={value(f'dmlsplit: {finding.title}')}{where}::{message}"
