"""Checks the splits that a scan found: what happens to each, why, and what to change."""

from collections.abc import Iterable, Iterator, Set
from dataclasses import replace
from functools import lru_cache

from dmlsplit.directml.legalization import equivalent
from dmlsplit.directml.levels import FeatureLevel
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules.violation import Violation
from dmlsplit.directml.validation import minimum_feature_level, violations_at
from dmlsplit.errors import InvalidArgumentError, NoEquivalentError
from dmlsplit.lint.advice import Remedies, advise, declarations, hints, unfreezing_fix
from dmlsplit.lint.defects import defects
from dmlsplit.lint.loading import invalid_node, model_violations, target_violations
from dmlsplit.lint.onnxruntime import text_faults
from dmlsplit.lint.placement import (
    broken_at_every_size,
    dead_verdict,
    outcome_of_effects,
    runtime_verdict,
    size_range,
)
from dmlsplit.lint.rules import make_violation
from dmlsplit.lint.target import LevelReleases, Target, level_releases
from dmlsplit.lint.verdict import (
    FAILING,
    ON_DIRECTML,
    UNREACHED,
    Assessment,
    ModelVerdict,
    Outcome,
    Verdict,
)
from dmlsplit.messages import Note
from dmlsplit.models.site import Invalid, Known, OnnxModel, ProviderRemark, SplitSite, Unknown

# A model has many splits, but few different descriptors.
_cached = lru_cache(maxsize=4096)
_minimum_level = _cached(minimum_feature_level)


def assess(
    sites: Iterable[SplitSite],
    target: Target,
    unreadable: Iterable[tuple[str, str]] = (),
    *,
    failing: Iterable[Outcome] = FAILING,
    defects_fail: bool = False,
    without_splits: Iterable[OnnxModel] = (),
    baseline: frozenset[tuple[str, str]] = frozenset(),
) -> Assessment:
    """Check the splits of a scan for a target.

    Parameters
    ----------
    sites : iterable of SplitSite
        The splits. A runtime gets only those of ONNX models; for others, an application calls
        DirectML directly.
    target : Target
        Who passes them to DirectML, and the level of its DirectML.dll.
    unreadable : iterable of (str, str), optional
        Each file that cannot be read, and why.
    failing : iterable of Outcome, optional
        The outcomes that count as refused.
    defects_fail : bool, optional
        Whether a known defect counts as refused too.
    without_splits : iterable of OnnxModel, optional
        Models without a split, which the runtime may not load either.
    baseline : frozenset of (str, str), optional
        File and fingerprint of the findings that do not fail, because they are known.

    Returns
    -------
    Assessment
        A verdict for each site, in their order, and for each model that does not load, or may not.

    Examples
    --------
    >>> from dmlsplit.lint import resolve_target
    >>> from dmlsplit.models.discovery import option_site
    >>> site = option_site("FLOAT32", sizes=(2, 6), axis=1, split=(2, 4))
    >>> (verdict,) = assess([site], resolve_target(feature_level="2_0")).verdicts
    >>> print(verdict.outcome)
    refused, an equivalent exists
    """
    splits = tuple(sites)
    declared = declarations(splits)
    verdicts = tuple(check_site(site, target, declared.get(site.file, "")) for site in splits)
    models = tuple(filter(None, (check_model(model, target) for model in without_splits)))
    return Assessment(
        target,
        verdicts,
        tuple(unreadable),
        failing=frozenset(failing),
        diagnostics=tuple(target_violations(target)),
        defects_fail=defects_fail,
        baseline=baseline,
        models=models,
    )


def check_model(model: OnnxModel, target: Target) -> ModelVerdict | None:
    """Check whether the runtime of a target loads a model without a split; None if it does."""
    if target.runtime is None:
        return None
    violations = tuple(model_violations(model, target.runtime))
    outcome = outcome_of_effects(violations)
    if outcome is None:
        return None
    is_unknown = outcome is Outcome.UNKNOWN
    decisive = [
        violation for violation in violations if (violation.effect == "unknown") == is_unknown
    ]
    return ModelVerdict(model.file, target, outcome, violations, hints(decisive))


def check_site(site: SplitSite, target: Target, declaration: str = "") -> Verdict:
    """Check one site for a target; `declaration` declares the unknown values of its file."""
    format_target = target.for_format(site.format)
    is_program = format_target.runtime is None
    verdict = (
        _program_verdict(site, format_target)
        if is_program
        else runtime_verdict(site, format_target)
    )
    if verdict.outcome in UNREACHED:
        return verdict
    has_minimum = verdict.outcome in ON_DIRECTML | FAILING
    verdict = replace(
        verdict,
        diagnostics=_diagnostics(verdict),
        minimum=_minimum_releases(verdict) if has_minimum else None,
    )
    return _with_remedies(verdict, advise(verdict, declaration))


def _diagnostics(verdict: Verdict) -> tuple[Violation, ...]:
    """The diagnostics of a verdict and the remarks about its site, errors first."""
    site = verdict.site
    is_program = verdict.target.runtime is None
    broken = {violation.rule.id for violation in verdict.errors}
    if not is_program:  # the verdict says where sequences run
        broken.add("ORT-SEQUENCE")
    remarks = [*_site_remarks(site, broken), *_frozen_warnings(site)]
    if is_program or verdict.outcome in ON_DIRECTML | {Outcome.UNKNOWN}:
        remarks += defects(site, verdict.target)
    return tuple(sorted((*remarks, *verdict.diagnostics), key=lambda v: v.severity != "error"))


def _with_remedies(verdict: Verdict, remedies: Remedies) -> Verdict:
    """The verdict with what can be done, and why there is nothing else."""
    site = verdict.site
    diagnostics = verdict.diagnostics
    notes = remedies.notes
    if site.never_runs is not None:
        notes += (f"{site.never_runs}; but ONNX Runtime checks it when it loads the model",)
    if verdict.outcome is Outcome.UNKNOWN and remedies.fixes:  # so that all formats give the same
        fix = remedies.fixes[0]
        diagnostics = tuple(
            replace(reason, fix=fix) if reason.rule.id == "SPLIT-NODE-UNKNOWN" else reason
            for reason in diagnostics
        )
    return replace(verdict, diagnostics=diagnostics, **remedies._replace(notes=notes)._asdict())


def _program_verdict(site: SplitSite, target: Target) -> Verdict:
    """The verdict about a split that goes to DirectML without a runtime."""
    if site.model_fault is not None:
        fault = make_violation("SPLIT-MODEL-INVALID", text=site.model_fault)
        return Verdict(site, target, None, Outcome.REFUSED, (fault,))
    is_loaded = not isinstance(site.state, Invalid) or site.state.is_loaded
    if is_loaded and site.never_runs is not None:
        return dead_verdict(site, target, site.never_runs)
    match site.state:
        case Known(descriptor):
            return _check_known(site, descriptor, target)
        case Unknown() as unknown:
            return _check_unknown(site, unknown, target)
        case Invalid(problem):
            fault = invalid_node(site, problem)
            return Verdict(site, target, None, Outcome.REFUSED, (*text_faults(site), fault))


def _check_known(site: SplitSite, desc: SplitOperatorDesc | None, target: Target) -> Verdict:
    """Check the descriptor of a split; None if all outputs are empty."""
    errors = text_faults(site)
    broken = violations_at(desc, target.level) if desc else ()
    legal, obstacle = _equivalent(desc, target.level) if desc and broken else (None, None)
    refused = Outcome.EQUIVALENT if legal else Outcome.REFUSED
    outcome = refused if errors or broken else Outcome.RUNS
    diagnostics = (*errors, *broken)
    return Verdict(site, target, desc, outcome, diagnostics, equivalent=legal, obstacle=obstacle)


def _check_unknown(site: SplitSite, unknown: Unknown, target: Target) -> Verdict:
    """Check the smallest descriptor: a rule that it breaks, all sizes break."""
    desc = unknown.smallest_descriptor
    errors = text_faults(site)
    broken = violations_at(desc, target.level) if desc else ()
    if desc and unknown.only_count_varies and not errors and not broken:
        sizes = size_range(site, desc, unknown)
        return Verdict(site, target, desc, Outcome.RUNS_FOR_EVERY_SIZE, (), sizes=sizes)
    broken = broken_at_every_size(broken)
    note = make_violation("SPLIT-NODE-UNKNOWN", text=unknown.reason)
    diagnostics = (*errors, note, *broken)
    if not errors and not broken:
        return Verdict(site, target, None, Outcome.UNKNOWN, diagnostics)
    outcome = Outcome.REFUSED_FOR_EVERY_SIZE
    return Verdict(site, target, None, outcome, diagnostics, undecided=not errors)


def _site_remarks(site: SplitSite, broken: Set[str]) -> Iterator[Violation]:
    """What is to be said about a node, except for what the broken rules of the provider say."""
    if site.element_type == "STRING":  # what a warning says is of no use where DirectML is not
        return
    for warning in site.warnings:
        if not (isinstance(warning, ProviderRemark) and warning.rule in broken):
            yield make_violation("SPLIT-NODE-SURPRISE", text=warning)


def _frozen_warnings(site: SplitSite) -> Iterator[Violation]:
    """The warning about a split whose sizes an exporter froze."""
    if site.frozen:
        name, size = site.frozen
        fault = f"works only for {name}={size}: the exporter wrote the sizes as constants"
        yield make_violation("SPLIT-NODE-FROZEN", text=Note(fault, unfreezing_fix(site)))


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


def _minimum_releases(verdict: Verdict) -> LevelReleases | None:
    """The lowest level that accepts a split; None if none does, or if it is unknown.

    In a runtime, only where the level of the DirectML.dll is what is wrong.
    """
    site = verdict.site
    target = verdict.target
    desc = verdict.descriptor
    if isinstance(site.state, Unknown):
        # The type of a descriptor is a placeholder that every level accepts.
        desc = site.state.smallest_descriptor if site.element_type else None
    if not all("level" in error.rule.fixable_by for error in verdict.errors):
        return None
    if target.runtime is not None and (verdict.outcome in ON_DIRECTML or desc is None):
        return None
    level = _minimum_level(desc) if desc else None
    return None if level is None else level_releases(level)
