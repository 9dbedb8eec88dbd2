"""Judges what a scan found: accepted, refused or unknown, why, and what to change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Literal

from dmlsplit.directml.legalization import legalize
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules import Rule, Violation
from dmlsplit.directml.validation import minimum_feature_level, validate
from dmlsplit.errors import InvalidArgumentError, NoEquivalentError
from dmlsplit.frontends import SplitSite
from dmlsplit.lint import onnxruntime
from dmlsplit.lint.target import Requirement, Target, requirement

Severity = Literal["error", "warning", "note"]

NODE_RULES = {
    rule.id: rule
    for rule in (
        Rule(
            "SPLIT-NODE-INVALID",
            "A node keeps the rules of its own operator.",
            "documented",
            "the specification of the node's operator",
            "correct the node; no runtime can be relied on to take it",
        ),
        Rule(
            "SPLIT-NODE-TEXT",
            "The elements of a tensor have a fixed number of bytes.",
            "documented",
            "https://learn.microsoft.com/windows/win32/api/directml/"
            "ne-directml-dml_tensor_data_type",
            "keep the node on the CPU",
        ),
        Rule(
            "SPLIT-NODE-UNKNOWN",
            "The sizes of a split are known before the model runs.",
            "policy",
            "dmlsplit; DirectML compiles an operator for fixed sizes",
            "fix the dimension in the model, then validate again",
        ),
        Rule(
            "SPLIT-NODE-SURPRISE",
            "A node means the same to every runtime.",
            "policy",
            "dmlsplit; runtimes disagree about some legal nodes",
            "write the node so that every runtime reads it alike",
        ),
    )
}


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
        Whose id it carries.
    severity : {"error", "warning", "note"}
        Errors are broken rules.
    message : str
        All of it in one sentence.
    tensor, field, found, allowed : str
        The parts of a broken rule, as in `Violation`; empty where it has none.
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
    """What becomes of one split at a target.

    Attributes
    ----------
    site : SplitSite
        Where it is.
    descriptors : tuple of SplitOperatorDesc
        What it becomes at the target.
    outcome : Outcome
    diagnostics : tuple of Diagnostic
        Every broken rule, then warnings and notes.
    legalized : tuple of SplitOperatorDesc
        Equivalent descriptors that the target accepts; empty unless the outcome is
        `Outcome.LEGALIZED`.
    minimum : Requirement or None
        The least that accepts the split as it is; None if nothing does, or it is unknown.
    fix : str
        What to change; empty if nothing must.
    """

    site: SplitSite
    descriptors: tuple[SplitOperatorDesc, ...]
    outcome: Outcome
    diagnostics: tuple[Diagnostic, ...]
    legalized: tuple[SplitOperatorDesc, ...]
    minimum: Requirement | None
    fix: str


def assess(
    sites: Iterable[SplitSite],
    target: Target,
    unreadable: Iterable[tuple[str, str]] = (),
    failing: Iterable[Outcome] = (Outcome.REFUSED, Outcome.LEGALIZED),
) -> Assessment:
    """Hold all sites against a target."""
    verdicts = tuple(judge(site, target) for site in sites)
    return Assessment(target, verdicts, tuple(unreadable), frozenset(failing))


def judge(site: SplitSite, target: Target) -> Verdict:
    """Hold one site against a target."""
    own = [*_node_diagnostics(site)]
    descriptors = site.descriptors
    if target.via == "ort":
        own += map(_diagnostic, onnxruntime.violations(site, target.level))
        descriptors = tuple(map(onnxruntime.lowered, descriptors))
    broken = [v for desc in descriptors for v in validate(desc, target.level).violations]
    errors = [diagnostic for diagnostic in own if diagnostic.severity == "error"]
    # The provider makes the descriptors itself, nobody can hand it others.
    free = target.via == "directml" and not errors
    legalized, obstacle = _legalized(descriptors, target) if broken and free else ((), "")
    outcome = _outcome(bool(errors), bool(broken), bool(legalized), bool(site.unknown))
    curable = all(diagnostic.rule.id == "ORT-FEATURE-LEVEL" for diagnostic in errors)
    minimum = _minimum(descriptors, target) if curable else None
    errors += map(_diagnostic, broken)
    hints = dict.fromkeys(diagnostic.rule.hint for diagnostic in errors)
    fix = "; ".join(_ways(outcome, legalized, minimum, obstacle, hints))
    others = [diagnostic for diagnostic in own if diagnostic.severity != "error"]
    return Verdict(site, descriptors, outcome, (*errors, *others), legalized, minimum, fix)


@dataclass(frozen=True, slots=True)
class Assessment:
    """All verdicts of a run.

    Attributes
    ----------
    target : Target
        What the splits were held against.
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
    def status(self) -> int:
        """Exit status: 2 if a file could not be read, 1 if a split is refused, else 0."""
        if self.unreadable:
            return 2
        return int(any(map(self.fails, self.verdicts)))

    def fails(self, verdict: Verdict) -> bool:
        """Whether a verdict counts as refused."""
        return verdict.outcome in self.failing


def _node_diagnostics(site: SplitSite) -> Iterator[Diagnostic]:
    if site.problem:
        yield Diagnostic(NODE_RULES["SPLIT-NODE-INVALID"], "error", site.problem)
    if site.element_type == "STRING":
        message = "InputTensor.DataType is STRING; DirectML has no strings"
        yield Diagnostic(NODE_RULES["SPLIT-NODE-TEXT"], "error", message)
    for warning in site.warnings:
        yield Diagnostic(NODE_RULES["SPLIT-NODE-SURPRISE"], "warning", warning)
    if site.unknown:
        yield Diagnostic(NODE_RULES["SPLIT-NODE-UNKNOWN"], "note", site.unknown)


def _diagnostic(broken: Violation) -> Diagnostic:
    message = f"{broken.place} is {broken.found}; must be {broken.allowed}"
    parts = (broken.tensor, broken.field, broken.found, broken.allowed)
    return Diagnostic(broken.rule, "error", message, *parts)


def _legalized(
    descriptors: Iterable[SplitOperatorDesc], target: Target
) -> tuple[tuple[SplitOperatorDesc, ...], str]:
    """Return equivalents of all descriptors; or none, and what stands in the way."""
    try:
        return tuple(legalize(desc, target.level) for desc in descriptors), ""
    except NoEquivalentError as error:
        return (), f"no equivalent at feature level {target.level}: {error.reason}"
    except InvalidArgumentError:  # wrong at every level
        return (), ""


def _outcome(errors: bool, broken: bool, legalized: bool, unknown: bool) -> Outcome:
    if errors or (broken and not legalized):
        return Outcome.REFUSED
    if broken:
        return Outcome.LEGALIZED
    return Outcome.UNKNOWN if unknown else Outcome.OK


def _minimum(descriptors: Sequence[SplitOperatorDesc], target: Target) -> Requirement | None:
    levels = [_minimum_level(desc) for desc in descriptors]
    if target.via == "ort":
        levels.append(onnxruntime.MINIMUM_LEVEL)
    known = [level for level in levels if level is not None]
    if not descriptors or len(known) < len(levels):
        return None
    return requirement(max(known))


_minimum_level = lru_cache(maxsize=4096)(minimum_feature_level)


def _ways(
    outcome: Outcome,
    legalized: tuple[SplitOperatorDesc, ...],
    minimum: Requirement | None,
    obstacle: str,
    hints: Iterable[str],
) -> Iterator[str]:
    """Yield what can be done, the most direct way first."""
    if outcome is Outcome.UNKNOWN:
        yield NODE_RULES["SPLIT-NODE-UNKNOWN"].hint
    if outcome in (Outcome.OK, Outcome.UNKNOWN):
        return
    if legalized:
        yield f"on the same buffers, dispatch {' then '.join(map(str, legalized))}"
    if minimum is not None:
        build = f", or Windows build {minimum.windows.build}" if minimum.windows else ""
        yield f"ship DirectML {minimum.directml} or later (level {minimum.level}){build}"
    else:
        yield from hints
    if obstacle:
        yield f"there is {obstacle}"
