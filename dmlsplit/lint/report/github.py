"""Annotations. Source: GitHub, "Workflow commands for GitHub Actions", error messages."""

from dmlsplit.lint.report.phrases import details, headline, location, with_slashes
from dmlsplit.lint.verdict import Assessment
from dmlsplit.messages import printable


def github_report(assessment: Assessment) -> str:
    """One workflow command per split that needs attention."""
    lines = []
    for each in assessment.diagnostics:
        message = f"{assessment.target}: {each.rule.id}: {each.message}\nFix: {each.hint}"
        lines.append(_command("error", "target", "", message))
    for verdict in assessment.verdicts:
        if verdict.is_plain:
            continue
        kind = "error" if assessment.fails(verdict) else "warning"
        head = f"{location(verdict.site)}: {headline(verdict, assessment)}"
        message = "\n".join([head, *details(verdict)])
        lines.append(_command(kind, str(verdict.outcome), verdict.site.file, message))
    for file, message in assessment.unreadable:
        lines.append(_command("error", "unreadable", file, printable(message)))
    return "\n".join(lines)


def _command(kind: str, title: str, file: str, message: str) -> str:
    def escaped(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    def value(text: str) -> str:
        return escaped(printable(text)).replace(":", "%3A").replace(",", "%2C")

    title = value(f"dmlsplit: {title}")
    place = f",file={value(with_slashes(file))},line=1" if file else ""
    return f"::{kind} title={title}{place}::{escaped(message)}"
