"""Advice: what makes an unknown split known, and the fixes of a refused one."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import StrEnum

from dmlsplit.directml.rules.violation import Violation
from dmlsplit.frontends.site import Cause, Implied, SplitSite, Unknown
from dmlsplit.lint.rewritable import rewriting_obstacle
from dmlsplit.lint.target import Target
from dmlsplit.lint.verdict import FAILING, Assessment, Fix, Outcome, Verdict
from dmlsplit.messages import printable


class Advice(StrEnum):
    """The advice that is not a rule's hint. Names in braces are filled in from the split."""

    # Double quotes serve every shell. MODEL, VALUE and SHAPE stand for names and sizes of the
    # split; they are left in place if a shell could change those, or if the sizes are unknown.
    AXIS = "give the size of the axis, for example {options}"
    SIZES = "give the dynamic sizes, for example {options}"
    RANK = "give the size of every axis of the input, whose rank is unknown: {options} and so on"
    COUNT_FIRST = "set num_outputs first, then {remedy}"
    TYPE = (
        'declare its type and sizes in the model, for example: python -c "import onnx;'
        " m = onnx.load('MODEL'); v = onnx.helper.make_tensor_value_info('VALUE',"
        " onnx.TensorProto.FLOAT, SHAPE); m.graph.value_info.append(v);"
        " onnx.save(m, 'typed.onnx')\""
    )
    LENGTHS = "make the split lengths a constant of the model"
    WEIGHTS = (
        'keep small tensors in the model, as onnx does: python -c "import onnx;'
        " onnx.save(onnx.load('MODEL'), 'inside.onnx', save_as_external_data=True)\""
    )
    PIECES = "use a larger chunk size, or fewer outputs; no model needs so many pieces"
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
    NODES = "rewrite the model: add --write-fixed fixed.onnx"
    NODES_ALONE = "rewrite the model: validate {file} alone, with --write-fixed fixed.onnx"
    NO_NODES = "standard ONNX nodes cannot replace it: {obstacle}"
    DISPATCH = "in DirectML, dispatch {equivalent}"
    SHIP = "ship DirectML {version} or later{windows}"
    NO_EQUIVALENT = "{obstacle}"
    ON_CPU = "until then, ONNX Runtime runs the node on the CPU"
    UNDECIDED = "an equivalent descriptor may exist for fixed sizes; to check, {remedy}"


# Notes: they explain why a fix is missing or uncertain.
_NOTES = frozenset({Advice.NO_NODES, Advice.NO_EQUIVALENT, Advice.ON_CPU, Advice.UNDECIDED})
# A node that breaks one of these rules does not get to DirectML.
_RUN_ON_CPU = frozenset({"ORT-DATA-TYPE", "ORT-OPERATOR", "ORT-SEQUENCE", "ORT-VERSION"})
_ONNX_REMEDIES = {
    Cause.LENGTHS: Advice.LENGTHS,
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


def fixes(verdict: Verdict, target: Target, alone: bool = True) -> Iterator[Fix]:
    """The fixes, any one of which suffices, the most direct first; then notes.

    `alone`: the command names the file and no other.
    """
    site, minimum, unknown = verdict.site, verdict.minimum, verdict.site.state
    if isinstance(site.state, Implied):
        yield from _hint(
            warning for warning in verdict.diagnostics if warning.severity == "warning"
        )
    if verdict.outcome is Outcome.UNKNOWN and isinstance(unknown, Unknown):
        yield _remedy(site, unknown)
    if verdict.outcome not in FAILING:
        return
    if minimum is None:
        yield from _hint(verdict.errors)
    is_onnx = site.format == "onnx" and all("model" in e.rule.cured_by for e in verdict.errors)
    obstacle = rewriting_obstacle(verdict, target) if is_onnx else None
    if is_onnx and not obstacle:
        yield _fix(Advice.NODES if alone else Advice.NODES_ALONE, file=printable(site.file))
    if verdict.equivalent:
        yield _fix(Advice.DISPATCH, equivalent=verdict.equivalent)
    if minimum:
        windows = f", or require Windows build {minimum.windows.build}" if minimum.windows else ""
        yield _fix(Advice.SHIP, version=minimum.directml, windows=windows)
    if obstacle and not verdict.undecided:
        yield _fix(Advice.NO_NODES, obstacle=obstacle)
    if verdict.obstacle:
        yield _fix(Advice.NO_EQUIVALENT, obstacle=verdict.obstacle)
    broken = {violation.rule.id for violation in verdict.errors}
    if broken & _RUN_ON_CPU and "ORT-FEATURE-LEVEL" not in broken:
        yield _fix(Advice.ON_CPU)
    if verdict.undecided and isinstance(unknown, Unknown):
        yield _fix(Advice.UNDECIDED, remedy=_remedy(site, unknown, every_size=True).text)


def without_rewriting(assessment: Assessment) -> Assessment:
    """The assessment without the advice to rewrite the model, for a run that has just done so."""

    def shorter(verdict: Verdict) -> Verdict:
        return replace(
            verdict, fixes=tuple(fix for fix in verdict.fixes if fix.text != Advice.NODES)
        )

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


def _fix(advice: Advice, **names: object) -> Fix:
    return Fix(advice.name, advice.format(**names), advice in _NOTES)


def _hint(broken: Iterable[Violation]) -> Iterator[Fix]:
    """The hints of broken rules, each once, as one fix: all of them are needed."""
    hints = {violation.hint: violation.rule.id for violation in broken}
    if hints:
        yield Fix(next(iter(hints.values())), "; and ".join(hints))


def _remedy(site: SplitSite, unknown: Unknown, every_size: bool = False) -> Fix:
    """How to make an unknown split known; with `every_size`, not only ok for every size."""
    if site.format == "openvino":
        return _fix(_OPENVINO_REMEDIES[unknown.cause])
    cause = _first_cause(site, unknown.cause)
    if cause in _ONNX_REMEDIES:
        remedy = Fix(_ONNX_REMEDIES[cause].name, _command(_ONNX_REMEDIES[cause], site, unknown))
    else:
        remedy = _sizes(site, unknown, every_size)
    # Once the axis has a fixed size, ONNX Runtime no longer loads such a model.
    if site.operator == "Split-18" and site.sized_by == "outputs":
        return _fix(Advice.COUNT_FIRST, remedy=remedy.text)
    return remedy


def _sizes(site: SplitSite, unknown: Unknown, every_size: bool) -> Fix:
    if site.shape is None:
        return _fix(Advice.RANK, options=options([(f"{site.value}.{axis}", "N") for axis in "01"]))
    dynamic = [isinstance(size, str) for size in site.shape[: max(site.axis, 0) + 1]]
    if dynamic[-1] and not every_size:
        return _fix(Advice.AXIS, options=options([unknown.missing[sum(dynamic) - 1]]))
    return _fix(Advice.SIZES, options=options(unknown.missing))


def _command(advice: Advice, site: SplitSite, unknown: Unknown) -> str:
    known = {"MODEL": site.file, "VALUE": site.value}
    if site.shape is not None:
        sizes = (size for _, size in unknown.missing)
        known["SHAPE"] = str([n if isinstance(n, int) else next(sizes, 1) for n in site.shape])
    plain = {word: name for word, name in known.items() if _IN_PYTHON.fullmatch(name)}
    return re.sub("MODEL|VALUE|SHAPE", lambda word: plain.get(word[0], word[0]), advice)


def _first_cause(site: SplitSite, cause: Cause) -> Cause:
    """The cause to cure first at a site of an ONNX model."""
    if cause not in (Cause.DYNAMIC, Cause.UNTRACKED, Cause.TYPE):
        return cause
    if "()" in site.path and (site.shape is None or "?" in site.shape):
        return Cause.CALLER
    return Cause.TYPE if site.element_type is None else cause
