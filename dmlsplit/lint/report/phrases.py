"""The words that all formats share."""

from __future__ import annotations

from collections import Counter
from typing import Any

from dmlsplit.frontends import Finding
from dmlsplit.lint.judge import Assessment, Outcome, Remark, Verdict
from dmlsplit.messages import printable


def address(finding: Finding) -> str:
    """Return where a split is inside its file, in one line."""
    name = finding.node or f"#{finding.index}"
    return printable(f"{finding.place}/{name}" if finding.place else name)


def location(finding: Finding) -> str:
    """Return file and address of a split."""
    return f"{printable(finding.file)}:{address(finding)}"


def grouped(remarks: tuple[Remark, ...]) -> list[tuple[Remark, int]]:
    """Return remarks that say the same of several tensors once, with how many they are."""
    counts: Counter[tuple[Any, ...]] = Counter()
    first: dict[tuple[Any, ...], Remark] = {}
    for remark in remarks:
        said = remark.message if not remark.field else (remark.field, remark.found, remark.allowed)
        key = (remark.rule.id, remark.severity, said)
        counts[key] += 1
        first.setdefault(key, remark)
    return [(remark, counts[key]) for key, remark in first.items()]


def sentence(remark: Remark, count: int) -> str:
    """Return a remark in one line; `count` tensors share it."""
    others = f" (and {count - 1} more)" if count > 1 else ""
    return printable(remark.message) + others


def headline(verdict: Verdict, assessment: Assessment) -> str:
    """Return the verdict in one line, without the place."""
    operator, target = verdict.finding.operator, assessment.target
    if verdict.outcome is Outcome.LEGALIZED and assessment.fails(verdict):
        return f"{operator} refused as it is, ok after legalizing, at {target}"
    return f"{operator} {verdict.outcome} at {target}"
