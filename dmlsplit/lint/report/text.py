"""Text for people: a paragraph for each split, then a summary table.

Where many splits are accepted, those of a file are one row of the table.
"""

import math
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from dmlsplit.directml.rules.violation import Violation
from dmlsplit.lint.report.phrases import grouped, location, outcome_of
from dmlsplit.lint.verdict import Assessment, Outcome, Verdict
from dmlsplit.messages import counted, printable, width, wrapped

Detail = Literal["quiet", "usual", "verbose"]

_OUTCOME_WIDTH = max(map(len, Outcome))
_NAME_WIDTH = 23  # at least; the other columns take 57
_MOST_OK = 8  # accepted splits that are shown one by one
_COLOURS = {
    Outcome.OK: "32",
    Outcome.ALWAYS: "32",
    Outcome.EQUIVALENT: "33",
    Outcome.REFUSED: "31",
    Outcome.NEVER: "31",
    Outcome.UNKNOWN: "36",
}
_Paint = Callable[[str, Outcome], str]


def text_report(assessment: Assessment, colour: bool = False, detail: Detail = "usual") -> str:
    """The assessment as text, optionally with coloured verdicts.

    "quiet" leaves out accepted splits; "verbose" shows every split.
    """

    def paint(text: str, outcome: Outcome) -> str:
        return f"\x1b[{_COLOURS[outcome]}m{text}\x1b[0m" if colour else text

    most: dict[Detail, float] = {"quiet": 0, "usual": _MOST_OK, "verbose": math.inf}
    is_long = sum(each.is_plain for each in assessment.verdicts) > most[detail]
    told = [each for each in assessment.verdicts if not (is_long and each.is_plain)]
    last: list[str] = []
    for each in assessment.diagnostics:
        last.append(wrapped(f"{assessment.target}: {_said(each)}", ""))
        last.append(wrapped(f"fix: {each.hint}", "  "))
    if detail != "quiet":
        last += _summary(assessment, _rows(assessment.verdicts, is_long), paint)
    texts = [*("\n".join(_paragraph(verdict, paint)) for verdict in told), "\n".join(last)]
    return "\n\n".join(filter(None, texts))


def _paragraph(verdict: Verdict, paint: _Paint) -> Iterator[str]:
    outcome = str(verdict.outcome)
    head = f"{location(verdict.site)}: {verdict.site.operator}: {outcome_of(verdict)}"
    head = wrapped(head, "")
    before, _, after = head.rpartition(outcome)
    yield before + paint(outcome, verdict.outcome) + after if before else head
    if verdict.descriptor is not None:
        sized = ", with dynamic sizes of 1" if verdict.sizes else ""
        yield wrapped(f"{verdict.descriptor}{sized}", "  ")
    for diagnostic, others in grouped(verdict):
        yield wrapped(f"{_said(diagnostic)}{others}", "  ")
    if verdict.minimum is not None:
        yield wrapped(f"accepted from {verdict.minimum}", "  ")
    if verdict.fix:
        yield wrapped(f"fix: {verdict.fix}", "  ")


def _said(diagnostic: Violation) -> str:
    severity = "" if diagnostic.field else f"{diagnostic.severity}: "
    return f"{diagnostic.rule.id} {severity}{printable(diagnostic.message)}"


_Row = tuple[str, Verdict]  # a split's name and verdict


def _summary(assessment: Assessment, rows: Sequence[_Row], paint: _Paint) -> Iterator[str]:
    columns = max(_NAME_WIDTH, width() - (80 - _NAME_WIDTH))
    if rows:
        header = f"{'split':<{columns}}  {'verdict':<{_OUTCOME_WIDTH}}  level  DirectML  Windows"
        yield header
        yield "-" * len(header)
    names = _names([name for name, _ in rows], columns)
    for name, (_, verdict) in zip(names, rows, strict=True):
        yield _row(name, columns, verdict, paint)
    counts = "; ".join(f"{n} {outcome}" for outcome, n in assessment.counts.items() if n)
    total = len(assessment.verdicts)
    files = len({verdict.site.file for verdict in assessment.verdicts})
    found = f"{counted(total, 'split')} in {counted(files, 'file')}" if total else "no splits"
    yield wrapped(f"{found} at {assessment.target}: {counts or 'nothing to judge'}", "")
    if assessment.unreadable:
        yield f"{counted(len(assessment.unreadable), 'file')} could not be read"


def _rows(verdicts: Sequence[Verdict], is_long: bool) -> list[_Row]:
    """A row per split; if there are many, the accepted ones of each file share a row, first.

    Such a row shows the level that accepts all of its splits.
    """
    rows: list[_Row] = []
    groups: dict[tuple[str, Outcome], list[Verdict]] = {}
    for verdict in verdicts:
        if is_long and verdict.is_plain:
            groups.setdefault((verdict.site.file, verdict.outcome), []).append(verdict)
        else:
            rows.append((location(verdict.site), verdict))
    accepted = []
    for (file, _), group in groups.items():
        highest = max(group, key=lambda each: each.minimum is not None and each.minimum.level)
        accepted.append((f"{printable(file)}: {counted(len(group), 'split')}", highest))
    return accepted + rows


def _names(full: Sequence[str], columns: int) -> list[str]:
    """Names shortened to the column, if they stay unique."""
    # The front is cut, because places differ at the end.
    cut = [name if len(name) <= columns else "..." + name[3 - columns :] for name in full]
    seen = Counter(cut)
    return [short if seen[short] == 1 else name for short, name in zip(cut, full, strict=True)]


def _row(name: str, columns: int, verdict: Verdict, paint: _Paint) -> str:
    if len(name) > columns:
        name = "\n".join([*textwrap.wrap(name, width()), " " * columns])
    outcome = paint(f"{verdict.outcome:<{_OUTCOME_WIDTH}}", verdict.outcome)
    level, directml, windows = verdict.minimum.cells if verdict.minimum else ("-", "-", "-")
    return f"{name:<{columns}}  {outcome}  {level:<5}  {directml:<8}  {windows}"
