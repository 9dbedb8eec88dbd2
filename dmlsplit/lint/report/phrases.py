"""The words that all formats share."""

from __future__ import annotations

from collections import Counter
from typing import Any

from dmlsplit.frontends import SplitSite
from dmlsplit.lint.judge import Assessment, Diagnostic, Outcome, Verdict
from dmlsplit.messages import printable


def address(site: SplitSite) -> str:
    """Return where a split is inside its file, in one line."""
    name = site.node or f"#{site.index}"
    return printable(f"{site.place}/{name}" if site.place else name)


def location(site: SplitSite) -> str:
    """Return file and address of a split."""
    return f"{printable(site.file)}:{address(site)}"


def grouped(diagnostics: tuple[Diagnostic, ...]) -> list[tuple[Diagnostic, int]]:
    """Return diagnostics that say the same of several tensors once, with how many they are."""
    counts: Counter[tuple[Any, ...]] = Counter()
    first: dict[tuple[Any, ...], Diagnostic] = {}
    for diagnostic in diagnostics:
        said = (
            diagnostic.message
            if not diagnostic.field
            else (diagnostic.field, diagnostic.found, diagnostic.allowed)
        )
        key = (diagnostic.rule.id, diagnostic.severity, said)
        counts[key] += 1
        first.setdefault(key, diagnostic)
    return [(diagnostic, counts[key]) for key, diagnostic in first.items()]


def sentence(diagnostic: Diagnostic, count: int) -> str:
    """Return a diagnostic in one line; `count` tensors share it."""
    others = f" (and {count - 1} more)" if count > 1 else ""
    return printable(diagnostic.message) + others


def headline(verdict: Verdict, assessment: Assessment) -> str:
    """Return the verdict in one line, without the place."""
    operator, target = verdict.site.operator, assessment.target
    if verdict.outcome is Outcome.LEGALIZED and assessment.fails(verdict):
        return f"{operator} refused as it is, ok after legalizing, at {target}"
    return f"{operator} {verdict.outcome} at {target}"
