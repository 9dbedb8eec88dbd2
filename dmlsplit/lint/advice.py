"""Advice: what makes an unknown split known, and the fixes of a refused one."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from dmlsplit.directml.rules.violation import Violation
from dmlsplit.lint.advice_texts import Advice
from dmlsplit.lint.commands import (
    declaring_command,
    fixing_command,
    freeing_command,
    options,
    python_command,
)
from dmlsplit.lint.fix.split_forms import Obstacle, form_of
from dmlsplit.lint.verdict import CHANGEABLE, Assessment, Outcome, Verdict
from dmlsplit.messages import Fix, Note, commands
from dmlsplit.models.site import Cause, SplitSite, Unknown

_ONNX_REMEDIES = {
    Cause.LENGTHS: Advice.STORE_LENGTHS,
    Cause.LIMIT: Advice.STORE_LENGTHS,
    Cause.WEIGHTS: Advice.KEEP_SMALL_TENSORS_INSIDE,
    Cause.COUNT: Advice.MAKE_FEWER_PIECES,
    Cause.ORDER: Advice.SORT_NODES,
    Cause.CALLER: Advice.INLINE_FUNCTIONS,
    Cause.INFERABLE: Advice.INFER_SHAPES,
}
_OPENVINO_REMEDIES = {
    Cause.DYNAMIC: Advice.FIX_SIZES_IN_OPENVINO,
    Cause.LENGTHS: Advice.STORE_LENGTHS,
    Cause.AXIS: Advice.STORE_AXIS,
    Cause.WEIGHTS: Advice.MOVE_BIN_FILE,
    Cause.OPERATION_SET: Advice.CONVERT_TO_OPSET1,
    Cause.ORDER: Advice.SORT_NODES,
    Cause.TYPE: Advice.CONVERT_AGAIN,
    Cause.LIMIT: Advice.MERGE_DIMENSIONS,
}


class Remedies(NamedTuple):
    """What can be done about a split; the fields are those of `Verdict`."""

    fixes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rewriting: str = ""
    dispatching: str = ""


def advise(verdict: Verdict, declaration: str = "") -> Remedies:
    """The fixes, any one of which suffices, the most direct first, and the notes.

    A note says why there is no fix of some kind, or that there may be one. `declaration` declares
    the values of the split's file whose type or sizes are not known; see `declarations`.
    """
    if verdict.outcome is Outcome.UNKNOWN:
        return Remedies(_fixes_of_unknown(verdict, declaration))
    if verdict.outcome not in CHANGEABLE:
        return Remedies()
    deciding = _deciding_remedy(verdict, declaration)
    if deciding and verdict.needs_type:  # no other fix is sure to suffice
        return Remedies((deciding,))
    return _remedies_of_failing(verdict, deciding)


def _fixes_of_unknown(verdict: Verdict, declaration: str) -> tuple[str, ...]:
    """What makes the split known; of one that is known, how to avoid what the runtime may do."""
    if isinstance(verdict.site.state, Unknown):
        return (_fix_for_unknown(verdict.site, verdict.site.state, declaration),)
    return hints(reason for reason in verdict.diagnostics if reason.effect == "unknown")


def _deciding_remedy(verdict: Verdict, declaration: str) -> str:
    """What decides whether a refused split has an equivalent; nothing if that is decided."""
    state = verdict.site.state
    if not verdict.undecided or not isinstance(state, Unknown):
        return ""
    return _fix_for_unknown(verdict.site, state, declaration, needs_sizes=True)


def _remedies_of_failing(verdict: Verdict, deciding: str) -> Remedies:
    """The hints of broken rules, rewriting, dispatching and newer releases, with the notes."""
    fixes = hints(verdict.errors) if verdict.minimum is None else ()
    rewriting, why_not = _rewriting_advice(verdict)
    dispatching = _dispatching_advice(verdict)
    fixes += tuple(filter(None, (rewriting, dispatching, _newer_directml_advice(verdict))))
    check = deciding and Advice.CHECK_FIXED_SIZES.format(remedy=deciding)
    notes = tuple(filter(None, (why_not, verdict.obstacle, check)))
    return Remedies(fixes, notes, rewriting, dispatching)


def _rewriting_advice(verdict: Verdict) -> tuple[str, str]:
    """The advice to rewrite the model, if --write-fixed can, and otherwise why it cannot."""
    site = verdict.site
    broken = verdict.errors
    if site.format != "onnx" or not broken:
        return "", ""
    if any("model" not in violation.rule.fixable_by for violation in broken):
        return "", ""
    obstacle = form_of(verdict)
    if not isinstance(obstacle, Obstacle):
        return fixing_command(Advice.REWRITE_MODEL, site.file, verdict.target.options), ""
    if obstacle.is_inlining_needed:
        inline = python_command(Advice.INLINE_FUNCTIONS, site.file)
        return "", Note(Advice.CANNOT_REWRITE_IN_FUNCTION, inline, joint="; ")
    if verdict.undecided:
        return "", ""
    return "", Note(Advice.CANNOT_REWRITE.format(obstacle=obstacle.fault), obstacle.fix)


def _dispatching_advice(verdict: Verdict) -> str:
    """The fix in code that calls DirectML: another descriptor of the same bytes; or nothing."""
    return (
        Advice.DISPATCH_EQUIVALENT.format(equivalent=verdict.equivalent)
        if verdict.equivalent
        else ""
    )


def _newer_directml_advice(verdict: Verdict) -> str:
    """The fix that changes neither the model nor the descriptor; or nothing."""
    least = verdict.minimum
    if least is None:
        return ""
    windows = f", or Windows build {least.windows.build}" if least.windows else ""
    return Advice.USE_NEWER_DIRECTML.format(version=least.directml, windows=windows)


def unfreezing_fix(site: SplitSite) -> str:
    """How to let a split with frozen sizes take other ones."""
    assert site.frozen is not None
    pieces = set(getattr(site.state, "pieces", None) or ())
    if len(pieces) != 1 or site.makes_sequence:
        return Advice.EXPORT_AGAIN.format(size=site.frozen[1])
    if site.is_in_function:  # the body may have other sizes at other calls
        return python_command(Advice.INLINE_FUNCTIONS, site.file)
    return freeing_command(Advice.REMOVE_SIZES, site)


def without_rewriting(assessment: Assessment) -> Assessment:
    """The assessment without the advice to rewrite the model, for a run that has just done so."""

    def shorter(verdict: Verdict) -> Verdict:
        fixes = tuple(fix for fix in verdict.fixes if fix != verdict.rewriting)
        return replace(verdict, fixes=fixes)

    return replace(assessment, verdicts=tuple(map(shorter, assessment.verdicts)))


def hints(broken: Iterable[Violation]) -> tuple[str, ...]:
    """The hints of broken rules, joined to one fix, because all are needed."""
    hints = dict.fromkeys(violation.hint for violation in broken)
    return (Fix.joined("; and ", hints),) if hints else ()


def _fix_for_unknown(
    site: SplitSite, unknown: Unknown, declaration: str, *, needs_sizes: bool = False
) -> str:
    """How to make an unknown split known; with `needs_sizes`, not only to run at any size."""
    if site.format == "openvino":
        return _OPENVINO_REMEDIES[unknown.cause]
    cause = _first_cause(site, unknown.cause)
    if cause is Cause.LENGTHS and unknown.missing:
        return Advice.GIVE_SIZES_OR_STORE_LENGTHS.format(options=options(unknown.missing))
    if _lacks_declaration(site):
        remedy = declaration or declarations([site])[site.file]
    elif cause in _ONNX_REMEDIES:
        remedy = python_command(_ONNX_REMEDIES[cause], site.file)
    else:
        remedy = _sizes_advice(site, unknown, axis_only=not needs_sizes)
    # Once the axis has a fixed size, ONNX Runtime no longer loads such a model.
    if site.lacks_count:
        text = Advice.SET_COUNT_FIRST.format(count="set num_outputs", remedy=remedy)
        return Fix(text, commands(remedy))
    return remedy


def _sizes_advice(site: SplitSite, unknown: Unknown, *, axis_only: bool) -> str:
    """The advice to give the dynamic sizes, or `axis_only` if the axis is one of them."""
    dynamic = [not isinstance(size, int) for size in (site.shape or ())[: (site.axis or 0) + 1]]
    if dynamic[-1] and axis_only:
        return Advice.GIVE_AXIS_SIZE.format(options=options([unknown.missing[sum(dynamic) - 1]]))
    return Advice.GIVE_SIZES.format(options=options(unknown.missing))


def _first_cause(site: SplitSite, cause: Cause) -> Cause:
    """The cause to cure first at a site of an ONNX model."""
    if cause not in (Cause.DYNAMIC, Cause.UNTRACKED, Cause.TYPE, Cause.INFERABLE):
        return cause
    is_typed = site.element_type is not None
    has_sizes = isinstance(site.state, Unknown) and bool(site.state.missing)
    if site.is_in_function and not (is_typed and has_sizes):
        return Cause.CALLER
    return cause if is_typed or cause is Cause.INFERABLE else Cause.TYPE


def declarations(sites: Iterable[SplitSite]) -> dict[str, str]:
    """For each file, the advice that declares every value whose type or sizes are not known.

    One command declares all of them, because each command begins with the unchanged model.
    """
    values: dict[str, dict[object, SplitSite]] = {}
    for site in sites:
        if site.format != "openvino" and _lacks_declaration(site):
            value = site.input_path, site.input_name
            values.setdefault(site.file, {}).setdefault(value, site)
    return {
        file: declaring_command(Advice.DECLARE_VALUES, file, list(by_value.values()))
        for file, by_value in values.items()
    }


def _lacks_declaration(site: SplitSite) -> bool:
    """Whether a split is unknown for a type or for sizes that no --dim gives."""
    state = site.state
    if not isinstance(state, Unknown):
        return False
    cause = _first_cause(site, state.cause)
    return cause is Cause.TYPE or (cause in (Cause.DYNAMIC, Cause.UNTRACKED) and not state.missing)
