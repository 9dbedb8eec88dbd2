"""Annotations of GitHub Actions."""

from __future__ import annotations

from dmlsplit.lint.judge import Assessment, Outcome, Verdict
from dmlsplit.lint.report.phrases import grouped, headline, location, sentence
from dmlsplit.messages import printable


def github_report(assessment: Assessment) -> str:
    """Return one workflow command per split that needs attention.

    Format: GitHub, "Workflow commands for GitHub Actions", setting an error message.
    """
    lines = []
    for verdict in assessment.verdicts:
        if verdict.outcome is Outcome.OK and not verdict.diagnostics:
            continue
        kind = _level(verdict, assessment)
        said = [f"{r.rule.id}: {sentence(r, n)}" for r, n in grouped(verdict.diagnostics)]
        place = location(verdict.site)
        body = [f"{place}: {headline(verdict, assessment)}", *said]
        body += [f"Fix: {verdict.fix}"] if verdict.fix else []
        title = f"dmlsplit: {verdict.outcome}"
        lines.append(_command(kind, title, verdict.site.file, "\n".join(body)))
    for file, message in assessment.unreadable:
        lines.append(_command("error", "dmlsplit: unreadable", file, printable(message)))
    return "\n".join(lines)


def _level(verdict: Verdict, assessment: Assessment) -> str:
    return "error" if assessment.fails(verdict) else "warning"


def _command(kind: str, title: str, file: str, message: str) -> str:
    def escaped(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    def value(text: str) -> str:
        return escaped(printable(text)).replace(":", "%3A").replace(",", "%2C")

    return f"::{kind} title={value(title)},file={value(file)},line=1::{escaped(message)}"
