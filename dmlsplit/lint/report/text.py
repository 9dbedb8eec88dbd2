"""Text for people: a block for each group of findings, as a compiler prints it; totals.

Splits about which nothing has to be said are only counted, except in the verbose text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from dmlsplit.lint.report.excerpt import excerpt
from dmlsplit.lint.report.finding_groups import FindingGroup, Location, Reason, grouped
from dmlsplit.lint.report.findings import address, findings
from dmlsplit.lint.report.fix_command import fix_command
from dmlsplit.lint.report.paragraph import details, indented, summary_of
from dmlsplit.lint.report.totals import totals
from dmlsplit.lint.rules import RULES
from dmlsplit.lint.verdict import Assessment
from dmlsplit.messages import commands, cut_middle, omitted_lines, width, wrapped

Detail = Literal["quiet", "usual", "verbose"]

_COLOURS = {"error": "1;31", "warning": "1;33", "note": "1;36", "ok": "1;32"}
_LOCATION_COLOUR = "34"
_ARROW = "  --> "
# The most reasons of a block, except in the verbose text.
_MAX_REASONS = 4


def text_report(
    assessment: Assessment,
    heading: str = "",
    *,
    detail: Detail = "usual",
    colour: bool = False,
    paths: Sequence[str] = (),
    is_cut: bool = False,
) -> str:
    """The assessment as text after a heading, optionally with colours.

    "quiet" leaves out the totals; "verbose" shows every split. `paths` are those that the user
    gave, for the command that rewrites their models. `is_cut` cuts long names to fit the terminal.
    """
    style = _Style(colour, is_cut)
    groups = grouped(findings(assessment))
    is_verbose = detail == "verbose"
    blocks = [_verbose_block(g, style) if is_verbose else _block(g, style) for g in groups]
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
        """Text in a colour, by its code, if colours are wanted."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour else text

    def bold(self, text: str) -> str:
        """Text in bold type."""
        return self._paint(text, "1")

    def header(self, mark: str, severity: str, message: str) -> str:
        """A line that begins with a coloured mark, such as ``error[RULE]``."""
        line = wrapped(f"{mark} {message}", "")
        return self._paint(line[: len(mark)], _COLOURS[severity]) + line[len(mark) :]

    def location(self, location: Location, end: str = "") -> str:
        """The line of a location; on a terminal, its name is cut in the middle."""
        name = location.name
        if self.is_cut:
            name = cut_middle(name, max(8, width() - len(_ARROW) - len(end)))
        return f"{self._paint(_ARROW + name, _LOCATION_COLOUR)}{end}"


def _headers(reasons: Sequence[Reason], style: _Style) -> Iterator[str]:
    """The line of each reason."""
    for severity, rule, message in reasons:
        yield style.header(f"{severity}[{rule}]", severity, message)


def _block(group: FindingGroup, style: _Style) -> str:
    """A group in a few lines: what is wrong, where first, what happens, and the fix."""
    lines = list(_headers(group.statement.reasons[:_MAX_REASONS], style))
    lines += map(indented, omitted_lines(len(group.statement.reasons), _MAX_REASONS))
    if group.locations:
        first = group.locations[0]
        first_sites = group.findings[0].sites
        lines.append(style.location(first, _others_text(group)))
        if first_sites and (node := excerpt(first_sites[0])):
            lines.append(f"  {node}")
        if first.remark:
            lines.append(indented(first.remark))
    if group.statement.outcome:
        lines.append(indented(group.statement.outcome))
    lines += [indented(line) for line in _fix_lines(group)]
    return "\n".join(lines)


def _others_text(group: FindingGroup) -> str:
    """How many other locations there are."""
    others = len(group.locations) - 1
    files = len({location.file for location in group.locations})
    return f" (+{others} more{f' in {files} files' if files > 1 else ''})" if others else ""


def _fix_lines(group: FindingGroup) -> Iterator[str]:
    """The fixes of a group, any one of which suffices, and its notes."""
    fixes = group.statement.fixes
    texts = [fix for fix in fixes if not commands(fix)]
    lines = ["; or ".join(texts)] if texts else []
    # A command has a line of its own, from which it can be copied.
    lines += [fix for fix in fixes if commands(fix)]
    for index, line in enumerate(lines):
        yield f"{'or' if index else 'fix'}: {line}"
    yield from (f"note: {note}" for note in group.statement.notes)
    if group.fixes_differ:
        yield "this fix is for the first node; --verbose shows those of the others"


def _verbose_block(group: FindingGroup, style: _Style) -> str:
    """A group with its rules, and with all that is known about each location."""
    lines = []
    for header, reason in zip(
        _headers(group.statement.reasons, style), group.statement.reasons, strict=True
    ):
        lines += [header, indented(f"rule: {RULES[reason.rule].sentence.replace('`', '')}")]
    lines += _location_lines(group.locations, style)
    if not any(location.verdict for location in group.locations):
        if group.statement.outcome:
            lines.append(indented(group.statement.outcome))
        lines += [indented(line) for line in _fix_lines(group)]
    return "\n".join(lines)


def _plain_blocks(assessment: Assessment, style: _Style) -> Iterator[str]:
    """The splits about which no more has to be said, one block for each verdict."""
    equal: dict[tuple[str, ...], list[Location]] = {}
    for verdict in assessment.verdicts:
        if verdict.is_plain and not assessment.fails(verdict):
            harmful = dict.fromkeys(defect.rule.id for defect in verdict.defects)
            location = Location(verdict.site.file, address(verdict.site), verdict=verdict)
            equal.setdefault((verdict.outcome, *harmful), []).append(location)
    for (outcome, *harm), locations in equal.items():
        head = style.header("ok", "ok", outcome)
        if harm:
            text = f"{outcome}; the numbers may be wrong ({', '.join(harm)})"
            head = style.header("warning", "warning", text)
        yield "\n".join([head, *_location_lines(locations, style)])


def _location_lines(locations: Sequence[Location], style: _Style) -> Iterator[str]:
    """The lines of locations; those with equal details come together, above these details."""
    equal: dict[tuple[str, ...], list[Location]] = {}
    for location in locations:
        equal.setdefault(tuple(_location_details(location)), []).append(location)
    for text, group in equal.items():
        yield from map(style.location, group)
        yield from text


def _location_details(location: Location) -> list[str]:
    """All that is known about the split of a location, or how a defect may affect it."""
    if location.verdict is None:
        return [indented(remark, "    ") for remark in [location.remark] if remark]
    return [wrapped(summary_of(location.verdict), "    "), *details(location.verdict, "    ")]
