"""Everything that is known about one split, as text for people."""

from dmlsplit.lint.report.findings import fix_lines, group_diagnostics, location, outcome_of
from dmlsplit.lint.verdict import Outcome, Verdict
from dmlsplit.messages import printable, wrapped


def paragraph(verdict: Verdict) -> str:
    """The verdict, what DirectML would get, why, the first level that accepts it, and the fixes."""
    head = wrapped(f"{location(verdict.site)}: {summary_of(verdict)}", "")
    return "\n".join([head, *details(verdict)])


def summary_of(verdict: Verdict) -> str:
    """The operator of a split and its verdict, in a few words."""
    return f"{verdict.site.operator}: {outcome_of(verdict)}"


def details(verdict: Verdict, indent: str = "  ") -> list[str]:
    """The lines after the verdict."""
    lines = []
    if verdict.outcome is Outcome.RUNS and verdict.descriptor is None:
        lines.append("all outputs are empty, so the split does not reach DirectML")
    if verdict.descriptor is not None:
        sized = " (shown with dynamic sizes = 1)" if verdict.sizes else ""
        lines.append(f"{verdict.descriptor}{sized}")
    for reason, others in group_diagnostics(verdict):
        severity = "" if reason.severity == "error" else f" ({reason.severity})"
        lines.append(f"{reason.rule.id}{severity}: {printable(reason.message)}{others}")
    if verdict.minimum is not None:
        lines.append(f"first accepted at {verdict.minimum}")
    return [indented(line, indent) for line in [*lines, *fix_lines(verdict)]]


def indented(text: str, indent: str = "  ") -> str:
    """A line of a paragraph, wrapped; its own indentation is added."""
    line = text.lstrip()
    return wrapped(line, indent + " " * (len(text) - len(line)))
