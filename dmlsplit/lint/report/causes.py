"""Groups findings by cause: the same rules, broken in the same way and mended in the same way."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from dmlsplit.directml.rules.violation import Violation
from dmlsplit.lint.advice import dispatching
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
from dmlsplit.messages import printable

# What differs between places although the cause is the same: a command for one node or file, and
# the command that the message of a remark ends with.
_OF_A_PLACE = re.compile(r'python -c "[^"]*"|dmlsplit validate .*')
_FIX = ". Fix: "  # in a message, before its fix
# What to do where --write-fixed cannot replace a split, in the note that says why.
_INSTEAD = re.compile(
    r"--write-fixed cannot replace it(?: in the body of a function; |.*?\. Fix: )(.*)"
)
# The fixes that stand for those with a descriptor, and with the command for all models.
DISPATCH = "dispatch the equivalent (see --verbose)"
COMMAND = "the command below"


class Reason(NamedTuple):
    """A rule that is broken, with what is wrong; a target or a file has no rule."""

    severity: Severity
    rule: str
    message: str


class Place(NamedTuple):
    """A split, or a model that has none."""

    file: str  # as the caller named it, so not safe to print; empty for none
    address: str
    remark: str = ""  # how a defect may affect it
    verdict: Verdict | None = None

    @property
    def name(self) -> str:
        """File and address, on one line."""
        return " ".join(filter(None, (printable(self.file), self.address)))


class Said(NamedTuple):
    """What is said about a finding, without its place."""

    reasons: tuple[Reason, ...]
    outcome: str  # what happens; empty for a defect and for a target
    fixes: tuple[str, ...]  # any one of them suffices
    notes: tuple[str, ...]  # only if there is no fix

    @property
    def key(self) -> object:
        """What findings of one cause have in common."""
        texts = *(reason.message for reason in self.reasons), *self.fixes, *self.notes
        rules = tuple(reason[:2] for reason in self.reasons)
        return self.outcome, rules, *(_OF_A_PLACE.sub("", text) for text in texts)


class Cause(NamedTuple):
    """Findings that are alike."""

    said: Said  # about the first place
    fixes_differ: bool  # from place to place
    findings: tuple[Finding, ...]
    places: tuple[Place, ...]

    @property
    def severity(self) -> Severity:
        """That of the reason for which it is a finding."""
        return min((reason.severity for reason in self.said.reasons), key=SEVERITY_ORDER.index)


def causes(findings: Iterable[Finding]) -> list[Cause]:
    """The causes of findings, the worst first, each with all places in the order of the findings.

    Findings about nothing that has to be said, and about files that cannot be read, have none.
    """
    alike: dict[object, list[tuple[Finding, Said]]] = {}
    for finding in findings:
        if finding.status != "plain" and (finding.diagnostics or finding.fault):
            said = _said(finding)
            alike.setdefault(said.key, []).append((finding, said))
    found = [_cause(*zip(*group, strict=True)) for group in alike.values()]
    # What is wrong with the target is said once, at the splits that it affects.
    affecting = {reason.rule for cause in found if cause.places for reason in cause.said.reasons}
    found = [c for c in found if c.places or c.said.reasons[0].rule not in affecting]
    return sorted(found, key=lambda cause: SEVERITY_ORDER.index(cause.severity))


def _cause(findings: tuple[Finding, ...], all_said: tuple[Said, ...]) -> Cause:
    first = all_said[0]
    differ = any(said[2:] != first[2:] for said in all_said)
    places = tuple(place for finding in findings for place in _places(finding))
    return Cause(first, differ, findings, places)


def _said(finding: Finding) -> Said:
    outcome = "" if finding.title in (DEFECT, TARGET) else finding.headline  # of a model
    if finding.verdict:
        outcome = effect_of(finding.verdict)
    return Said(tuple(_reasons(finding)), outcome, *_fixes(finding))


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
    message = printable(violation.message)
    is_remark = finding.verdict is not None and not finding.verdict.fixes
    return message.partition(_FIX)[0] if is_remark else message


def _fixes(finding: Finding) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fixes that serve every place, with the command for all models first; or else notes."""
    verdict = finding.verdict
    if verdict is None:
        return ((finding.fix,) if finding.fix else ()), ()
    known = {verdict.rewriting: COMMAND} if verdict.rewriting else {}
    if verdict.equivalent:  # of use to few, so only where the model cannot be rewritten
        known[dispatching(verdict)] = "" if verdict.rewriting in verdict.fixes else DISPATCH
    fixes = tuple(filter(None, (known.get(fix, fix) for fix in verdict.fixes)))
    fixes = tuple(sorted(fixes, key=_is_not_command))
    instead = (_INSTEAD.fullmatch(printable(note)) for note in verdict.notes)
    fixes += tuple(match[1] for match in instead if match)
    if not fixes:
        messages = (printable(violation.message) for violation, _ in finding.diagnostics)
        fixes = tuple(filter(None, (message.partition(_FIX)[2] for message in messages)))
    return fixes, () if fixes else verdict.notes


def _is_not_command(fix: str) -> bool:
    return fix != COMMAND


def _places(finding: Finding) -> list[Place]:
    if finding.title == TARGET:
        return []
    if not finding.sites:
        return [Place(finding.file, "")]  # a model without a split
    remarks = finding.remarks or [""] * len(finding.sites)
    return [
        Place(finding.file, address(site), remark, finding.verdict)
        for site, remark in zip(finding.sites, remarks, strict=True)
    ]
