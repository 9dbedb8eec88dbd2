"""Turns an assessment into findings, which all formats share; their texts are safe to print."""

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import PureWindowsPath
from typing import Literal, NamedTuple

from dmlsplit.directml.rules.violation import Violation
from dmlsplit.lint.rules import hresult_text
from dmlsplit.lint.verdict import Assessment, ModelVerdict, Outcome, Verdict
from dmlsplit.messages import Fix, counted, omitted_lines, printable
from dmlsplit.models.site import SplitSite

Status = Literal["failed", "unknown", "remark", "note", "plain"]
Severity = Literal["error", "warning", "note"]
# The severity of a finding: an error is what makes the command fail. A finding that the baseline
# has is a remark.
SEVERITIES: dict[Status, Severity] = {
    "failed": "error",
    "unknown": "warning",
    "remark": "warning",
    "note": "note",
}
SEVERITY_ORDER: tuple[Severity, ...] = ("error", "warning", "note")
# The severities of diagnostics that only remark on a finding; all others are errors.
_REMARK_SEVERITIES: dict[str, Severity] = {"warning": "warning", "note": "note"}
# The most splits that a text names for one finding.
MAX_SPLITS = 8
_INDENT = "  "
# Titles of findings that are not about one split.
TARGET = "target"
DEFECT = "known defect of DirectML"


class Finding(NamedTuple):
    """A split, a defect that may affect splits of a file, or a faulty model, target or file."""

    status: Status
    # The verdict about a split, or the kind of another finding.
    title: str
    # The file as the caller named it, so not safe to print; empty for the target.
    file: str
    # The file and the address of the split, the file and the rule of the defect, the file alone, or
    # the target.
    subject: str
    headline: str
    # The lines after the headline: the broken rules and the fix.
    details: Sequence[str] = ()
    # The fix, in one line.
    fix: str = ""
    # The broken rules, each with what `group_diagnostics` says about other tensors.
    diagnostics: Sequence[tuple[Violation, str]] = ()
    sites: Sequence[SplitSite] = ()
    # The fingerprint of each diagnostic: unique within the file, and the same while other nodes and
    # files change.
    fingerprints: Sequence[str] = ()
    # The verdict that the finding is about; None if it is not about one split.
    verdict: Verdict | None = None
    # How a defect may affect each of the sites.
    remarks: Sequence[str] = ()
    # The rule that the target breaks; None if the finding is not about the target.
    fault: Violation | None = None

    @property
    def deciding(self) -> list[tuple[str, Violation]]:
        """The diagnostics for which a failed finding fails, with their fingerprints."""
        reasons = [
            (fingerprint, violation)
            for fingerprint, (violation, _) in zip(self.fingerprints, self.diagnostics, strict=True)
        ]
        broken = [
            (fingerprint, violation)
            for fingerprint, violation in reasons
            if violation.severity not in ("warning", "note")
        ]
        # An unknown split that fails because of --fail-on breaks no rule.
        return broken or reasons


# The splits that a defect may affect, each with what is known about it there.
_Affected = list[tuple[SplitSite, Violation]]


def findings(assessment: Assessment) -> Iterator[Finding]:
    """Faults of the target; splits, by file and node; defects; models without a split; other files.

    A failed finding that the baseline has is only a remark.
    """
    seen: Counter[tuple[str, str]] = Counter()
    for finding in _all_findings(assessment):
        marked = finding._replace(fingerprints=list(_fingerprints(finding, seen)))
        keys = [(with_slashes(marked.file), fingerprint) for fingerprint, _ in marked.deciding]
        is_known = bool(keys) and assessment.baseline.issuperset(keys)
        yield marked._replace(status="remark") if is_known and marked.status == "failed" else marked


def severities(finding: Finding) -> list[Severity]:
    """The severity of each diagnostic: those that decide have the finding's, the others their own.

    A finding without a diagnostic, about a target or a file, has its one severity.
    """
    severity = SEVERITIES[finding.status]
    if not finding.diagnostics:
        return [severity]
    own = [
        _REMARK_SEVERITIES.get(violation.severity, "error") for violation, _ in finding.diagnostics
    ]
    worst = min(own, key=SEVERITY_ORDER.index)
    return [severity if its == worst else its for its in own]


def _fingerprints(finding: Finding, seen: Counter[tuple[str, str]]) -> Iterator[str]:
    """The fingerprint of each diagnostic; `seen` counts those before, by file."""
    for violation, _ in finding.diagnostics:
        # One defect is found once for all splits of a file. A model without a split has no node.
        is_of_node = finding.sites and violation.severity != "defect"
        node = _node_key(finding.sites[0]) if is_of_node else ""
        text = f"{node}|{violation.rule.id}|{violation.field}"
        fingerprint = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
        # Diagnostics of one rule, node and field share it, so all but the first get a number.
        seen[finding.file, fingerprint] += 1
        number = seen[finding.file, fingerprint]
        yield fingerprint if number == 1 else f"{fingerprint}:{number}"


def _node_key(site: SplitSite) -> str:
    """A node within its file: its name, which stays when nodes before it come and go, or place."""
    return f"{site.graph}|{site.node}|{'' if site.node else site.index}"


def _all_findings(assessment: Assessment) -> Iterator[Finding]:
    """The findings in order, before fingerprints and the baseline are taken into account."""
    target = str(assessment.target)
    for fault in assessment.diagnostics:
        head = f"{fault.rule.id}: {fault.message}"
        lines = [f"fix: {fault.hint}"]
        yield Finding("failed", TARGET, "", target, head, lines, fault.hint, fault=fault)
    defects: dict[tuple[str, str], _Affected] = defaultdict(list)
    for verdict in assessment.verdicts:
        yield _split_finding(assessment, verdict)
        for violation in verdict.defects:
            key = verdict.site.file, violation.rule.id
            defects[key].append((verdict.site, violation))
    for (file, _), splits in defects.items():
        yield _defect_finding(assessment, file, splits)
    for model in assessment.models:
        yield _model_finding(assessment, model)
    for file, why in assessment.unreadable:
        yield Finding("failed", "unreadable", file, "", printable(why))


def _split_finding(assessment: Assessment, verdict: Verdict) -> Finding:
    """The finding about a split."""
    site = verdict.site
    reasons = group_diagnostics(verdict)
    status = _status(assessment, verdict, [reason for reason, _ in reasons])
    rule_ids = ", ".join(dict.fromkeys(reason.rule.id for reason, _ in reasons))
    title = rule_ids if status in ("remark", "note") else str(verdict.outcome)
    head = f"{site.operator} {verdict.target.where}: {outcome_of(verdict)}"
    details = [
        f"{reason.rule.id}: {printable(reason.message)}{others}" for reason, others in reasons
    ]
    details += fix_lines(verdict)
    name = location(site)
    fix = verdict.fix
    return Finding(
        status,
        title,
        site.file,
        subject=name,
        headline=head,
        details=details,
        fix=fix,
        diagnostics=reasons,
        sites=[site],
        verdict=verdict,
    )


def _model_finding(assessment: Assessment, model: ModelVerdict) -> Finding:
    """A model without a split that a runtime does not load, or may not."""
    is_known = model.outcome is not Outcome.UNKNOWN
    head = str(model.outcome) if is_known else "unknown whether the model loads"
    head += f" {model.target.where}; it has no split"
    reasons = [(violation, "") for violation in model.diagnostics]
    details = [f"{reason.rule.id}: {printable(reason.message)}" for reason in model.diagnostics]
    status: Status = "failed" if assessment.fails(model) else "unknown"
    fix = Fix.joined("; or ", model.fixes)
    subject = printable(model.file)
    title = str(model.outcome)
    details += [f"fix: {fix}"]
    return Finding(
        status,
        title,
        model.file,
        subject=subject,
        headline=head,
        details=details,
        fix=fix,
        diagnostics=reasons,
    )


def _status(assessment: Assessment, verdict: Verdict, reasons: Sequence[Violation]) -> Status:
    """What a verdict with these reasons means to the command."""
    if assessment.fails(verdict):
        return "failed"
    if verdict.outcome is Outcome.UNKNOWN:
        return "unknown"
    if verdict.is_plain:
        return "plain"
    return "note" if all(reason.severity == "note" for reason in reasons) else "remark"


def _defect_finding(assessment: Assessment, file: str, splits: _Affected) -> Finding:
    """A defect with a line for each split; the last one counts those that are left out."""
    (_, defect), *_ = splits
    sites = [site for site, _ in splits]
    head = f"may affect {counted(len(sites), 'split')}: {defect.rule.wording}"
    remarks = [printable(violation.found) for _, violation in splits]
    lines = [f"{address(site)}: {remark}" for site, remark in zip(sites, remarks, strict=True)]
    lines[MAX_SPLITS:] = omitted_lines(len(lines), MAX_SPLITS)
    details = [*(_INDENT + line for line in lines), f"fix: {defect.hint}"]
    status: Status = "failed" if assessment.defects_fail else "remark"
    name = f"{printable(file)}: {defect.rule.id}"
    reasons = [(defect, "")]
    return Finding(
        status,
        DEFECT,
        file,
        subject=name,
        headline=head,
        details=details,
        fix=defect.hint,
        diagnostics=reasons,
        sites=sites,
        remarks=remarks,
    )


def fix_lines(verdict: Verdict) -> list[str]:
    """The fixes, one per line, and the notes."""
    fixes = [f"fix: {fix}" for fix in verdict.fixes]
    if len(fixes) > 1:
        fixes = ["fix, any one of:", *(_INDENT + fix for fix in verdict.fixes)]
    return [*fixes, *(f"note: {note}" for note in verdict.notes)]


def address(site: SplitSite) -> str:
    """The graph and the node of a split, on one line."""
    # PyTorch's names begin with a slash: /encoder/Split of main_graph.
    name = site.node.removeprefix("/") or f"#{site.index}"
    return printable(f"{site.graph}/{name}" if site.graph else name)


def location(site: SplitSite) -> str:
    """File and address of a split; without a file, only its address."""
    return f"{printable(site.file)}:{address(site)}" if site.file else address(site)


def outcome_of(verdict: Verdict) -> str:
    """The verdict, with its range of sizes, or with the HRESULT that users search for."""
    sizes = [str(verdict.sizes)] if verdict.sizes else []
    if verdict.site.frozen:
        sizes.append("only for {}={}".format(*verdict.site.frozen))
    if sizes:
        return f"{verdict.outcome}: {printable(', '.join(sizes))}"
    return effect_of(verdict)


def effect_of(verdict: Verdict) -> str:
    """The verdict, with what a program notices of it."""
    if verdict.outcome is Outcome.UNWRITTEN:
        return f"{verdict.outcome}, and no call fails"
    return verdict.outcome + (
        "" if verdict.hresult is None else f": {hresult_text(verdict.hresult)}"
    )


def with_slashes(file: str) -> str:
    """A file name with slashes, as annotations and URIs need it."""
    # In other names a backslash is an ordinary, if rare, character.
    is_windows = os.sep == "\\" or PureWindowsPath(file).is_absolute()
    return (file.replace("\\", "/") if is_windows else file).removeprefix("./")


def group_diagnostics(verdict: Verdict) -> list[tuple[Violation, str]]:
    """Each reason of a verdict once, with ``(also in 2 other tensors)`` if three tensors share it.

    Known defects of DirectML are findings of their own.
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
