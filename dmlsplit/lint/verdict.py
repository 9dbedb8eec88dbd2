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

Severity = Literal["error", "warning", "note"]


class Outcome(StrEnum):
    """The four verdicts."""

    OK = "ok"
    LEGALIZED = "ok after legalizing"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One thing to say about a split.

    Attributes
    ----------
    rule : Rule
        The rule that it is about.
    severity : {"error", "warning", "note"}
        An error is a broken rule.
    message : str
        The whole diagnostic in one sentence.
    tensor, field, found, allowed : str
        The parts of a broken rule, as in `Violation`; empty for a rule of the node.
    """

    rule: Rule
    severity: Severity
    message: str
    tensor: str = ""
    field: str = ""
    found: str = ""
    allowed: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a target accepts one split.

    Attributes
    ----------
    site : SplitSite
        Where the split is.
    descriptors : tuple of SplitOperatorDesc
        The descriptors that it becomes at the target.
    outcome : Outcome
    diagnostics : tuple of Diagnostic
        Every broken rule, then warnings and notes.
    legalized : tuple of SplitOperatorDesc
        Equivalent descriptors that the target accepts; empty unless the outcome is
        `Outcome.LEGALIZED`.
    minimum : Requirement or None
        The lowest level that accepts the split unchanged; None if none does, or if it is
        unknown.
    fix : str
        What to change; empty if nothing has to be.
    """

    site: SplitSite
    descriptors: tuple[SplitOperatorDesc, ...]
    outcome: Outcome
    diagnostics: tuple[Diagnostic, ...]
    legalized: tuple[SplitOperatorDesc, ...]
    minimum: Requirement | None
    fix: str


@dataclass(frozen=True, slots=True)
class Assessment:
    """All verdicts of a run.

    Attributes
    ----------
    target : Target
        What the splits were judged for.
    verdicts : tuple of Verdict
        In the order of the files, and of the nodes in each.
    unreadable : tuple of (str, str)
        Files that could not be read, and why.
    failing : frozenset of Outcome
        The outcomes that count as refused.
    """

    target: Target
    verdicts: tuple[Verdict, ...]
    unreadable: tuple[tuple[str, str], ...]
    failing: frozenset[Outcome]

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
