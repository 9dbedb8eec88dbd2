"""Judges the splits that a scan found: accepted, refused or unknown, why, and what to change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from dmlsplit.directml.legalization import legalize
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules import Violation
from dmlsplit.directml.validation import minimum_feature_level, validate
from dmlsplit.errors import InvalidArgumentError, NoEquivalentError
from dmlsplit.frontends import SplitSite
from dmlsplit.lint import onnxruntime
from dmlsplit.lint.rules import RULES
from dmlsplit.lint.target import Requirement, Target, requirement
from dmlsplit.lint.verdict import Assessment, Diagnostic, Outcome, Verdict

_Descriptors = tuple[SplitOperatorDesc, ...]
_minimum_level = lru_cache(maxsize=4096)(minimum_feature_level)


def assess(
    sites: Iterable[SplitSite],
    target: Target,
    unreadable: Iterable[tuple[str, str]] = (),
    failing: Iterable[Outcome] = (Outcome.REFUSED, Outcome.LEGALIZED),
) -> Assessment:
    """Judge all sites for a target."""
    verdicts = tuple(judge(site, target) for site in sites)
    return Assessment(target, verdicts, tuple(unreadable), frozenset(failing))


def judge(site: SplitSite, target: Target) -> Verdict:
    """Judge one site for a target."""
    said, descriptors = [*_of_the_node(site)], site.descriptors
    if target.via == "ort":
        said += map(_diagnostic, onnxruntime.violations(site, target.level))
        descriptors = tuple(map(onnxruntime.lowered, descriptors))
    broken = [v for desc in descriptors for v in validate(desc, target.level).violations]
    errors = [diagnostic for diagnostic in said if diagnostic.severity == "error"]
    others = [diagnostic for diagnostic in said if diagnostic.severity != "error"]
    # The provider makes its own descriptors; nobody can hand it equivalent ones.
    legalizable = broken and not errors and target.via == "directml"
    legalized, obstacle = _legalized(descriptors, target) if legalizable else ((), "")
    if errors or (broken and not legalized):
        outcome = Outcome.REFUSED
    elif broken:
        outcome = Outcome.LEGALIZED
    else:
        outcome = Outcome.UNKNOWN if site.unknown else Outcome.OK
    # Of the errors of a node, a higher level cures only this one.
    curable = all(diagnostic.rule.id == "ORT-FEATURE-LEVEL" for diagnostic in errors)
    minimum = _minimum(descriptors, target) if curable else None
    errors += map(_diagnostic, broken)
    fix = "; ".join(_fixes(outcome, errors, legalized, minimum, obstacle))
    return Verdict(site, descriptors, outcome, (*errors, *others), legalized, minimum, fix)


def _of_the_node(site: SplitSite) -> Iterator[Diagnostic]:
    if site.problem:
        yield Diagnostic(RULES["SPLIT-NODE-INVALID"], "error", site.problem)
    if site.element_type == "STRING":
        message = "InputTensor.DataType is STRING; DirectML has no strings"
        yield Diagnostic(RULES["SPLIT-NODE-TEXT"], "error", message)
    for warning in site.warnings:
        yield Diagnostic(RULES["SPLIT-NODE-SURPRISE"], "warning", warning)
    if site.unknown:
        yield Diagnostic(RULES["SPLIT-NODE-UNKNOWN"], "note", site.unknown)


def _diagnostic(broken: Violation) -> Diagnostic:
    message = f"{broken.place} is {broken.found}; must be {broken.allowed}"
    parts = (broken.tensor, broken.field, broken.found, broken.allowed)
    return Diagnostic(broken.rule, "error", message, *parts)


def _legalized(descriptors: _Descriptors, target: Target) -> tuple[_Descriptors, str]:
    """Return equivalents of all descriptors; or none, and why there are none."""
    try:
        return tuple(legalize(desc, target.level) for desc in descriptors), ""
    except NoEquivalentError as error:
        return (), f"no equivalent at feature level {target.level}: {error.reason}"
    except InvalidArgumentError:  # invalid at every level
        return (), ""


def _minimum(descriptors: _Descriptors, target: Target) -> Requirement | None:
    """Return the lowest level that accepts all descriptors, if they are known and one does."""
    levels = [_minimum_level(desc) for desc in descriptors]
    if target.via == "ort":
        levels.append(onnxruntime.MINIMUM_LEVEL)
    known = [level for level in levels if level is not None]
    return requirement(max(known)) if descriptors and len(known) == len(levels) else None


def _fixes(
    outcome: Outcome,
    errors: Iterable[Diagnostic],
    legalized: _Descriptors,
    minimum: Requirement | None,
    obstacle: str,
) -> Iterator[str]:
    """Yield what can be done, the most direct way first."""
    if outcome is Outcome.UNKNOWN:
        yield RULES["SPLIT-NODE-UNKNOWN"].hint
    if outcome in (Outcome.OK, Outcome.UNKNOWN):
        return
    if legalized:
        yield f"on the same buffers, dispatch {' then '.join(map(str, legalized))}"
    if minimum is not None:
        build = f", or Windows build {minimum.windows.build}" if minimum.windows else ""
        yield f"ship DirectML {minimum.directml} or later (level {minimum.level}){build}"
    else:
        yield from dict.fromkeys(diagnostic.rule.hint for diagnostic in errors)
    if obstacle:
        yield f"there is {obstacle}"
