"""What an assessment says, as one stream for every report, in texts that are safe to print."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PureWindowsPath
from typing import Literal, NamedTuple

from dmlsplit.directml.rules.violation import Violation
from dmlsplit.frontends import SplitSite
from dmlsplit.lint.rules import numbered
from dmlsplit.lint.verdict import Assessment, Outcome, Verdict
from dmlsplit.messages import counted, more, printable

Status = Literal["failed", "unknown", "remark", "note", "plain"]
# The most splits that a text names for one defect.
_MOST_SPLITS = 8
_INDENT = "  "


class Finding(NamedTuple):
    """A split, a defect of DirectML that splits of a file may meet, a faulty target or file."""

    status: Status
    title: str  # the verdict, or the kind of finding
    file: str  # as the caller named it, so not safe to print; empty for the target
    place: str  # file and address of the split, file and rule of the defect, or the target
    headline: str
    details: Sequence[str] = ()  # the broken rules and the fix, in lines
    fix: str = ""  # in one line
    diagnostics: Sequence[tuple[Violation, str]] = ()  # from `grouped`
    sites: Sequence[SplitSite] = ()


def findings(assessment: Assessment) -> Iterator[Finding]:
    """Faults of the target, the splits in the order of files and nodes, defects, other files."""
    target = str(assessment.target)
    for fault in assessment.diagnostics:
        head = f"{fault.rule.id}: {fault.message}"
        yield Finding("failed", "target", "", target, head, [f"fix: {fault.hint}"], fault.hint)
    for verdict in assessment.verdicts:
        yield _of_split(assessment, verdict)
    for defect in defects(assessment.verdicts):
        status: Status = "failed" if assessment.defects_fail else "remark"
        name, head = f"{printable(defect.file)}: {defect.violation.rule.id}", defect.headline
        details, hint = [*defect.lines, f"fix: {defect.violation.hint}"], defect.violation.hint
        yield Finding(
            status, DEFECT, defect.file, name, head, details, hint,
            [(defect.violation, "")], defect.sites,
        )  # fmt: skip
    for file, why in assessment.unreadable:
        yield Finding("failed", "unreadable", file, "", printable(why))


def _of_split(assessment: Assessment, verdict: Verdict) -> Finding:
    site, reasons = verdict.site, grouped(verdict)
    status, title = _status(assessment, verdict), str(verdict.outcome)
    if status in ("remark", "note"):
        title = ", ".join(dict.fromkeys(reason.rule.id for reason, _ in reasons))
    head = f"{site.operator} at {assessment.target}: {outcome_of(verdict)}"
    details = [f"{e.rule.id}: {printable(e.message)}{others}" for e, others in reasons]
    details += fix_lines(verdict)
    name, fix = location(site), verdict.fix
    return Finding(status, title, site.file, name, head, details, fix, reasons, [site])


def _status(assessment: Assessment, verdict: Verdict) -> Status:
    if assessment.fails(verdict):
        return "failed"
    if verdict.outcome is Outcome.UNKNOWN:
        return "unknown"
    if verdict.is_plain:
        return "plain"
    return "note" if all(e.severity == "note" for e, _ in grouped(verdict)) else "remark"


DEFECT = "known defect of DirectML"


class Defect(NamedTuple):
    """A known defect of DirectML, and the splits of a file that may meet it."""

    file: str
    meetings: list[tuple[SplitSite, Violation]]

    @property
    def violation(self) -> Violation:
        """That of the first split."""
        return self.meetings[0][1]

    @property
    def sites(self) -> list[SplitSite]:
        """The splits, each once."""
        return list(dict.fromkeys(site for site, _ in self.meetings))

    @property
    def headline(self) -> str:
        """How many splits may meet it, and what it is."""
        return f"in {counted(len(self.sites), 'split')}: {self.violation.rule.wording}"

    @property
    def lines(self) -> list[str]:
        """A line for each split; the last one counts those that are left out."""
        lines = [f"{_INDENT}{address(s)}: {printable(v.found)}" for s, v in self.meetings]
        rest = more(len(lines), _MOST_SPLITS)
        return [*lines[:_MOST_SPLITS], *(_INDENT + line for line in rest)]


def defects(verdicts: Iterable[Verdict]) -> list[Defect]:
    """The defects that the splits of each file may meet, in the order of files."""
    by_rule: dict[tuple[str, str], Defect] = {}
    for verdict in verdicts:
        for violation in verdict.defects:
            file = verdict.site.file
            defect = by_rule.setdefault((file, violation.rule.id), Defect(file, []))
            defect.meetings.append((verdict.site, violation))
    return list(by_rule.values())


def fix_lines(verdict: Verdict) -> list[str]:
    """The fixes, one per line, and the notes."""
    fixes = [f"fix: {fix}" for fix in verdict.alternatives]
    if len(fixes) > 1:
        fixes = ["fix, any one of:", *(_INDENT + fix for fix in verdict.alternatives)]
    return [*fixes, *(f"note: {note}" for note in verdict.notes)]


def address(site: SplitSite) -> str:
    """The place of a split in its file, on one line."""
    name = site.node or f"#{site.index}"
    return printable(f"{site.place}/{name}" if site.place else name)


def location(site: SplitSite) -> str:
    """File and address of a split."""
    return f"{printable(site.file)}:{address(site)}"


def outcome_of(verdict: Verdict) -> str:
    """The verdict, with its range of sizes, or with the HRESULT that users search for."""
    if verdict.sizes is not None:
        return f"{verdict.outcome}: {printable(str(verdict.sizes))}"
    return verdict.outcome + ("" if verdict.hresult is None else f": {numbered(verdict.hresult)}")


def with_slashes(file: str) -> str:
    """A file name with slashes, as annotations and URIs need it."""
    # In other names a backslash is an ordinary, if rare, character.
    is_windows = os.sep == "\\" or PureWindowsPath(file).is_absolute()
    return (file.replace("\\", "/") if is_windows else file).removeprefix("./")


def grouped(verdict: Verdict) -> list[tuple[Violation, str]]:
    """Each reason of a verdict once, with ``(also in 2 other tensors)`` if three tensors share it.

    `defects` has the known defects of DirectML.
    """
    alike: dict[tuple[str, ...], list[Violation]] = {}
    for reason in verdict.diagnostics:
        if reason.severity != "defect":
            key = reason.found, reason.allowed if reason.field else reason.message
            group = (reason.rule.id, reason.severity, reason.field, *key)
            alike.setdefault(group, []).append(reason)
    return [
        (first, f" (also in {counted(len(others), 'other tensor')})" if others else "")
        for first, *others in alike.values()
    ]
