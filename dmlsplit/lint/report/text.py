"""Text that fits 80 columns: a block for each split, and a summary table last."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dmlsplit.lint.judge import Assessment, Diagnostic, Outcome, Verdict
from dmlsplit.lint.report.phrases import grouped, location
from dmlsplit.messages import printable, wrapped

_NAME_WIDTH = 33

Paint = Callable[[str, Outcome], str]

_COLOURS = {
    Outcome.OK: "32",
    Outcome.LEGALIZED: "33",
    Outcome.REFUSED: "31",
    Outcome.UNKNOWN: "36",
}


def plain(text: str, outcome: Outcome) -> str:
    """Leave text as it is."""
    return text


def coloured(text: str, outcome: Outcome) -> str:
    """Return text in the colour of a verdict, for terminals."""
    return f"\x1b[{_COLOURS[outcome]}m{text}\x1b[0m"


def text_report(assessment: Assessment, paint: Paint = plain) -> str:
    """Return the assessment as text; `paint` colours the verdicts."""
    blocks = ["\n".join(_block(verdict, paint)) for verdict in assessment.verdicts]
    return "\n\n".join([*blocks, "\n".join(_summary(assessment, paint))])


def _block(verdict: Verdict, paint: Paint) -> Iterator[str]:
    site = verdict.site
    place = location(site)
    said = wrapped(f"{place}: {site.operator}: {verdict.outcome}", "")
    yield said.removesuffix(verdict.outcome) + paint(verdict.outcome, verdict.outcome)
    for desc in verdict.descriptors:
        yield wrapped(str(desc), "  ")
    for diagnostic, count in grouped(verdict.diagnostics):
        yield wrapped(f"{place}: {_said(diagnostic, count)}", "  ")
    if verdict.minimum is not None:
        yield wrapped(f"accepted from {verdict.minimum}", "  ")
    if verdict.fix:
        yield wrapped(f"fix: {verdict.fix}", "  ")


def _said(diagnostic: Diagnostic, count: int) -> str:
    others = f" (and {count - 1} more)" if count > 1 else ""
    if not diagnostic.field:
        return (
            f"{diagnostic.rule.id} {diagnostic.severity}: {printable(diagnostic.message)}{others}"
        )
    field = ".".join(filter(None, (diagnostic.tensor, diagnostic.field)))
    what = f"is {printable(diagnostic.found)}, must be {diagnostic.allowed}"
    return f"{diagnostic.rule.id} {field}: {what}{others}"


def _summary(assessment: Assessment, paint: Paint) -> Iterator[str]:
    if assessment.verdicts:
        header = f"{'split':<{_NAME_WIDTH}}  {'verdict':<19}  level  DirectML  Windows"
        yield header
        yield "-" * len(header)
    for verdict in assessment.verdicts:
        yield _row(verdict, paint)
    counts = ", ".join(f"{n} {outcome}" for outcome, n in assessment.counts.items() if n)
    total = len(assessment.verdicts)
    files = len({verdict.site.file for verdict in assessment.verdicts})
    found = f"{_count(total, 'split')} in {_count(files, 'file')}" if total else "no splits"
    yield wrapped(f"{found} at {assessment.target}: {counts or 'nothing to judge'}", "")
    if assessment.unreadable:
        yield f"{_count(len(assessment.unreadable), 'file')} could not be read"


def _row(verdict: Verdict, paint: Paint) -> str:
    site, least = verdict.site, verdict.minimum
    name = _shortened(location(site), _NAME_WIDTH)
    outcome = paint(f"{verdict.outcome:<19}", verdict.outcome)
    level, directml = (str(least.level), least.directml) if least else ("-", "-")
    windows = str(least.windows.build) if least and least.windows else "-"
    return f"{name:<{_NAME_WIDTH}}  {outcome}  {level:<5}  {directml:<8}  {windows}"


def _shortened(text: str, width: int) -> str:
    """Keep the end of a long name: places differ there."""
    return text if len(text) <= width else "..." + text[len(text) - width + 3 :]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
