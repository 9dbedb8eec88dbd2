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
    ALWAYS = "ok for every size"
    EQUIVALENT = "refused, an equivalent exists"
    REFUSED = "refused"
    NEVER = "refused for every size"
    UNKNOWN = "unknown"


# The outcomes that count as refused if an equivalent is no excuse, as by default, and if it is.
FAILING = frozenset({Outcome.REFUSED, Outcome.NEVER, Outcome.EQUIVALENT})
WITHOUT_EQUIVALENT = FAILING - {Outcome.EQUIVALENT}
ACCEPTED = frozenset({Outcome.OK, Outcome.ALWAYS})


@dataclass(frozen=True, slots=True)
class SizeRange:
    """The dynamic sizes for which a verdict holds: all from 1 whose product is at most `most`."""

    names: tuple[str, ...]
    most: int

    def __str__(self) -> str:
        return f"{' * '.join(self.names)} 1 to {self.most:,}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a target accepts one split."""

    site: SplitSite
    # What the split becomes at the target; for ALWAYS, at dynamic sizes of 1. None if unknown.
    descriptor: SplitOperatorDesc | None
    outcome: Outcome
    diagnostics: tuple[Violation, ...]  # every broken rule, then warnings and notes
    equivalent: SplitOperatorDesc | None  # accepted; None unless EQUIVALENT
    # The lowest level that accepts the split unchanged (for NEVER: at its smallest sizes); None
    # if no level does, or if the level is unknown.
    minimum: Requirement | None
    fix: str = ""  # what to change, if anything
    undecided: bool = False  # NEVER, but an equivalent may exist once the sizes are known
    sizes: SizeRange | None = None  # for ALWAYS

    @property
    def errors(self) -> tuple[Violation, ...]:
        """The broken rules."""
        return tuple(each for each in self.diagnostics if each.severity == "error")

    @property
    def is_plain(self) -> bool:
        """Whether it is accepted and there is nothing to say about it."""
        return self.outcome in ACCEPTED and not self.diagnostics

    @property
    def lacks_only_count(self) -> bool:
        """Whether only num_outputs has to be set."""
        return {each.rule.id for each in self.errors} == {"ORT-NUM-OUTPUTS"}

    @property
    def hresult(self) -> int | None:
        """The HRESULT of the refusal at run time; None if no call fails."""
        if self.outcome not in FAILING:
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
        # With --allow equivalent, it is not yet known whether one exists.
        undecided = verdict.undecided and Outcome.EQUIVALENT not in self.failing
        return (Outcome.UNKNOWN if undecided else verdict.outcome) in self.failing
