"""What is said of the splits of a model: outcomes, verdicts, assessments."""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules.violation import Violation
from dmlsplit.frontends import SplitSite
from dmlsplit.lint.target import Requirement, Target


class Outcome(StrEnum):
    """The verdicts."""

    OK = "ok"
    LEGALIZED = "ok after legalizing"
    REFUSED = "refused"
    NEVER = "refused for every size"
    UNKNOWN = "unknown"


# What counts as refused unless a caller says otherwise.
FAILING = frozenset({Outcome.REFUSED, Outcome.NEVER, Outcome.LEGALIZED})


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a target accepts one split."""

    site: SplitSite
    descriptors: tuple[SplitOperatorDesc, ...]  # that it becomes at the target
    outcome: Outcome
    diagnostics: tuple[Violation, ...]  # every broken rule, then warnings and notes
    # Equivalent descriptors that the target accepts; empty unless the outcome is LEGALIZED.
    legalized: tuple[SplitOperatorDesc, ...]
    # The lowest level that accepts the split unchanged, at its smallest sizes if it is refused
    # for every size; None if none does, or if it is unknown.
    minimum: Requirement | None
    fix: str = ""  # what to change; empty if nothing has to be
    # Whether the outcome is NEVER, but an equivalent may exist once the sizes are known.
    legalizable: bool = False

    @property
    def errors(self) -> tuple[Violation, ...]:
        """The broken rules."""
        return tuple(each for each in self.diagnostics if each.severity == "error")

    @property
    def hresult(self) -> int | None:
        """What the refusal is at run time; None if nothing fails then."""
        if self.outcome in (Outcome.OK, Outcome.UNKNOWN):
            return None
        codes = (each.rule.hresult for each in self.errors)
        return next((code for code in codes if code is not None), None)


@dataclass(frozen=True, slots=True)
class Assessment:
    """All verdicts of a run."""

    target: Target
    verdicts: tuple[Verdict, ...]  # in the order of the files, and of the nodes in each
    unreadable: tuple[tuple[str, str], ...]  # files that could not be read, and why
    failing: frozenset[Outcome] = FAILING  # the outcomes that count as refused
    diagnostics: tuple[Violation, ...] = ()  # about the target itself
    defects_fail: bool = False  # whether a known defect counts as refused

    @property
    def counts(self) -> dict[Outcome, int]:
        """How many splits have each outcome."""
        found = Counter(verdict.outcome for verdict in self.verdicts)
        return {outcome: found[outcome] for outcome in Outcome}

    @property
    def accepted(self) -> bool:
        """Whether the target can be used at all, and no split counts as refused."""
        return not self.diagnostics and not any(map(self.fails, self.verdicts))

    def fails(self, verdict: Verdict) -> bool:
        """Whether a verdict counts as refused."""
        if self.defects_fail and any(each.severity == "defect" for each in verdict.diagnostics):
            return True
        # With --allow legalizing, it is not yet known whether an equivalent exists.
        undecided = verdict.legalizable and Outcome.LEGALIZED not in self.failing
        return (Outcome.UNKNOWN if undecided else verdict.outcome) in self.failing
