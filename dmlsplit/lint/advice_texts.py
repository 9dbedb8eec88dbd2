"""The texts of advice, apart from the hints of rules and what --write-fixed says.

A fix that is the same for every split is the hint of its rule, in rules.yaml. One that is filled in
from a split, a model or a target is here, with its command. Why a split cannot be rewritten is in
fix/split_forms.py, and the fix of a warning is beside the warning.
"""

from enum import StrEnum


class Advice(StrEnum):
    """What to change. Names in braces are filled in."""

    # Double quotes serve every shell. The user replaces words in capitals: a name that a shell
    # could change, or what is not known. Weights outside the model stay there, so a new model must
    # be in the folder of the old one.
    GIVE_AXIS_SIZE = "give the size of the axis, for example {options}"
    GIVE_SIZES = "give the dynamic sizes, for example {options}"
    SET_COUNT_FIRST = "{count} first, then {remedy}"
    DECLARE_VALUES = (
        "declare the type and sizes of every value that lacks them, for example{replace}: "
        'python -c "import onnx;'
        " m = onnx.load('{model}', load_external_data=False); T = onnx.TensorProto;"
        " v = onnx.helper.make_tensor_value_info;"
        " d = lambda g, *a: [e.CopyFrom(v(*a)) for e in"
        " (*g.input, *g.output, *g.value_info, g.value_info.add()) if e.name in ('', a[0])];"
        " {code}onnx.save(m, '{stem}.declared.onnx')\""
    )
    INFER_SHAPES = (
        'let ONNX infer the shapes{replace}: python -c "import onnx;'
        " onnx.shape_inference.infer_shapes_path('{model}', '{stem}.inferred.onnx')\""
    )
    STORE_LENGTHS = "make the split lengths a constant of the model"
    GIVE_SIZES_OR_STORE_LENGTHS = (
        "give the sizes from which the split lengths may follow, for example {options}; or make "
        "the lengths a constant of the model"
    )
    STORE_AXIS = "make the axis a constant of the model"
    KEEP_SMALL_TENSORS_INSIDE = (
        'keep small tensors in the model, as onnx does{replace}: python -c "import onnx;'
        " onnx.save(onnx.load('{model}'), '{stem}.inside.onnx', save_as_external_data=True)\""
    )
    MAKE_FEWER_PIECES = "use a larger chunk size, or fewer outputs; no model needs that many pieces"
    SORT_NODES = (
        "sort the nodes so that each follows the nodes that produce its inputs; a graph with a "
        "cycle cannot run"
    )
    INLINE_FUNCTIONS = (
        'inline the functions, then validate again{replace}: python -c "import onnx, onnx.inliner'
        " as i; m = onnx.load('{model}', load_external_data=False);"
        " onnx.save(i.inline_local_functions(m), '{stem}.inlined.onnx')\""
    )
    FIX_SIZES_IN_OPENVINO = "fix the sizes in OpenVINO: Model.reshape, then openvino.save_model"
    MOVE_BIN_FILE = "put the .bin file itself, not a link to it, next to the model"
    MERGE_DIMENSIONS = "merge dimensions; DirectML takes at most 8"
    CONVERT_AGAIN = "convert the model again with OpenVINO, which writes the type"
    CONVERT_TO_OPSET1 = "convert the model with a version of OpenVINO that writes opset1 splits"
    REWRITE_MODEL = (
        "rewrite the model{replace}: dmlsplit validate {paths}{options} --write-fixed {output}"
    )
    CANNOT_REWRITE = "--write-fixed cannot replace it: {obstacle}"
    CANNOT_REWRITE_IN_FUNCTION = "--write-fixed cannot replace it in the body of a function"
    DISPATCH_EQUIVALENT = "if your own code calls DirectML, dispatch {equivalent}"
    USE_NEWER_DIRECTML = "use DirectML {version} or later{windows}"
    REMOVE_SIZES = (
        'remove the sizes, so that ONNX computes equal pieces{replace}: python -c "import onnx;'
        " m = onnx.load('{model}', load_external_data=False); n = {code};"
        " onnx.save(m, '{stem}.free.onnx')\""
    )
    EXPORT_AGAIN = (
        "export the model again so that it computes the sizes from the axis, or declare the axis "
        "as {size}"
    )
    CONVERT_TO_OPSET = (
        "convert the model to opset {number}{replace}: "
        'python -c "import onnx, onnx.version_converter as c;'
        " onnx.save(c.convert_version(onnx.load('{model}'), {number}),"
        " '{stem}.opset{number}.onnx')\""
    )
    EXPORT_AT_OPSET = "export the model again at opset {number}"
    SET_IR_VERSION = (
        "set IR version {number}, if the model uses nothing newer{replace}: "
        'python -c "import onnx;'
        " m = onnx.load('{model}', load_external_data=False); m.ir_version = {number};"
        " onnx.save(m, '{stem}.ir{number}.onnx')\""
    )
    USE_NEWER_RUNTIME = "use ONNX Runtime {release} or later"
    REQUIRE_WINDOWS_BUILD = "require Windows build {build}"
    USE_WINDOWS_ML = "use Windows ML {version}"
    # Seen with 1.32: "MLDataType for: tensor(complex64) is not currently registered or supported".
    STORE_REAL_TENSORS = (
        "store the real and the imaginary parts as real tensors; ONNX Runtime does not load a "
        "model with complex ones"
    )
    USE_DIRECTML_OR_CONNECT_OUTPUTS = (
        "ship DirectML 1.9.1 or later, as ONNX Runtime 1.13 brings it, or make every piece an "
        "output of the model{without_fusion}"
    )
    CHECK_FIXED_SIZES = "an equivalent descriptor may exist for fixed sizes; to check, {remedy}"
