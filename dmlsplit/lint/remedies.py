"""What makes an unknown split known: options of ``validate``, or commands that change the model."""

import re
from collections.abc import Iterator

from dmlsplit.frontends.site import Cause, SplitSite
from dmlsplit.lint.rules import RULES

# MODEL and VALUE stand for names of the site. Double quotes serve every shell.
_REMEDIES = {
    Cause.LENGTHS: "make the split lengths a constant of the model, or use num_outputs",
    Cause.WEIGHTS: 'keep small tensors in the model, as onnx does: python -c "import onnx;'
    " onnx.save(onnx.load('MODEL'), 'inside.onnx', save_as_external_data=True)\"",
    Cause.OPERATION_SET: "convert the model with a version of OpenVINO that writes opset1 splits",
    Cause.COUNT: "give the pieces a larger chunk size; no model needs so many",
    Cause.ORDER: "sort the nodes so that each follows those whose values it takes; a graph with a "
    "cycle cannot run",
    Cause.CALLER: 'inline the functions, then validate again: python -c "import onnx,'
    " onnx.inliner as i; m = onnx.load('MODEL');"
    " onnx.save(i.inline_local_functions(m), 'inlined.onnx')\"",
    Cause.TYPE: "declare its type in the model: python -c \"import onnx; m = onnx.load('MODEL');"
    " v = onnx.helper.make_tensor_value_info('VALUE', onnx.TensorProto.FLOAT, None);"
    " m.graph.value_info.append(v); onnx.save(m, 'typed.onnx')\"",
}
_OPENVINO = {
    Cause.DYNAMIC: "fix the sizes in OpenVINO: Model.reshape, then openvino.save_model",
    Cause.LENGTHS: "make the split lengths a constant of the model",
    Cause.WEIGHTS: "put the weights beside the model: model.bin for model.xml",
    Cause.TYPE: "convert the model again with OpenVINO, which writes the type",
}
_INSTALL = "install onnx, whose shape inference may know the sizes: pip install 'dmlsplit[onnx]'"
# Inside double quotes, no shell changes these.
_LITERAL = re.compile(r"(?!-)[\w ./:+,@#()\[\]{}|<>&;*?~=-]{1,200}")
_IN_PYTHON = re.compile(r"[\w./:-]{1,200}")


def options(site: SplitSite) -> str:
    """The options that give an ONNX split its sizes, or their form if shells differ on a name."""
    if not all(_LITERAL.fullmatch(name) for name, _ in site.missing):
        return "--dim NAME=N"
    given = dict.fromkeys(f"{name}={size}" for name, size in site.missing)
    return " ".join(
        f'--dim "{each}"' if re.search(r"[^\w./:+-]", each[: each.rindex("=")]) else f"--dim {each}"
        for each in given
    )


def remedies(site: SplitSite) -> Iterator[str]:
    """What makes an unknown site known, the most direct first."""
    if site.format == "openvino":
        yield (_OPENVINO | _REMEDIES)[site.cause]
        return
    # Once the axis has a fixed size, ONNX Runtime no longer loads such a model.
    if site.operator == "Split-18" and site.sized_by == "outputs":
        yield RULES["ORT-NUM-OUTPUTS"].hint + " first"
    from dmlsplit.frontends.onnx.child import is_installed  # imports NumPy

    if site.cause is Cause.UNTRACKED and not is_installed():
        yield _INSTALL
    in_function = "()" in site.path and (not site.shape or "?" in site.shape)
    cause = Cause.CALLER if in_function else site.cause
    if cause in _REMEDIES:
        model = site.file if _IN_PYTHON.fullmatch(site.file) else "model.onnx"
        value = site.value if _IN_PYTHON.fullmatch(site.value) else "VALUE"
        yield _REMEDIES[cause].replace("MODEL", model).replace("VALUE", value)
    else:
        yield f"give its sizes, such as {options(site)}"
