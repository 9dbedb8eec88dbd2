"""Outcomes, verdicts and assessments of the splits of a model."""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules.violation import Violation
from dmlsplit.frontends import SplitSite
from dmlsplit.lint.target import Requirement, Target


class Outcome(StrEnum):
    """The possible verdicts."""

    OK = "ok"
    LEGALIZED = "ok after legalizing"
    REFUSED = "refused"
    NEVER = "refused for every size"
    UNKNOWN = "unknown"


# The outcomes that count as refused by default.
FAILING = frozenset({Outcome.REFUSED, Outcome.NEVER, Outcome.LEGALIZED})


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a target accepts one split."""

    site: SplitSite
    descriptors: tuple[SplitOperatorDesc, ...]  # that the split becomes at the target
    outcome: Outcome
    diagnostics: tuple[Violation, ...]  # every broken rule, then warnings and notes
    legalized: tuple[SplitOperatorDesc, ...]  # accepted equivalents; empty unless LEGALIZED
    # The lowest level that accepts the split unchanged (for NEVER: at its smallest sizes); None
    # if no level does, or it is unknown.
    minimum: Requirement | None
    fix: str = ""  # what to change, if anything
    legalizable: bool = False  # NEVER, but an equivalent may exist once the sizes are known

    @property
    def errors(self) -> tuple[Violation, ...]:
        """The broken rules."""
        return tuple(each for each in self.diagnostics if each.severity == "error")

    @property
    def hresult(self) -> int | None:
        """The HRESULT of the refusal at run time; None if no call fails."""
        if self.outcome in (Outcome.OK, Outcome.UNKNOWN):
            return None
        codes = (each.rule.hresult for each in self.errors)
        return next((code for code in codes if code is not None), None)


@dataclass(frozen=True, slots=True)
class Assessment:
    """All verdicts of a run."""

    target: Target
    verdicts: tuple[Verdict, ...]  # in the order of files and nodes
    unreadable: tuple[tuple[str, str], ...]  # each file that cannot be read, and why
    failing: frozenset[Outcome] = FAILING  # these count as refused
    diagnostics: tuple[Violation, ...] = ()  # about the target itself
    defects_fail: bool = False  # a known defect counts as refused too

    @property
    def counts(self) -> dict[Outcome, int]:
        """The number of splits with each outcome."""
        found = Counter(verdict.outcome for verdict in self.verdicts)
        return {outcome: found[outcome] for outcome in Outcome}

    @property
    def accepted(self) -> bool:
        """Whether the target is usable and no split counts as refused."""
        return not self.diagnostics and not any(map(self.fails, self.verdicts))

    def fails(self, verdict: Verdict) -> bool:
        """Whether a verdict counts as refused."""
        if self.defects_fail and any(each.severity == "defect" for each in verdict.diagnostics):
            return True
        # With --allow legalizing, it is not yet known whether an equivalent exists.
        undecided = verdict.legalizable and Outcome.LEGALIZED not in self.failing
        return (Outcome.UNKNOWN if undecided else verdict.outcome) in self.failing
