"""Checks the splits that a scan found: accepted, refused or unknown, why, and what to change."""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from dmlsplit.directml.legalization import equivalent
from dmlsplit.directml.levels import FeatureLevel
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules.violation import Violation
from dmlsplit.directml.tensor import UINT_MAX
from dmlsplit.directml.validation import minimum_feature_level, report_at
from dmlsplit.errors import InvalidArgumentError, NoEquivalentError
from dmlsplit.lint import onnxruntime
from dmlsplit.lint.advice import advise, declarations
from dmlsplit.lint.rules import make_defect, make_violation
from dmlsplit.lint.target import LevelReleases, Target, level_releases
from dmlsplit.lint.verdict import FAILING, Assessment, Outcome, SizeRange, Verdict
from dmlsplit.messages import omitted_line
from dmlsplit.models.site import (
    Invalid,
    Known,
    ProviderRemark,
    SplitSite,
    Unknown,
)

# A model has many splits, but few different descriptors.
_cached = lru_cache(maxsize=4096)
_minimum_level = _cached(minimum_feature_level)
# The most nodes that are named as combining the pieces of a split.
_MAX_NODES = 4
_FOLDED = (
    "its input is a constant, or the known shape of a value, so ONNX Runtime computes it when it "
    "loads the model, before it chooses a provider"
)


def assess(
    sites: Iterable[SplitSite],
    target: Target,
    unreadable: Iterable[tuple[str, str]] = (),
    failing: Iterable[Outcome] = FAILING,
    defects_fail: bool = False,
) -> Assessment:
    """Check all sites for a target."""
    splits = tuple(sites)
    declared = declarations(splits)
    verdicts = tuple(check_site(site, target, declared.get(site.file, "")) for site in splits)
    faults = tuple(onnxruntime.target_violations(target))
    files = tuple(unreadable)
    return Assessment(target, verdicts, files, frozenset(failing), faults, defects_fail)


def check_site(site: SplitSite, target: Target, declaration: str = "") -> Verdict:
    """Check one site for a target; `declaration` is as in `advise`."""
    if (unreached := _unreached(site)) is not None:
        return unreached
    match site.state:
        case _ if site.model_fault is not None:
            fault = make_violation("SPLIT-MODEL-INVALID", text=site.model_fault)
            verdict = Verdict(site, None, Outcome.REFUSED, (fault,))
        case Known(descriptor):
            verdict = _check_known(site, descriptor, target)
        case Unknown() as unknown:
            verdict = _check_unknown(site, unknown, target)
        case Invalid(problem):
            # Reports name the operator before.
            text = problem.removeprefix(f"{site.operator}: ")
            invalid = make_violation("SPLIT-NODE-INVALID", text=text)
            remarks = _examination(site, None, target).remarks
            verdict = Verdict(site, None, Outcome.REFUSED, (invalid, *remarks))
    diagnostics = sorted(verdict.diagnostics, key=lambda violation: violation.severity != "error")
    fixes, notes, rewriting = advise(verdict, target, declaration)
    if site.never_runs is not None:
        notes += (f"{site.never_runs}; but ONNX Runtime checks it when it loads the model",)
    if verdict.outcome is Outcome.UNKNOWN:  # so that all formats give one and the same fix
        diagnostics = [_with_fix(violation, fixes[0]) for violation in diagnostics]
    return replace(
        verdict, diagnostics=tuple(diagnostics), fixes=fixes, notes=notes, rewriting=rewriting
    )


def _with_fix(violation: Violation, fix: str) -> Violation:
    return replace(violation, fix=fix) if violation.rule.id == "SPLIT-NODE-UNKNOWN" else violation


def _unreached(site: SplitSite) -> Verdict | None:
    """The verdict about a node that DirectML does not get in a model that a runtime loads."""
    if site.model_fault is not None:
        return None
    is_loaded = not isinstance(site.state, Invalid) or site.state.is_loaded
    if site.never_runs is not None and is_loaded:
        return Verdict(site, None, Outcome.NEVER_RUNS, (), notes=(site.never_runs,))
    if site.is_folded and isinstance(site.state, Known):
        return Verdict(site, None, Outcome.FOLDED, (), notes=(_FOLDED,))
    return None


class _Examination(NamedTuple):
    """The descriptor of a split at the target, the remarks about its node, and the broken rules."""

    desc: SplitOperatorDesc | None
    remarks: list[Violation]
    errors: list[Violation]  # among the remarks
    broken: Sequence[Violation]  # rules of descriptors
    minimum: LevelReleases | None  # the lowest level that accepts both


def _examination(site: SplitSite, desc: SplitOperatorDesc | None, target: Target) -> _Examination:
    provider: list[Violation] = []
    if target.via == "ort":
        provider += onnxruntime.violations(site, target)
        desc = desc and onnxruntime.provider_descriptor(desc)
    remarks = [*_node_diagnostics(site, {violation.rule.id for violation in provider}), *provider]
    errors = [violation for violation in remarks if violation.severity == "error"]
    broken = report_at(desc, target.level).violations if desc else ()
    curable = all("level" in violation.rule.fixable_by for violation in errors)
    return _Examination(desc, remarks, errors, broken, _minimum(desc, target) if curable else None)


def _check_known(site: SplitSite, descriptor: SplitOperatorDesc | None, target: Target) -> Verdict:
    desc, remarks, errors, broken, minimum = _examination(site, descriptor, target)
    legal, obstacle = None, None
    # The provider makes its own descriptors, so an equivalent cannot be passed to it.
    if desc and broken and not errors and target.via == "directml":
        legal, obstacle = _equivalent(desc, target.level)
    refused = Outcome.EQUIVALENT if legal else Outcome.REFUSED
    outcome = refused if errors or broken else Outcome.OK
    return Verdict(site, desc, outcome, (*remarks, *broken), legal, minimum, obstacle=obstacle)


def _check_unknown(site: SplitSite, unknown: Unknown, target: Target) -> Verdict:
    """Check the smallest descriptor: a rule that it breaks, all sizes break."""
    desc, remarks, errors, broken, minimum = _examination(site, unknown.smallest_descriptor, target)
    if site.element_type is None:  # the descriptor's type is a placeholder that every level accepts
        minimum = None
    if desc and unknown.only_count_varies and not errors and not broken:
        # Larger sizes only multiply the number of elements, so no other rule can break.
        limit = UINT_MAX // desc.input_tensor.element_count
        names = tuple(name for name, _ in unknown.missing) or site.dynamic_dimensions
        sizes = SizeRange(names, limit)
        return Verdict(
            site, desc, Outcome.OK_FOR_EVERY_SIZE, tuple(remarks), None, minimum, sizes=sizes
        )
    broken = [v for v in broken if v.tensor == "InputTensor" and v.rule.at_every_size]
    note = make_violation("SPLIT-NODE-UNKNOWN", text=unknown.reason)
    diagnostics = (*remarks, note, *broken)
    if not errors and not broken:
        return Verdict(site, None, Outcome.UNKNOWN, diagnostics)
    undecided = not errors and target.via == "directml"
    return Verdict(
        site, None, Outcome.REFUSED_FOR_EVERY_SIZE, diagnostics, None, minimum, undecided=undecided
    )


def _node_diagnostics(site: SplitSite, broken: Set[str]) -> Iterator[Violation]:
    """What is to be said about a node, except for what the broken rules of the provider say."""
    if site.element_type == "STRING":
        text = "InputTensor.DataType is STRING; DirectML has no strings"
        yield make_violation("SPLIT-NODE-TEXT", text=text)
    else:  # what a warning says is of no use for a node that DirectML never gets
        for warning in site.warnings:
            if not (isinstance(warning, ProviderRemark) and warning.rule in broken):
                yield make_violation("SPLIT-NODE-SURPRISE", text=warning)
    if site.recombined_by:
        names = site.recombined_by
        nodes = ", ".join([*names[:_MAX_NODES], *omitted_line(len(names), _MAX_NODES)])
        yield make_defect("SPLIT-DEFECT-RECOMBINED", f"its pieces are combined by {nodes}")


@_cached
def _equivalent(
    desc: SplitOperatorDesc, level: FeatureLevel
) -> tuple[SplitOperatorDesc | None, str | None]:
    """The equivalent of a refused descriptor; if it has none, None and the reason."""
    try:
        return equivalent(desc, level), None
    except NoEquivalentError as error:
        return None, f"no equivalent descriptor at feature level {level}: {error.reason}"
    except InvalidArgumentError:  # invalid at every level
        return None, None


def _minimum(desc: SplitOperatorDesc | None, target: Target) -> LevelReleases | None:
    """The lowest level that accepts a descriptor; None if none does, or if it is unknown."""
    level = _minimum_level(desc) if desc else None
    if level is None:
        return None
    return level_releases(max(level, onnxruntime.MIN_LEVEL) if target.via == "ort" else level)
