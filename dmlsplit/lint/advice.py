"""Advice: what makes an unknown split known, and the fixes of a refused one."""

import re
from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum

from dmlsplit.directml.rules.violation import Violation
from dmlsplit.frontends.site import Cause, SplitSite, Unknown
from dmlsplit.lint.onnxruntime import SIZES, is_complex, takes_num_outputs
from dmlsplit.lint.rewritable import IN_A_FUNCTION, form_of
from dmlsplit.lint.target import Target
from dmlsplit.lint.verdict import FAILING, Assessment, Outcome, Verdict


class Advice(StrEnum):
    """The advice that is not a rule's hint. Names in braces are filled in from the split."""

    # Double quotes serve every shell. MODEL, VALUE and SHAPE stand for names and sizes of the
    # split; they are left in place if a shell could change those, or if the sizes are unknown.
    # TYPE is always left: this advice is for splits whose type is unknown.
    AXIS = "give the size of the axis, for example {options}"
    SIZES = "give the dynamic sizes, for example {options}"
    RANK = "give the size of every axis of the input, whose rank is unknown: {options} and so on"
    COUNT_FIRST = "{count} first, then {remedy}"
    TYPE = (
        'declare its type and sizes in the model, for example: python -c "import onnx;'
        " m = onnx.load('MODEL'); v = onnx.helper.make_tensor_value_info('VALUE',"
        " onnx.TensorProto.TYPE, SHAPE); m.graph.value_info.append(v);"
        " onnx.save(m, 'typed.onnx')\""
    )
    LENGTHS = "make the split lengths a constant of the model"
    LENGTHS_OR_SIZES = (
        "give the sizes from which the split lengths may follow, for example {options}; or make "
        "the lengths a constant of the model"
    )
    WEIGHTS = (
        'keep small tensors in the model, as onnx does: python -c "import onnx;'
        " onnx.save(onnx.load('MODEL'), 'inside.onnx', save_as_external_data=True)\""
    )
    PIECES = "use a larger chunk size, or fewer outputs; no model needs that many pieces"
    ORDER = (
        "sort the nodes so that each follows the nodes that produce its inputs; a graph with a "
        "cycle cannot run"
    )
    CALLER = (
        'inline the functions, then validate again: python -c "import onnx, onnx.inliner as i;'
        " m = onnx.load('MODEL'); onnx.save(i.inline_local_functions(m), 'inlined.onnx')\""
    )
    RESHAPE = "fix the sizes in OpenVINO: Model.reshape, then openvino.save_model"
    BIN_FILE = "put the .bin file itself, not a link to it, next to the model"
    CONVERT = "convert the model again with OpenVINO, which writes the type"
    OPSET1 = "convert the model with a version of OpenVINO that writes opset1 splits"
    NODES = "rewrite the model: run dmlsplit validate again with --write-fixed fixed.onnx"
    NO_NODES = "--write-fixed cannot replace it: {obstacle}"
    IN_FUNCTION = "--write-fixed cannot replace it in the body of a function; {inline}"
    DISPATCH = "if your own code calls DirectML, dispatch {equivalent}"
    SHIP = "ship DirectML {version} or later{windows}"
    ON_CPU = "without a change, ONNX Runtime runs the node on the CPU"
    UNDECIDED = "an equivalent descriptor may exist for fixed sizes; to check, {remedy}"


# A node that breaks one of these rules does not get to DirectML.
_RUN_ON_CPU = frozenset({"ORT-DATA-TYPE", "ORT-OPERATOR", "ORT-SEQUENCE", "ORT-VERSION"})
_ONNX_REMEDIES = {
    Cause.LENGTHS: Advice.LENGTHS,
    Cause.LIMIT: Advice.LENGTHS,
    Cause.WEIGHTS: Advice.WEIGHTS,
    Cause.COUNT: Advice.PIECES,
    Cause.ORDER: Advice.ORDER,
    Cause.CALLER: Advice.CALLER,
    Cause.TYPE: Advice.TYPE,
}
_OPENVINO_REMEDIES = {
    Cause.DYNAMIC: Advice.RESHAPE,
    Cause.LENGTHS: Advice.LENGTHS,
    Cause.WEIGHTS: Advice.BIN_FILE,
    Cause.OPERATION_SET: Advice.OPSET1,
    Cause.ORDER: Advice.ORDER,
    Cause.TYPE: Advice.CONVERT,
}
# Inside double quotes, no shell changes these; Python's own quotes hold all of them but '.
_LITERAL = re.compile(r"(?!-)[\w' ./:+,@#()\[\]{}|<>&;*?~=-]{1,200}")
_IN_PYTHON = re.compile(_LITERAL.pattern.replace("'", ""))


def advise(verdict: Verdict, target: Target) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fixes, any one of which suffices, the most direct first; and the notes.

    A note says why there is no fix of some kind, or that there may be one.
    """
    site, state = verdict.site, verdict.site.state
    if verdict.outcome is Outcome.UNKNOWN and isinstance(state, Unknown):
        return (_fix_for_unknown(site, state, target),), ()
    if verdict.outcome not in FAILING:
        return (), ()
    fixes: list[str] = []
    notes: list[str] = []
    undecided = state if verdict.undecided and isinstance(state, Unknown) else None
    if undecided and verdict.needs_type:  # no other fix is sure to suffice
        return (_fix_for_unknown(site, undecided, target, True),), ()
    if verdict.minimum is None:
        fixes += _hints(verdict.errors)
    if site.format == "onnx" and all("model" in e.rule.fixable_by for e in verdict.errors):
        form = form_of(verdict, target)
        if not isinstance(form, str):
            fixes.append(Advice.NODES)
        elif form == IN_A_FUNCTION:
            notes.append(Advice.IN_FUNCTION.format(inline=_command(Advice.CALLER, site)))
        elif not verdict.undecided:
            notes.append(Advice.NO_NODES.format(obstacle=form))
    if verdict.equivalent:
        fixes.append(Advice.DISPATCH.format(equivalent=verdict.equivalent))
    if least := verdict.minimum:
        windows = f", or require Windows build {least.windows.build}" if least.windows else ""
        fixes.append(Advice.SHIP.format(version=least.directml, windows=windows))
    if verdict.obstacle:
        notes.append(verdict.obstacle)
    broken = {violation.rule.id for violation in verdict.errors}
    loads = "ORT-FEATURE-LEVEL" not in broken and not is_complex(site.element_type)
    if broken & _RUN_ON_CPU and loads:
        notes.append(Advice.ON_CPU)
    if undecided:
        remedy = _fix_for_unknown(site, undecided, target, True)
        notes.append(Advice.UNDECIDED.format(remedy=remedy))
    return tuple(fixes), tuple(notes)


def without_rewriting(assessment: Assessment) -> Assessment:
    """The assessment without the advice to rewrite the model, for a run that has just done so."""

    def shorter(verdict: Verdict) -> Verdict:
        fixes = tuple(fix for fix in verdict.fixes if fix != Advice.NODES)
        return replace(verdict, fixes=fixes)

    return replace(assessment, verdicts=tuple(map(shorter, assessment.verdicts)))


def options(sizes: Iterable[tuple[str, int | str]]) -> str:
    """The --dim options for these sizes, or their form if shells quote a name differently."""
    by_name = dict(sizes)
    if not all(map(_LITERAL.fullmatch, by_name)):
        return "--dim NAME=N"
    return " ".join(
        f'--dim "{name}={size}"' if re.search(r"[^\w./:+-]", name) else f"--dim {name}={size}"
        for name, size in by_name.items()
    )


def _hints(broken: Iterable[Violation]) -> tuple[str, ...]:
    """The hints of broken rules, joined to one fix, because all are needed."""
    hints = dict.fromkeys(violation.hint for violation in broken)
    return ("; and ".join(hints),) if hints else ()


def _fix_for_unknown(
    site: SplitSite, unknown: Unknown, target: Target, every_size: bool = False
) -> str:
    """How to make an unknown split known; with `every_size`, not only ok for every size."""
    if site.format == "openvino":
        return _OPENVINO_REMEDIES[unknown.cause]
    advice = _ONNX_REMEDIES.get(_first_cause(site, unknown.cause))
    if advice is Advice.LENGTHS and unknown.missing:
        return Advice.LENGTHS_OR_SIZES.format(options=options(unknown.missing))
    remedy = (
        _command(advice, site, unknown.missing) if advice else _sizes(site, unknown, every_size)
    )
    # Once the axis has a fixed size, ONNX Runtime no longer loads such a model.
    if site.operator == "Split-18" and site.sized_by == "outputs":
        count = "set num_outputs" if takes_num_outputs(target) else SIZES
        return Advice.COUNT_FIRST.format(count=count, remedy=remedy)
    return remedy


def _sizes(site: SplitSite, unknown: Unknown, every_size: bool) -> str:
    if site.shape is None:
        axes = options([(f"{site.input_name}.{axis}", "N") for axis in "01"])
        return Advice.RANK.format(options=axes)
    dynamic = [not isinstance(size, int) for size in site.shape[: (site.axis or 0) + 1]]
    if dynamic[-1] and not every_size:
        return Advice.AXIS.format(options=options([unknown.missing[sum(dynamic) - 1]]))
    return Advice.SIZES.format(options=options(unknown.missing))


def _command(advice: Advice, site: SplitSite, missing: Iterable[tuple[str, int]] = ()) -> str:
    known = {"MODEL": site.file, "VALUE": site.input_name}
    if site.shape is not None:
        sizes = (size for _, size in missing)
        known["SHAPE"] = str([n if isinstance(n, int) else next(sizes, 1) for n in site.shape])
    plain = {word: name for word, name in known.items() if _IN_PYTHON.fullmatch(name)}
    words = ("MODEL", "VALUE", "TYPE", "SHAPE")
    left = [word for word in words if word in advice and word not in plain]
    marked = (
        advice.replace(": python", f" (replace {' and '.join(left)}): python") if left else advice
    )
    return re.sub("MODEL|VALUE|SHAPE", lambda word: plain.get(word[0], word[0]), marked)


def _first_cause(site: SplitSite, cause: Cause) -> Cause:
    """The cause to cure first at a site of an ONNX model."""
    if cause not in (Cause.DYNAMIC, Cause.UNTRACKED, Cause.TYPE):
        return cause
    if "()" in site.path and (site.shape is None or None in site.shape):
        return Cause.CALLER
    return Cause.TYPE if site.element_type is None else cause
