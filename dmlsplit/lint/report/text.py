"""Text for 80 columns: a paragraph for each split, then a summary table."""

import textwrap
from collections import Counter
from collections.abc import Callable, Iterator

from dmlsplit.directml.rules.violation import Violation
from dmlsplit.lint.report.phrases import grouped, location
from dmlsplit.lint.report.phrases import outcome as outcome_of
from dmlsplit.lint.verdict import Assessment, Outcome, Verdict
from dmlsplit.messages import WIDTH, counted, printable, wrapped

_NAME_WIDTH, _OUTCOME_WIDTH = 23, max(map(len, Outcome))
_COLOURS = {
    Outcome.OK: "32",
    Outcome.ALWAYS: "32",
    Outcome.EQUIVALENT: "33",
    Outcome.REFUSED: "31",
    Outcome.NEVER: "31",
    Outcome.UNKNOWN: "36",
}
_Paint = Callable[[str, Outcome], str]


def text_report(assessment: Assessment, colour: bool = False) -> str:
    """The assessment as text, optionally with coloured verdicts."""

    def paint(text: str, outcome: Outcome) -> str:
        return f"\x1b[{_COLOURS[outcome]}m{text}\x1b[0m" if colour else text

    paragraphs = ["\n".join(_paragraph(verdict, paint)) for verdict in assessment.verdicts]
    return "\n\n".join([*paragraphs, "\n".join(_summary(assessment, paint))])


def _paragraph(verdict: Verdict, paint: _Paint) -> Iterator[str]:
    outcome = str(verdict.outcome)
    head = f"{location(verdict.site)}: {verdict.site.operator}: {outcome_of(verdict)}"
    head = wrapped(head, "")
    before, _, after = head.rpartition(outcome)
    yield before + paint(outcome, verdict.outcome) + after if before else head
    for desc in verdict.descriptors:
        yield wrapped(f"{desc}{', with dynamic sizes of 1' if verdict.sizes else ''}", "  ")
    for diagnostic, others in grouped(verdict):
        yield wrapped(f"{_said(diagnostic)}{others}", "  ")
    if verdict.minimum is not None:
        yield wrapped(f"accepted from {verdict.minimum}", "  ")
    if verdict.fix:
        yield wrapped(f"fix: {verdict.fix}", "  ")


def _said(diagnostic: Violation) -> str:
    if not diagnostic.field:
        return f"{diagnostic.rule.id} {diagnostic.severity}: {printable(diagnostic.message)}"
    found = printable(diagnostic.found)
    return f"{diagnostic.rule.id} {diagnostic.place}: is {found}, must be {diagnostic.allowed}"


def _summary(assessment: Assessment, paint: _Paint) -> Iterator[str]:
    for diagnostic in assessment.diagnostics:
        yield wrapped(f"{assessment.target}: {_said(diagnostic)}", "")
        yield wrapped(f"fix: {diagnostic.rule.hint}", "  ")
    if assessment.verdicts:
        header = (
            f"{'split':<{_NAME_WIDTH}}  {'verdict':<{_OUTCOME_WIDTH}}  level  DirectML  Windows"
        )
        yield header
        yield "-" * len(header)
    for name, verdict in zip(_names(assessment), assessment.verdicts, strict=True):
        yield _row(name, verdict, paint)
    counts = "; ".join(f"{n} {outcome}" for outcome, n in assessment.counts.items() if n)
    total = len(assessment.verdicts)
    files = len({verdict.site.file for verdict in assessment.verdicts})
    found = f"{counted(total, 'split')} in {counted(files, 'file')}" if total else "no splits"
    yield wrapped(f"{found} at {assessment.target}: {counts or 'nothing to judge'}", "")
    if assessment.unreadable:
        yield f"{counted(len(assessment.unreadable), 'file')} could not be read"


def _names(assessment: Assessment) -> list[str]:
    """A name for each row: shortened to the column, if it stays unique."""
    full = [location(verdict.site) for verdict in assessment.verdicts]
    # The front is cut, because places differ at the end.
    cut = [name if len(name) <= _NAME_WIDTH else "..." + name[3 - _NAME_WIDTH :] for name in full]
    seen = Counter(cut)
    return [short if seen[short] == 1 else name for short, name in zip(cut, full, strict=True)]


def _row(name: str, verdict: Verdict, paint: _Paint) -> str:
    if len(name) > _NAME_WIDTH:
        name = "\n".join([*textwrap.wrap(name, WIDTH), " " * _NAME_WIDTH])
    outcome = paint(f"{verdict.outcome:<{_OUTCOME_WIDTH}}", verdict.outcome)
    level, directml, windows = verdict.minimum.cells if verdict.minimum else ("-", "-", "-")
    return f"{name:<{_NAME_WIDTH}}  {outcome}  {level:<5}  {directml:<8}  {windows}"
