"""What is said of the splits of a model: outcomes, diagnostics, verdicts, assessments."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules import Rule
from dmlsplit.frontends import SplitSite
from dmlsplit.lint.target import Requirement, Target

Severity = Literal["error", "warning", "note"]  # an error is a broken rule


class Outcome(StrEnum):
    """The four verdicts."""

    OK = "ok"
    LEGALIZED = "ok after legalizing"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One thing to say about a split."""

    rule: Rule
    severity: Severity
    message: str  # the whole diagnostic in one sentence
    # The parts of a broken rule, as in `Violation`; empty for a rule of the node.
    tensor: str = ""
    field: str = ""
    found: str = ""
    allowed: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a target accepts one split."""

    site: SplitSite
    descriptors: tuple[SplitOperatorDesc, ...]  # that it becomes at the target
    outcome: Outcome
    diagnostics: tuple[Diagnostic, ...]  # every broken rule, then warnings and notes
    # Equivalent descriptors that the target accepts; empty unless the outcome is LEGALIZED.
    legalized: tuple[SplitOperatorDesc, ...]
    # The lowest level that accepts the split unchanged; None if none does, or if it is unknown.
    minimum: Requirement | None
    fix: str  # what to change; empty if nothing has to be


@dataclass(frozen=True, slots=True)
class Assessment:
    """All verdicts of a run."""

    target: Target
    verdicts: tuple[Verdict, ...]  # in the order of the files, and of the nodes in each
    unreadable: tuple[tuple[str, str], ...]  # files that could not be read, and why
    failing: frozenset[Outcome]  # the outcomes that count as refused

    @property
    def counts(self) -> dict[Outcome, int]:
        """How many splits have each outcome."""
        found = Counter(verdict.outcome for verdict in self.verdicts)
        return {outcome: found[outcome] for outcome in Outcome}

    @property
    def accepted(self) -> bool:
        """Whether no split counts as refused."""
        return not any(map(self.fails, self.verdicts))

    def fails(self, verdict: Verdict) -> bool:
        """Whether a verdict counts as refused."""
        return verdict.outcome in self.failing
