"""Text for people: a block for each cause, as a compiler prints it; the fix; the totals.

Splits about which nothing has to be said are only counted, except in the verbose text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from dmlsplit.lint.report.causes import Cause, Place, Reason, causes
from dmlsplit.lint.report.excerpt import excerpt
from dmlsplit.lint.report.findings import address, findings
from dmlsplit.lint.report.fix_command import fix_command
from dmlsplit.lint.report.paragraph import details, indented, summary_of
from dmlsplit.lint.report.totals import totals
from dmlsplit.lint.rules import RULES
from dmlsplit.lint.verdict import Assessment
from dmlsplit.messages import commands, cut_middle, omitted_line, width, wrapped

Detail = Literal["quiet", "usual", "verbose"]

_COLOURS = {"error": "1;31", "warning": "1;33", "note": "1;36", "ok": "1;32"}
_PLACE_COLOUR = "34"
_ARROW = "  --> "
_MAX_REASONS = 4  # of one cause, except in the verbose text


def text_report(
    assessment: Assessment,
    colour: bool = False,
    detail: Detail = "usual",
    heading: str = "",
    *,
    paths: Sequence[str] = (),
    is_cut: bool = False,
) -> str:
    """The assessment as text after a heading, optionally with colours.

    "quiet" leaves out the totals; "verbose" shows every split. `paths` are those that the user
    gave, for the command that rewrites their models. `is_cut` cuts long names to fit the terminal.
    """
    style = _Style(colour, is_cut)
    groups = causes(findings(assessment))
    is_verbose = detail == "verbose"
    blocks = [_verbose_block(c, style) if is_verbose else _block(c, style) for c in groups]
    if is_verbose:
        blocks += _plain_blocks(assessment, style)
    command = fix_command(assessment, paths)
    last = [f"{style.bold('Fix:')} {command}"] if command else []
    if detail != "quiet":
        last += [indented(line, "") for line in totals(assessment, groups)]
    return "\n\n".join(filter(None, [heading, *blocks, "\n".join(last)]))


@dataclass(frozen=True)
class _Style:
    """How text is shown: with or without colours, with or without cuts."""

    colour: bool
    is_cut: bool

    def _paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour else text

    def bold(self, text: str) -> str:
        return self._paint(text, "1")

    def header(self, mark: str, severity: str, message: str) -> str:
        """A line that begins with a coloured mark, such as ``error[RULE]``."""
        line = wrapped(f"{mark} {message}", "")
        return self._paint(line[: len(mark)], _COLOURS[severity]) + line[len(mark) :]

    def place(self, place: Place, end: str = "") -> str:
        """The line of a place; on a terminal, its name is cut in the middle."""
        name = place.name
        if self.is_cut:
            name = cut_middle(name, max(8, width() - len(_ARROW) - len(end)))
        return f"{self._paint(_ARROW + name, _PLACE_COLOUR)}{end}"


def _headers(reasons: Sequence[Reason], style: _Style) -> Iterator[str]:
    for severity, rule, message in reasons:
        yield style.header(f"{severity}[{rule}]", severity, message)


def _block(cause: Cause, style: _Style) -> str:
    """A cause in a few lines: what is wrong, where first, what happens, and the fix."""
    lines = list(_headers(cause.statement.reasons[:_MAX_REASONS], style))
    lines += map(indented, omitted_line(len(cause.statement.reasons), _MAX_REASONS))
    if cause.places:
        lines.append(style.place(cause.places[0], _alike(cause)))
        lines += [f"  {node}" for site in cause.findings[0].sites[:1] if (node := excerpt(site))]
        lines += [indented(remark) for remark in [cause.places[0].remark] if remark]
    if cause.statement.outcome:
        lines.append(indented(cause.statement.outcome))
    lines += [indented(line) for line in _fix_lines(cause)]
    return "\n".join(lines)


def _alike(cause: Cause) -> str:
    """How many other places there are."""
    others = len(cause.places) - 1
    files = len({place.file for place in cause.places})
    return f" (+{others} more{f' in {files} files' if files > 1 else ''})" if others else ""


def _fix_lines(cause: Cause) -> Iterator[str]:
    fixes = cause.statement.fixes
    texts = [fix for fix in fixes if not commands(fix)]
    lines = ["; or ".join(texts)] if texts else []
    lines += [fix for fix in fixes if commands(fix)]  # each on a line, to be pasted
    for index, line in enumerate(lines):
        yield f"{'or' if index else 'fix'}: {line}"
    yield from (f"note: {note}" for note in cause.statement.notes)
    if cause.fixes_differ:
        yield "this fix is for the first node; --verbose shows those of the others"


def _verbose_block(cause: Cause, style: _Style) -> str:
    """A cause with its rules, and with all that is known about each place."""
    lines = []
    for header, reason in zip(
        _headers(cause.statement.reasons, style), cause.statement.reasons, strict=True
    ):
        lines += [header, indented(f"rule: {RULES[reason.rule].sentence.replace('`', '')}")]
    lines += _places(cause.places, style)
    if not any(place.verdict for place in cause.places):
        lines += [indented(outcome) for outcome in [cause.statement.outcome] if outcome]
        lines += [indented(line) for line in _fix_lines(cause)]
    return "\n".join(lines)


def _plain_blocks(assessment: Assessment, style: _Style) -> Iterator[str]:
    """The splits about which no more has to be said, one block for each verdict."""
    equal: dict[tuple[str, ...], list[Place]] = {}
    for verdict in assessment.verdicts:
        if verdict.is_plain and not assessment.fails(verdict):
            harmful = dict.fromkeys(defect.rule.id for defect in verdict.defects)
            place = Place(verdict.site.file, address(verdict.site), verdict=verdict)
            equal.setdefault((verdict.outcome, *harmful), []).append(place)
    for (outcome, *harm), places in equal.items():
        head = style.header("ok", "ok", outcome)
        if harm:
            text = f"{outcome}; the numbers may be wrong ({', '.join(harm)})"
            head = style.header("warning", "warning", text)
        yield "\n".join([head, *_places(places, style)])


def _places(places: Sequence[Place], style: _Style) -> Iterator[str]:
    """The lines of places; those with equal details come together, above these details."""
    equal: dict[tuple[str, ...], list[Place]] = {}
    for place in places:
        equal.setdefault(tuple(_whole(place)), []).append(place)
    for text, group in equal.items():
        yield from map(style.place, group)
        yield from text


def _whole(place: Place) -> list[str]:
    """All that is known about the split of a place, or how a defect may affect it."""
    if place.verdict is None:
        return [indented(remark, "    ") for remark in [place.remark] if remark]
    return [wrapped(summary_of(place.verdict), "    "), *details(place.verdict, "    ")]
