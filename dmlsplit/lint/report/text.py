"""Text for people: a paragraph for each split, the defects of each file, then a summary table.

Where many splits are accepted, those of a file are one row of the table.
"""

import math
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from dmlsplit.lint.report.findings import (
    DEFECT,
    TARGET,
    Finding,
    address,
    findings,
    fix_lines,
    group_diagnostics,
    location,
    model_finding,
    outcome_of,
)
from dmlsplit.lint.verdict import FAILING, Assessment, Outcome, Verdict
from dmlsplit.messages import counted, printable, width, wrapped

Detail = Literal["quiet", "usual", "verbose"]

_OUTCOME_WIDTH = max(map(len, Outcome))
_NAME_WIDTH = 23  # at least; the other columns take 57
# The most accepted splits that are shown one by one.
_MAX_OK: dict[Detail, float] = {"quiet": 0, "usual": 8, "verbose": math.inf}
_COLOURS = dict(zip(Outcome, (31, 31, 31, 33, 31, 36, 33, 32, 32, 32, 32), strict=True))
# Outcomes after the number 1, and a larger one, of splits; and after one of models.
_SPLITS = {
    Outcome.NOT_LOADED: ("in a model that does not load", "in models that do not load"),
    Outcome.FAILS: (str(Outcome.FAILS), "fail when they run"),
    Outcome.ON_CPU: (str(Outcome.ON_CPU), "run on the CPU"),
    Outcome.RUNS: (str(Outcome.RUNS), "run on DirectML"),
    Outcome.RUNS_FOR_EVERY_SIZE: (
        str(Outcome.RUNS_FOR_EVERY_SIZE),
        "run on DirectML at any size",
    ),
    Outcome.NEVER_RUNS: (str(Outcome.NEVER_RUNS), "never run"),
}
_MODELS = {
    Outcome.NOT_LOADED: "not loaded",
    Outcome.FAILS: "failing when they run",
    Outcome.ON_CPU: "with splits on the CPU",
    Outcome.RUNS: "with all splits on DirectML",
    Outcome.RUNS_FOR_EVERY_SIZE: "with all splits on DirectML",
    Outcome.FOLDED: "with all splits folded away",
    Outcome.NEVER_RUNS: "whose splits never run",
}
_Paint = Callable[[str, Outcome], str]


def text_report(
    assessment: Assessment, colour: bool = False, detail: Detail = "usual", heading: str = ""
) -> str:
    """The assessment as text after a heading, optionally with coloured verdicts.

    "quiet" leaves out accepted splits; "verbose" shows every split.
    """

    def paint(text: str, outcome: Outcome) -> str:
        return f"\x1b[{_COLOURS[outcome]}m{text}\x1b[0m" if colour else text

    is_long = sum(verdict.is_plain for verdict in assessment.verdicts) > _MAX_OK[detail]
    shown = [v for v in assessment.verdicts if not (is_long and v.is_plain)]
    summary = "" if detail == "quiet" else "\n".join(_summary(assessment, is_long, paint))
    blocks = [paragraph(verdict, paint) for verdict in shown]
    blocks += [_block(model_finding(assessment, model)) for model in assessment.models]
    others = [finding for finding in findings(assessment) if finding.title in (DEFECT, TARGET)]
    blocks += map(_block, sorted(others, key=lambda finding: finding.title == TARGET))
    return "\n\n".join(filter(None, [heading, *blocks, summary]))


def paragraph(verdict: Verdict, paint: _Paint = lambda text, outcome: text) -> str:
    """The verdict, what DirectML would get, why, the first level that accepts it, and the fixes."""
    outcome, site = str(verdict.outcome), verdict.site
    head = wrapped(f"{location(site)}: {site.operator}: {outcome_of(verdict)}", "")
    before, _, after = head.rpartition(outcome)
    lines = [before + paint(outcome, verdict.outcome) + after if before else head]
    if verdict.outcome is Outcome.RUNS and verdict.descriptor is None:
        lines.append(_line("all pieces are empty, so the split does not reach DirectML"))
    if verdict.descriptor is not None:
        sized = " (shown with dynamic sizes = 1)" if verdict.sizes else ""
        lines.append(_line(f"{verdict.descriptor}{sized}"))
    for reason, others in group_diagnostics(verdict):
        severity = "" if reason.severity == "error" else f" ({reason.severity})"
        message = f"{printable(reason.message)}{others}"
        lines.append(_line(f"{reason.rule.id}{severity}: {message}"))
    if verdict.minimum is not None:
        lines.append(_line(f"first accepted at {verdict.minimum}"))
    return "\n".join([*lines, *map(_line, fix_lines(verdict))])


def _block(finding: Finding) -> str:
    head = f"{finding.subject}: {finding.headline}"
    if finding.title == DEFECT:
        rule = finding.diagnostics[0][0].rule.id
        head = f"{printable(finding.file)}: {DEFECT} ({rule}), {finding.headline}"
    return "\n".join([wrapped(head, ""), *map(_line, finding.details)])


def _line(text: str) -> str:
    """A line of a paragraph."""
    line = text.lstrip()
    return wrapped(line, "  " + " " * (len(text) - len(line)))


def _summary(assessment: Assessment, is_long: bool, paint: _Paint) -> Iterator[str]:
    if assessment.verdicts:
        yield from _table(_rows(assessment.verdicts, is_long), paint)
        for target in assessment.targets:
            own = [verdict for verdict in assessment.verdicts if verdict.target == target]
            own_program = " (a program of one's own)" * (target != assessment.target)
            yield wrapped(_totals(own, own_program), "")
    elif not (assessment.unreadable or assessment.models):
        yield "no splits found"
    if assessment.unreadable:
        yield f"not checked: {counted(len(assessment.unreadable), 'path')}"
    yield from _last_lines(assessment)


def _totals(verdicts: Sequence[Verdict], remark: str) -> str:
    """The number of splits of one target with each outcome."""
    files = {verdict.site.file for verdict in verdicts if verdict.site.file}
    where = f" in {counted(len(files), 'file')}" if files else ""
    counts = Counter(verdict.outcome for verdict in verdicts)
    named = {o: _SPLITS.get(o, (o, o))[counts[o] > 1] for o in Outcome if counts[o]}
    said = "; ".join(f"{counts[outcome]} {name}" for outcome, name in named.items())
    what = f"{counted(len(verdicts), 'split')}{where} {verdicts[0].target.where}{remark}"
    return f"{what}: {said}"


def _last_lines(assessment: Assessment) -> Iterator[str]:
    """What becomes of several models, each named after its worst split; then wrong numbers."""
    order, worst = list(Outcome), dict[str, Outcome]()
    for file, outcome in ((v.site.file, v.outcome) for v in assessment.verdicts):
        worst[file] = min(worst.get(file, outcome), outcome, key=order.index)
    worst |= {model.file: model.outcome for model in assessment.models}
    if len(worst) > 1 or assessment.models:
        counts = Counter(_MODELS.get(outcome, str(outcome)) for outcome in worst.values())
        said = "; ".join(f"{count} {text}" for text, count in counts.items())
        yield wrapped(f"{counted(len(worst), 'model')}: {said}", "")
    harmed = [verdict for verdict in assessment.verdicts if verdict.defects]
    if harmed:
        rules = dict.fromkeys(defect.rule.id for v in harmed for defect in v.defects)
        text = f"the numbers of {counted(len(harmed), 'split')} may be wrong: {', '.join(rules)}"
        yield wrapped(text, "")


_Row = tuple[str, Verdict]  # with the address of a split, or the number of splits


def _rows(verdicts: Sequence[Verdict], is_long: bool) -> dict[str, list[_Row]]:
    """The rows of each file: one per split, but if there are many, one for the accepted ones."""
    files: dict[str, list[_Row]] = {}
    groups: dict[tuple[str, Outcome], list[Verdict]] = {}
    for verdict in verdicts:
        rows = files.setdefault(verdict.site.file, [])
        if is_long and verdict.is_plain:
            groups.setdefault((verdict.site.file, verdict.outcome), []).append(verdict)
        else:
            rows.append((address(verdict.site), verdict))
    for (file, _), group in reversed(groups.items()):
        # The row shows the level that accepts all of its splits.
        highest = max(group, key=lambda v: v.minimum is not None and v.minimum.level)
        files[file].insert(0, (counted(len(group), "split"), highest))
    return files


def _table(files: dict[str, list[_Row]], paint: _Paint) -> Iterator[str]:
    columns = max(_NAME_WIDTH, width() - (80 - _NAME_WIDTH))
    # What a runtime needs is in its advice; a level is of use to a program of one's own.
    has_levels = any(
        verdict.target.runtime is None for rows in files.values() for _, verdict in rows
    )
    header = f"{'split':<{columns}}  {'verdict':<{_OUTCOME_WIDTH}}"
    header += "  level  DirectML  Windows" if has_levels else "  because"
    if has_levels:
        yield " " * header.index("level") + "needs"
    yield header
    yield "-" * max(len(header), columns + 57)

    def row(name: str, verdict: Verdict) -> str:
        outcome = paint(f"{verdict.outcome:<{_OUTCOME_WIDTH}}", verdict.outcome)
        if not has_levels:
            reasons = sorted(verdict.diagnostics, key=lambda violation: violation.effect is None)
            return f"{name:<{columns}}  {outcome}  {reasons[0].rule.id if reasons else '-'}"
        is_refused = verdict.outcome in FAILING and not verdict.needs_type
        other = ("none" if is_refused else "-", "-", "-")
        level, directml, windows = verdict.minimum.cells if verdict.minimum else other
        return f"{name:<{columns}}  {outcome}  {level:<5}  {directml:<8}  {windows}"

    for file, rows in files.items():
        first, verdict = rows[0]
        whole = f"{printable(file)}: {first}" if file else first
        if len(rows) == 1 and len(whole) <= columns:
            yield row(whole, verdict)
            continue
        yield from textwrap.wrap(printable(file), width())
        # The front of a long name is cut, because places differ at the end, if it stays unique.
        room = columns - 2
        cut = [n if len(n) <= room else "..." + n[3 - room :].lstrip("./") for n, _ in rows]
        repeated = Counter(cut)
        for short, (name, verdict) in zip(cut, rows, strict=True):
            if repeated[short] > 1 and len(name) > room:
                yield from textwrap.wrap(name, width(), initial_indent="  ", subsequent_indent="  ")
                short = ""
            yield row(f"  {short}", verdict)
