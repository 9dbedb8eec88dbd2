"""Groups findings with the same rules, broken in the same way and mended in the same way."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dmlsplit.directml.rules.violation import Violation
from dmlsplit.lint.report.findings import (
    DEFECT,
    SEVERITY_ORDER,
    TARGET,
    Finding,
    Severity,
    address,
    effect_of,
    severities,
)
from dmlsplit.lint.verdict import Verdict
from dmlsplit.messages import Fix, Note, printable, without_commands

# What the text says instead of fixes that name a descriptor, and instead of the command that serves
# all models, which it gives once.
DISPATCH = "dispatch the equivalent (see --verbose)"
COMMAND = "the command below"


class Reason(NamedTuple):
    """A rule that is broken, with what is wrong; a target or a file has no rule."""

    severity: Severity
    rule: str
    message: str


class Location(NamedTuple):
    """A split, or a model that has none."""

    # The file as the caller named it, so not safe to print; empty without a file.
    file: str
    address: str
    # How a defect may affect the split.
    remark: str = ""
    verdict: Verdict | None = None

    @property
    def name(self) -> str:
        """File and address, on one line."""
        return " ".join(filter(None, (printable(self.file), self.address)))


class Statement(NamedTuple):
    """The text of a finding, without its location."""

    reasons: tuple[Reason, ...]
    # What happens; empty for a defect and for a target.
    outcome: str
    # What to change: any one suffices.
    fixes: tuple[str, ...]
    # Why there is no fix; empty if there is one.
    notes: tuple[str, ...]

    @property
    def key(self) -> object:
        """What the findings of a group have in common."""
        texts = *(reason.message for reason in self.reasons), *self.fixes, *self.notes
        rules = tuple((reason.severity, reason.rule) for reason in self.reasons)
        return self.outcome, rules, *map(without_commands, texts)

    @property
    def remedies(self) -> object:
        """What differs between the locations of a group if a command does."""
        return self.fixes, self.notes


class FindingGroup(NamedTuple):
    """Findings with the same rules, outcome and fixes, and where they are."""

    # The text of the first location.
    statement: Statement
    # Whether other locations have other fixes.
    fixes_differ: bool
    findings: tuple[Finding, ...]
    locations: tuple[Location, ...]

    @property
    def severity(self) -> Severity:
        """The worst severity of its reasons."""
        return min((reason.severity for reason in self.statement.reasons), key=SEVERITY_ORDER.index)


def grouped(findings: Iterable[Finding]) -> list[FindingGroup]:
    """The groups of findings, the worst first; locations are in the order of the findings.

    Splits that are fine, and files that cannot be read, are in none.
    """
    alike: dict[object, list[tuple[Finding, Statement]]] = {}
    for finding in findings:
        if finding.status != "plain" and (finding.diagnostics or finding.fault):
            statement = _statement_of(finding)
            alike.setdefault(statement.key, []).append((finding, statement))
    groups = [_group_of(*zip(*group, strict=True)) for group in alike.values()]
    # A fault of the target is reported once, at the splits that it affects.
    located_rules = set[str]()
    for group in groups:
        if group.locations:
            located_rules.update(reason.rule for reason in group.statement.reasons)
    shown_groups = [
        group
        for group in groups
        if group.locations or group.statement.reasons[0].rule not in located_rules
    ]
    return sorted(shown_groups, key=lambda group: SEVERITY_ORDER.index(group.severity))


def _group_of(findings: tuple[Finding, ...], statements: tuple[Statement, ...]) -> FindingGroup:
    """The group of findings with these statements, one for each."""
    first = statements[0]
    differ = any(statement.remedies != first.remedies for statement in statements)
    locations = tuple(location for finding in findings for location in _locations(finding))
    return FindingGroup(first, differ, findings, locations)


def _statement_of(finding: Finding) -> Statement:
    """The text of a finding."""
    if finding.verdict:
        outcome = effect_of(finding.verdict)
    else:  # a model without a split, a defect, or the target
        outcome = "" if finding.title in (DEFECT, TARGET) else finding.headline
    return Statement(tuple(_reasons(finding)), outcome, *_fixes(finding))


def _reasons(finding: Finding) -> list[Reason]:
    """The reasons of a finding, with their severities."""
    if fault := finding.fault:
        message = f"{printable(fault.message)}, in {finding.subject}"
        return [Reason(severities(finding)[0], fault.rule.id, message)]
    return [
        Reason(severity, violation.rule.id, _message(finding, violation))
        for severity, (violation, _) in zip(severities(finding), finding.diagnostics, strict=True)
    ]


def _message(finding: Finding, violation: Violation) -> str:
    """What is wrong; a remark that is all there is to say has its fix apart, in `_fixes`."""
    if finding.title == DEFECT:
        return violation.rule.wording
    message = violation.message
    is_remark = finding.verdict is not None and not finding.verdict.fixes
    return printable(message.fault if is_remark and isinstance(message, Note) else message)


def _fixes(finding: Finding) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fixes that serve every location, with the command for all models first; or else notes."""
    verdict = finding.verdict
    if verdict is None:
        return ((finding.fix,) if finding.fix else ()), ()
    short_forms = {verdict.rewriting: COMMAND} if verdict.rewriting else {}
    # Few users can dispatch another descriptor, so this fix is shown only where the model cannot be
    # rewritten.
    if verdict.dispatching:
        short_forms[verdict.dispatching] = "" if verdict.rewriting in verdict.fixes else DISPATCH
    fixes = tuple(filter(None, (short_forms.get(fix, fix) for fix in verdict.fixes)))
    fixes = tuple(sorted(fixes, key=lambda fix: fix != COMMAND))
    # Where --write-fixed does not help, the notes say what to do first.
    fixes += tuple(_fixes_of(verdict.notes))
    if not fixes:
        fixes = tuple(_fixes_of(violation.message for violation, _ in finding.diagnostics))
    return fixes, () if fixes else verdict.notes


def _fixes_of(notes: Iterable[str]) -> Iterator[str]:
    """The fixes that notes end with."""
    for note in notes:
        if isinstance(note, Note) and note.fix:
            yield Fix(printable(note.fix), note.fix.commands)


def _locations(finding: Finding) -> list[Location]:
    """Where a finding is: none for the target, or one for each split that a defect may affect."""
    if finding.title == TARGET:
        return []
    if not finding.sites:
        return [Location(finding.file, "")]  # a model without a split
    remarks = finding.remarks or [""] * len(finding.sites)
    return [
        Location(finding.file, address(site), remark, finding.verdict)
        for site, remark in zip(finding.sites, remarks, strict=True)
    ]
