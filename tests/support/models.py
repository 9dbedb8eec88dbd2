"""Small ONNX models for the validator: with one split each, or with one split per verdict."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper


def constant(name: str, values: Sequence[int]) -> NodeProto:
    array = np.array(values, np.int64)
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array, name))


def split_nodes(name: str, source: str, sizes: Sequence[int], axis: int) -> list[NodeProto]:
    """A named Split of opset 13 or later, with its sizes as a constant."""
    outputs = [f"{name}_{index}" for index in range(len(sizes))]
    return [
        constant(f"{name}_sizes", sizes),
        helper.make_node("Split", [source, f"{name}_sizes"], outputs, name=name, axis=axis),
    ]


def model(
    nodes: Sequence[NodeProto],
    inputs: dict[str, tuple[int, Sequence[int | str]]],
    outputs: dict[str, int],
    opset: int = 18,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "net",
        [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def one_split(
    kind: int, shape: Sequence[int | str], sizes: Sequence[int], axis: int, opset: int = 18
) -> onnx.ModelProto:
    """One split called ``cut``."""
    outputs = {f"cut_{index}": kind for index in range(len(sizes))}
    return model(split_nodes("cut", "x", sizes, axis), {"x": (kind, shape)}, outputs, opset)


def halves(opset: int, ir: int, kind: str = "float", shape: str = "1,8") -> onnx.ModelProto:
    """A Split of x into halves, in the form of an opset."""
    cut = "Split <axis = 1, num_outputs = 2> (x)" if opset >= 18 else "Split <axis = 1> (x)"
    ends = f"({kind}[{shape}] x) => ({kind}[] a, {kind}[] b)"
    header = f'<ir_version: {ir}, opset_import: ["" : {opset}]>'
    return onnx.parser.parse_model(f"{header} net {ends} {{ a, b = {cut} }}")


def sequence(kind: str, split: str = "2", keepdims: int = 1, shape: str = "8") -> onnx.ModelProto:
    """A SplitToSequence of x into chunks of so many, or into these sizes."""
    header = '<ir_version: 7, opset_import: ["" : 11]>'
    ends = f"({kind}[{shape}] x) => (seq({kind}[]) y)"
    size = f"s = Constant <value = int64 {{{split}}}> ()"
    cut = f"y = SplitToSequence <axis = 0, keepdims = {keepdims}> (x, s)"
    return onnx.parser.parse_model(f"{header} net {ends} {{ {size} {cut} }}")


def split_with_sizes_as_an_attribute(
    opset: int, axis: int, shape: Sequence[int]
) -> onnx.ModelProto:
    """One split called ``cut`` of an old opset, into 2 and 4; its sizes are an attribute."""
    node = helper.make_node("Split", ["x"], ["a", "b"], name="cut", axis=axis, split=[2, 4])
    float_ = TensorProto.FLOAT
    return model([node], {"x": (float_, shape)}, {"a": float_}, opset=opset)


def split_without_sizes(shape: Sequence[int | str], **attributes: int) -> onnx.ModelProto:
    """A Split-18 called ``cut`` along axis 1, without sizes: halves, if `num_outputs` is 2."""
    node = helper.make_node("Split", ["x"], ["a", "b"], name="cut", axis=1, **attributes)
    return model([node], {"x": (TensorProto.FLOAT, shape)}, dict.fromkeys("ab", TensorProto.FLOAT))


def session(content: onnx.ModelProto, is_optimized: bool = True) -> Any:
    """A session of ONNX Runtime on the CPU, without its messages."""
    # Imported here, because it takes a while and most models are not run.
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if not is_optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    provider = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(content.SerializeToString(), options, provider)


def is_loaded(content: onnx.ModelProto) -> bool:
    """Whether ONNX Runtime loads a model."""
    from onnxruntime.capi import onnxruntime_pybind11_state as errors

    try:
        session(content)
    except (errors.Fail, errors.InvalidArgument, errors.InvalidGraph):
        return False
    return True


def one_split_to_sequence(kind: int, shape: Sequence[int], keepdims: int = 1) -> onnx.ModelProto:
    """One SplitToSequence called ``cut``, without sizes, and the sequence's second entry."""
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["all"], name="cut", axis=1, keepdims=keepdims),
        constant("one", 1),
        helper.make_node("SequenceAt", ["all", "one"], ["y"]),
    ]
    return model(nodes, {"x": (kind, shape)}, {"y": kind})


def parsed(graph: str, functions: str = "") -> onnx.ModelProto:
    """A model in ONNX's text form, with functions of the domain ``local``."""
    header = '<ir_version: 10, opset_import: ["" : 18, "local" : 1]>'
    return onnx.parser.parse_model(f"{header} net {graph} {functions}")


def parsed_at(opset: int, ir_version: int, nodes: str) -> onnx.ModelProto:
    """A model of these versions, from a float[1,8] x to the halves a and b."""
    header = f'<ir_version: {ir_version}, opset_import: ["" : {opset}]>'
    ends = "(float[1,8] x) => (float[1,4] a, float[1,4] b)"
    return onnx.parser.parse_model(f"{header} net {ends} {{ {nodes} }}")


def without_split(opset: int, ir_version: int) -> onnx.ModelProto:
    """A model of these versions that has no split."""
    header = f'<ir_version: {ir_version}, opset_import: ["" : {opset}]>'
    return onnx.parser.parse_model(f"{header} net (float[8] x) => (float[8] y) {{ y = Neg (x) }}")


def nested() -> onnx.ModelProto:
    """A split in each branch of an If; the branches read the outer input."""

    def branch(name: str, axis: int) -> str:
        return f"""{name} () => (int8[] {name}_0) {{
            {name}_sizes = Constant <value = int64[2] {{2, 2}}> ()
            [{name}] {name}_0, {name}_1 = Split <axis = {axis}> (x, {name}_sizes)
        }}"""

    branches = f"else_branch = {branch('right', 1)}, then_branch = {branch('left', 0)}"
    return parsed(
        f"(bool flag, int8[4,4] x) => (int8[] y) {{ [choose] y = If (flag) <{branches}> }}"
    )


def in_function() -> onnx.ModelProto:
    """A split in the body of a function that the graph calls."""
    return parsed(
        "(int8[4,4] x) => (int8[] p, int8[] q) { [call] p, q = local.Cut (x) }",
        """<domain: "local", opset_import: ["" : 18]> Cut (a) => (inner_0, inner_1) {
            sizes = Constant <value = int64[2] {1, 3}> ()
            [inner] inner_0, inner_1 = Split <axis = 0> (a, sizes)
        }""",
    )


def every_verdict() -> onnx.ModelProto:
    """At level 2_0: ok, ok for every size, four refusals, and nested bodies."""
    nodes = [
        *split_nodes("fits", "image", (2, 1, 3), 2),
        *split_nodes("wide", "ids", (2, 4), 0),
        *split_nodes("odd", "mask", (1, 2), 3),
        *split_nodes("wrong", "ids", (2, 5), 0),
        helper.make_node(
            "Split", ["batch"], ["late_0", "late_1"], name="late", axis=0, num_outputs=2
        ),
        *split_nodes("frame", "frames", (1, 2), 1),
        *nested().graph.node,
    ]
    inputs = {
        "image": (TensorProto.FLOAT, (1, 1, 6, 2)),
        "ids": (TensorProto.INT64, (6,)),
        "mask": (TensorProto.UINT8, (1, 1, 5, 3)),
        "batch": (TensorProto.FLOAT, ("n", 4)),
        "frames": (TensorProto.FLOAT, ("n", 3, 4, 4)),
        "flag": (TensorProto.BOOL, ()),
        "x": (TensorProto.INT8, (4, 4)),
    }
    return model(nodes, inputs, {"fits_0": TensorProto.FLOAT, "y": TensorProto.INT8})
