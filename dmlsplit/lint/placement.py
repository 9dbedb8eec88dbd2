"""Where a split of an ONNX model runs in a runtime: on DirectML, on the CPU, or not at all."""

from collections.abc import Sequence
from dataclasses import replace

from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules.rule import Effect
from dmlsplit.directml.rules.violation import Violation
from dmlsplit.directml.tensor import UINT_MAX
from dmlsplit.directml.validation import violations_at
from dmlsplit.lint import onnxruntime
from dmlsplit.lint.loading import load_violations
from dmlsplit.lint.rules import make_violation
from dmlsplit.lint.target import Target
from dmlsplit.lint.verdict import Outcome, SizeRange, Verdict
from dmlsplit.models.site import Known, SplitSite, Unknown

# The effects of broken rules, the worst first.
_OUTCOMES: dict[Effect, Outcome] = {
    "load": Outcome.NOT_LOADED,
    "unwritten": Outcome.UNWRITTEN,
    "run": Outcome.FAILS,
    "unknown": Outcome.UNKNOWN,
    "cpu": Outcome.ON_CPU,
}
_FOLDED_NOTE = (
    "its input is a constant, or the known shape of a value, so ONNX Runtime computes it when it "
    "loads the model, before it chooses a provider"
)


def outcome_of_effects(violations: Sequence[Violation]) -> Outcome | None:
    """The outcome of the worst effect; None if no violation has one."""
    effects = {violation.effect for violation in violations}
    return next((outcome for effect, outcome in _OUTCOMES.items() if effect in effects), None)


def runtime_verdict(site: SplitSite, target: Target) -> Verdict:
    """What happens to a split in the runtime of a target, without advice and remarks."""
    faults = tuple(load_violations(site, target))
    if site.is_folded:  # by the kernel for the CPU, also in a branch that never runs
        faults += tuple(
            replace(fault, own_effect="load") for fault in onnxruntime.cpu_faults(site, target)
        )
    outcome = outcome_of_effects(faults)
    # What a node that never runs does when it runs is of no interest.
    if outcome and (outcome is not Outcome.FAILS or site.never_runs is None):
        return Verdict(site, target, None, outcome, faults)
    if site.never_runs is not None:
        return dead_verdict(site, target, site.never_runs)
    if site.is_folded and isinstance(site.state, Known):
        return Verdict(site, target, None, Outcome.FOLDED, (), notes=(_FOLDED_NOTE,))
    reasons = tuple(onnxruntime.cpu_violations(site, target))
    if outcome := outcome_of_effects(reasons):
        return Verdict(site, target, None, outcome, reasons)
    return _directml_verdict(site, target)


def dead_verdict(site: SplitSite, target: Target, reason: str) -> Verdict:
    """The verdict about a node that never runs, for this reason, of a model that is loaded."""
    return Verdict(site, target, None, Outcome.NEVER_RUNS, (), notes=(reason,))


def _directml_verdict(site: SplitSite, target: Target) -> Verdict:
    """The verdict about a node that the provider takes."""
    desc = _descriptor(site)
    state = site.state
    provider_rules = tuple(onnxruntime.provider_violations(site, target))
    violations = (*provider_rules, *_broken_directml_rules(site, desc, target))
    if outcome := outcome_of_effects(violations):
        return Verdict(site, target, desc, outcome, violations)
    if isinstance(state, Known):
        return Verdict(site, target, desc, Outcome.RUNS, violations)
    assert isinstance(state, Unknown)  # an invalid node does not load, or fails
    if desc and state.only_count_varies:
        sizes = size_range(site, desc, state)
        outcome = Outcome.RUNS_FOR_EVERY_SIZE
        return Verdict(site, target, desc, outcome, violations, sizes=sizes)
    note = make_violation("SPLIT-NODE-UNKNOWN", text=state.reason)
    return Verdict(site, target, None, Outcome.UNKNOWN, (*violations, note))


def size_range(site: SplitSite, desc: SplitOperatorDesc, state: Unknown) -> SizeRange:
    """The sizes for which a verdict holds: larger ones only multiply the number of elements."""
    limit = UINT_MAX // desc.input_tensor.element_count
    names = tuple(name for name, _ in state.missing) or site.dynamic_dimensions
    return SizeRange(names, limit)


def broken_at_every_size(violations: Sequence[Violation]) -> tuple[Violation, ...]:
    """The violations of a smallest descriptor that larger sizes have too."""
    return tuple(
        violation
        for violation in violations
        if violation.tensor == "InputTensor" and violation.rule.at_every_size
    )


def _descriptor(site: SplitSite) -> SplitOperatorDesc | None:
    """The descriptor that the provider makes of a split, or None."""
    match site.state:
        case Known(descriptor) | Unknown(smallest_descriptor=descriptor) if descriptor:
            return onnxruntime.provider_descriptor(descriptor)
    return None


def _broken_directml_rules(
    site: SplitSite, desc: SplitOperatorDesc | None, target: Target
) -> tuple[Violation, ...]:
    """DirectML's own rules that the provider's descriptor breaks, with what follows."""
    if desc is None:
        return ()
    broken = violations_at(desc, target.level)
    if isinstance(site.state, Unknown) and not site.state.only_count_varies:
        broken = broken_at_every_size(broken)
    is_sure = target.runtime is not None and target.runtime.provider is not None
    return tuple(
        replace(v, own_effect="run" if is_sure and not _may_differ(v, target) else "unknown")
        for v in broken
    )


def _may_differ(violation: Violation, target: Target) -> bool:
    """Whether the provider may leave the split to the CPU, or the DirectML.dll may be newer."""
    is_of_level = "level" in violation.rule.fixable_by
    return is_of_level and (target.is_lower_bound or violation.field == "DataType")
