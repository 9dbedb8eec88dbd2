"""Outcomes, verdicts and assessments of the splits of a model."""

import re
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules.violation import Violation
from dmlsplit.lint.target import LevelReleases, Target
from dmlsplit.models.site import SplitSite, Unknown


class Outcome(StrEnum):
    """The possible verdicts."""

    # The worst first: the verdict about a model is that of its first split in this order.
    NOT_LOADED = "the model does not load"
    REFUSED = "refused"
    REFUSED_FOR_EVERY_SIZE = "refused for every size"
    EQUIVALENT = "refused, an equivalent exists"
    UNWRITTEN = "outputs not written"
    FAILS = "fails when it runs"
    UNKNOWN = "unknown"
    ON_CPU = "runs on the CPU"
    RUNS = "runs on DirectML"
    RUNS_FOR_EVERY_SIZE = "runs on DirectML at any size"
    FOLDED = "constant-folded"
    NEVER_RUNS = "never runs"


# The outcomes that count as refused by default. With --allow equivalent, it is those of
# WITHOUT_EQUIVALENT.
FAILING = frozenset(
    {
        Outcome.NOT_LOADED,
        Outcome.UNWRITTEN,
        Outcome.FAILS,
        Outcome.REFUSED,
        Outcome.REFUSED_FOR_EVERY_SIZE,
        Outcome.EQUIVALENT,
    }
)
WITHOUT_EQUIVALENT = FAILING - {Outcome.EQUIVALENT}
# The outcomes of nodes that do not reach DirectML, where nothing is wrong with that.
UNREACHED = frozenset({Outcome.FOLDED, Outcome.NEVER_RUNS})
ON_DIRECTML = frozenset({Outcome.RUNS, Outcome.RUNS_FOR_EVERY_SIZE})
ACCEPTED = ON_DIRECTML | UNREACHED
# The outcomes of nodes that DirectML may run once the model is changed.
CHANGEABLE = FAILING | {Outcome.ON_CPU}
# Matches the name of a dimension that is an expression, which is shown in brackets. A single / or -
# is not a sign of one, because names of values contain them.
_EXPRESSION = re.compile(r"[\s+*%]|//")


class SizeRange(NamedTuple):
    """The dynamic sizes for which a verdict holds: all from 1 up to a product."""

    names: tuple[str, ...]
    maximum_product: int

    def __str__(self) -> str:
        names = self.names
        # torch.onnx names dimensions after expressions, such as s27 - 1.
        if len(names) > 1:
            names = tuple(f"({n})" if _EXPRESSION.search(n) else n for n in names)
        return f"{' * '.join(names)} from 1 to {self.maximum_product:,}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What happens to one split at a target.

    Attributes
    ----------
    site, target : SplitSite, Target
        The split, and what it is checked for.
    descriptor : SplitOperatorDesc or None
        What it becomes there; for RUNS_FOR_EVERY_SIZE, at dynamic sizes of 1. None if unknown.
    outcome : Outcome
        What happens.
    diagnostics : tuple of Violation
        Every broken rule, then warnings and notes.
    equivalent : SplitOperatorDesc or None
        A descriptor of the same bytes that the level accepts; None unless EQUIVALENT.
    minimum : LevelReleases or None
        The lowest level that accepts the split unchanged (for REFUSED_FOR_EVERY_SIZE: at its
        smallest sizes); None if no level does, or if the level is unknown.
    fixes : tuple of str
        What to change: any one suffices, the most direct is first.
    rewriting : str
        The one of the fixes that is --write-fixed; empty without one.
    dispatching : str
        The one of the fixes that is a program's, to dispatch the equivalent; empty without one.
    notes : tuple of str
        Why there is no fix of some kind, or that there may be one; why DirectML never gets the
        node.
    undecided : bool
        REFUSED_FOR_EVERY_SIZE, but an equivalent may exist once the sizes are known.
    sizes : SizeRange or None
        The sizes of RUNS_FOR_EVERY_SIZE.
    obstacle : str or None
        Why a refused descriptor has no equivalent.
    """

    site: SplitSite
    target: Target
    descriptor: SplitOperatorDesc | None
    outcome: Outcome
    diagnostics: tuple[Violation, ...]
    equivalent: SplitOperatorDesc | None = None
    minimum: LevelReleases | None = None
    fixes: tuple[str, ...] = ()
    rewriting: str = ""
    dispatching: str = ""
    notes: tuple[str, ...] = ()
    undecided: bool = False
    sizes: SizeRange | None = None
    obstacle: str | None = None

    @property
    def fix(self) -> str:
        """The fixes, in one line."""
        return "; or ".join(self.fixes)

    @property
    def errors(self) -> tuple[Violation, ...]:
        """The diagnostics that are errors: broken rules."""
        return tuple(violation for violation in self.diagnostics if violation.severity == "error")

    @property
    def needs_type(self) -> bool:
        """Whether the first level that accepts the split depends on a type that is not known."""
        is_unknown = isinstance(self.site.state, Unknown) and self.site.element_type is None
        return is_unknown and all("level" in error.rule.fixable_by for error in self.errors)

    @property
    def defects(self) -> tuple[Violation, ...]:
        """The known defects of DirectML that may affect the split."""
        return tuple(violation for violation in self.diagnostics if violation.severity == "defect")

    @property
    def is_plain(self) -> bool:
        """Whether it is accepted and there is nothing to say about it except for defects."""
        return self.outcome in ACCEPTED and self.diagnostics == self.defects

    @property
    def hresult(self) -> int | None:
        """The HRESULT of the refusal at run time; None if no call fails."""
        if self.outcome not in FAILING:
            return None
        codes = (violation.rule.hresult for violation in self.errors)
        return next((code for code in codes if code is not None), None)


@dataclass(frozen=True, slots=True)
class ModelVerdict:
    """What happens to a model without a split that a runtime does not load, or may not."""

    file: str
    target: Target
    # NOT_LOADED or UNKNOWN.
    outcome: Outcome
    diagnostics: tuple[Violation, ...]
    # What to change: any one suffices.
    fixes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Assessment:
    """All verdicts of a run.

    Attributes
    ----------
    target : Target
        The target of ONNX models; other files may have another one.
    verdicts : tuple of Verdict
        In the order of files and nodes.
    unreadable : tuple of (str, str)
        Each file that cannot be read, and why.
    failing : frozenset of Outcome
        The outcomes that count as refused.
    diagnostics : tuple of Violation
        The rules that the target itself breaks.
    defects_fail : bool
        Whether a known defect counts as refused too.
    baseline : frozenset of (str, str)
        File and fingerprint of the findings that do not fail, because they are known.
    models : tuple of ModelVerdict
        Those without a split.
    """

    target: Target
    verdicts: tuple[Verdict, ...]
    unreadable: tuple[tuple[str, str], ...]
    failing: frozenset[Outcome] = FAILING
    diagnostics: tuple[Violation, ...] = ()
    defects_fail: bool = False
    baseline: frozenset[tuple[str, str]] = frozenset()
    models: tuple[ModelVerdict, ...] = ()

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets of the verdicts, in their order."""
        targets = tuple(dict.fromkeys(verdict.target for verdict in self.verdicts))
        return targets or (self.target,)

    @property
    def counts(self) -> dict[Outcome, int]:
        """The number of splits with each outcome."""
        return dict.fromkeys(Outcome, 0) | Counter(verdict.outcome for verdict in self.verdicts)

    @property
    def accepted(self) -> bool:
        """Whether the target is usable, and no split, model or defect counts as refused."""
        fails_by_defect = self.defects_fail and any(verdict.defects for verdict in self.verdicts)
        fails = any(map(self.fails, self.verdicts)) or any(map(self.fails, self.models))
        return not (self.diagnostics or fails_by_defect or fails)

    def fails(self, verdict: Verdict | ModelVerdict) -> bool:
        """Whether a verdict counts as refused, whatever its defects are."""
        # With --allow equivalent, it is not yet known whether one exists.
        is_undecided = isinstance(verdict, Verdict) and verdict.undecided
        if is_undecided and Outcome.EQUIVALENT not in self.failing:
            return Outcome.UNKNOWN in self.failing
        return verdict.outcome in self.failing
