"""What makes an unknown split known: options of ``validate``, or commands that change the model."""

import re
from collections.abc import Iterable, Iterator

from dmlsplit.frontends.site import Cause, SplitSite
from dmlsplit.lint.rules import RULES

# MODEL and VALUE stand for names of the site. Double quotes serve every shell.
_REMEDIES = {
    Cause.LENGTHS: "make the split lengths a constant of the model, or use num_outputs",
    Cause.WEIGHTS: 'keep small tensors in the model, as onnx does: python -c "import onnx;'
    " onnx.save(onnx.load('MODEL'), 'inside.onnx', save_as_external_data=True)\"",
    Cause.OPERATION_SET: "convert the model with a version of OpenVINO that writes opset1 splits",
    Cause.COUNT: "use a larger chunk size; no model needs so many pieces",
    Cause.ORDER: "sort the nodes so that each follows the nodes that produce its inputs; a graph "
    "with a cycle cannot run",
    Cause.CALLER: 'inline the functions, then validate again: python -c "import onnx,'
    " onnx.inliner as i; m = onnx.load('MODEL');"
    " onnx.save(i.inline_local_functions(m), 'inlined.onnx')\"",
    Cause.TYPE: 'declare its type and sizes in the model, for example: python -c "import onnx;'
    " m = onnx.load('MODEL'); v = onnx.helper.make_tensor_value_info('VALUE',"
    " onnx.TensorProto.FLOAT, SHAPE); m.graph.value_info.append(v); onnx.save(m, 'typed.onnx')\"",
}
_OPENVINO = {
    Cause.DYNAMIC: "fix the sizes in OpenVINO: Model.reshape, then openvino.save_model",
    Cause.LENGTHS: "make the split lengths a constant of the model",
    Cause.WEIGHTS: "put the .bin file itself, not a link to it, next to the model",
    Cause.TYPE: "convert the model again with OpenVINO, which writes the type",
}
_INSTALL = "install onnx, whose shape inference may find the sizes: pip install 'dmlsplit[onnx]'"
# Inside double quotes, no shell changes these.
_LITERAL = re.compile(r"(?!-)[\w ./:+,@#()\[\]{}|<>&;*?~=-]{1,200}")
_IN_PYTHON = re.compile(r"[\w./:-]{1,200}|\[[0-9, ]*\]")


def options(missing: Iterable[tuple[str, int]]) -> str:
    """The --dim options for these sizes, or their form if shells quote a name differently."""
    sizes = dict(missing)
    if not all(map(_LITERAL.fullmatch, sizes)):
        return "--dim NAME=N"
    given = [f"{name}={size}" for name, size in sizes.items()]
    return " ".join(
        f'--dim "{each}"' if re.search(r"[^\w./:+-]", each[: each.rindex("=")]) else f"--dim {each}"
        for each in given
    )


def remedies(site: SplitSite) -> Iterator[str]:
    """Ways to make an unknown site known, the most direct first."""
    if site.format == "openvino":
        yield (_REMEDIES | _OPENVINO)[site.cause]
        return
    # Once the axis has a fixed size, ONNX Runtime no longer loads such a model.
    if site.operator == "Split-18" and site.sized_by == "outputs":
        yield RULES["ORT-NUM-OUTPUTS"].hint + " first"
    from dmlsplit.frontends.onnx.child import is_installed  # imports NumPy

    if site.cause in (Cause.UNTRACKED, Cause.TYPE) and not is_installed():
        yield _INSTALL
    cause = _lacking(site)
    if cause not in _REMEDIES:
        before = [isinstance(size, str) for size in site.shape[: max(site.axis, 0) + 1]]
        if before and before[-1]:  # once it is known, most are ok for every size
            yield f"give the size of its axis, such as {options([site.missing[sum(before) - 1]])}"
        else:
            yield f"give its sizes, such as {options(site.missing)}"
        return
    known = {"MODEL": site.file, "VALUE": site.value, "SHAPE": str(_shape(site))}
    plain = {word: given for word, given in known.items() if _IN_PYTHON.fullmatch(given)}
    yield re.sub("|".join(known), lambda word: plain.get(word[0], word[0]), _REMEDIES[cause])


def _lacking(site: SplitSite) -> Cause:
    """The cause to cure first at a site of an ONNX model."""
    if site.cause not in (Cause.DYNAMIC, Cause.UNTRACKED, Cause.TYPE):
        return site.cause
    if "()" in site.path and (not site.shape or "?" in site.shape):
        return Cause.CALLER
    return site.cause if site.element_type else Cause.TYPE


def _shape(site: SplitSite) -> list[int]:
    sizes = iter([size for _, size in site.missing])
    known = site.shape or ("?",) * len(site.missing)
    return [size if isinstance(size, int) else next(sizes, 1) for size in known]
