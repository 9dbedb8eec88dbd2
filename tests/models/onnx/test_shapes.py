"""Declared shapes, and nodes whose shape is unknown."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlsplit.models.onnx.shapes import INFERRED_BY_ONNX
from dmlsplit.models.site import Cause
from tests.support.onnx_graphs import INT64, Scanned, model, node, sizes, typed, value


@pytest.mark.parametrize("wrong", [[1, 1, 3], [1, 3]])
def test_declared_shapes_after_a_contradicted_one_are_ignored(
    scanned: Scanned, wrong: list[int]
) -> None:
    # Before opset 22, onnx's inference wrote such shapes into a file.
    pool = node("MaxPool", "x", "y", kernel_shape=[1], strides=[2], ceil_mode=1)
    nodes = [
        node("Mystery", "x", "v", domain="own"),
        pool,
        node("Mystery", "y", "z", domain="own", name="next"),
        node("Split", "v", "a b", axis=2, num_outputs=2),
        node("Split", "y", "c d", axis=2, num_outputs=2),
        node("Split", "z", "e f", axis=2, num_outputs=2),
    ]
    declarations = (value("v", [1, 1, 4]), value("y", wrong), value("z", [1, 1, 3]))
    first_site, pooled_site, last_site = scanned(
        model(nodes, [value("x", [1, 1, 4])], declared=declarations)
    )
    assert first_site.shape == (1, 1, 4)
    assert pooled_site.shape == (1, 1, 2)
    assert (
        last_site.state.reason == "the shape of its input is unknown after Mystery 'next' of main"
    )


@pytest.mark.parametrize(
    "broken",
    [
        node("Transpose", "x", "y", perm=[0, 0]),
        node("Reshape", "x s", "y"),
        node("Conv", "x x", "y", strides=[0, 0]),
        node("MaxPool", "x", "y", kernel_shape=[1]),
        node("MaxPool", "x4", "y", kernel_shape=[5, 5], strides=[3, 3]),
        node("AveragePool", "x4", "y", kernel_shape=[2, 2], dilations=[4, 1], strides=[2, 1]),
        node("Concat", "x", "y", axis=9),
        node("Flatten", "x", "y", axis=2**62),
        node("Unsqueeze", "x s", "y"),
        node("Gemm", "x", "y"),
        node("Add", "x x3", "y"),
        node("QLinearMatMul", "x4 x x x0", "y"),
        node("Einsum", "x x", "y", equation="...i,...i"),
    ],
)
def test_a_node_that_breaks_its_rules_has_an_unknown_shape(scanned: Scanned, broken: Any) -> None:
    nodes = [broken, node("Split", "y", "a b", num_outputs=2)]
    inputs = [value("x", [4, 4]), value("x3", [3, 4]), value("x4", [1, 1, 4, 4]), value("x0", [])]
    (site,) = scanned(model(nodes, inputs, initializers=(sizes("s", -1, 0, 7),)))
    assert (
        site.state.reason == f"the shape of its input is unknown after {broken.op_type} #0 of main"
    )
    assert site.state.cause is Cause.UNTRACKED


CUT = node("Split", "y", "a b", num_outputs=2)
EXTERNAL = TensorProto(name="s", data_type=INT64, dims=[1], data_location=TensorProto.EXTERNAL)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (EXTERNAL, "the shape of its input is unknown after Reshape #0 of main"),
        (typed("s", [1]), "the shape of its input is unknown after Reshape #0 of main"),
        (sizes("other", 1), "no earlier node produces value 's'"),
    ],
    ids=["external data", "no data", "no such value"],
)
def test_a_shape_that_cannot_be_read_is_the_reason_of_the_split_after_it(
    scanned: Scanned, shape: TensorProto, reason: str
) -> None:
    nodes = [node("Reshape", "x s", "y"), CUT]
    (site,) = scanned(model(nodes, [value("x", [4])], initializers=(shape,)))
    assert site.state.reason == reason


def test_a_cast_to_no_type_leaves_the_data_type_unknown(scanned: Scanned) -> None:
    (site,) = scanned(model([node("Cast", "x", "y"), CUT], [value("x", [4])]))
    assert site.state.reason == "the data type of the input is not known"


SCANNED = """<ir_version: 10, opset_import: ["" : 18]> net (float[6] s, float[4,6] x) => (y) {
    last, y = Scan <num_scan_inputs = 1, body = body (float[6] a, float[6] b)
        => (float[6] c, float[6] d) { c = Add (a, b) d = Relu (c) }> (s, x)
}"""
# A node of each operator that ONNX infers and this package does not: its inputs, or constants.
INFERRED: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "AffineGrid": ([(2, 2, 3), [2, 3, 4, 6]], {}),
    "BlackmanWindow": ([6], {}),
    "CenterCropPad": ([(20, 10, 3), [10, 7, 3]], {}),
    "Col2Im": ([(1, 5, 5), [5, 5], [1, 5]], {}),
    "DFT": ([(1, 8, 2)], {"axis": 1}),
    "HammingWindow": ([6], {}),
    "HannWindow": ([6], {}),
    "MaxRoiPool": ([(1, 3, 8, 8), (5, 5)], {"pooled_shape": [2, 2]}),
    "MaxUnpool": ([(1, 1, 2, 2), ("int", 1, 1, 2, 2)], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "MelWeightMatrix": ([8, 16, 8192, 0.0, 4096.0], {}),
    "Multinomial": ([(2, 6)], {"sample_size": 6}),
    "RandomNormal": ([], {"shape": [2, 6]}),
    "RandomUniform": ([], {"shape": [2, 6]}),
    "RoiAlign": ([(1, 3, 8, 8), (5, 4), ("int", 5)], {}),
}


def single_node(operator: str) -> onnx.ModelProto:
    arguments, attributes = INFERRED[operator]
    inputs, constants = [], []
    for index, argument in enumerate(arguments):
        if isinstance(argument, tuple):
            is_integer = argument[0] == "int"
            kind, shape = (INT64, argument[1:]) if is_integer else (TensorProto.FLOAT, argument)
            inputs.append(helper.make_tensor_value_info(f"i{index}", kind, shape))
        else:
            array = np.array(argument, np.float32 if isinstance(argument, float) else np.int64)
            constants.append(numpy_helper.from_array(array, f"i{index}"))
    names = [f"i{index}" for index in range(len(arguments))]
    graph = helper.make_graph(
        [helper.make_node(operator, names, ["y"], **attributes)],
        "net",
        inputs,
        [onnx.ValueInfoProto(name="y")],
        constants,
    )
    opset = helper.make_opsetid("", 20 if operator == "AffineGrid" else 18)
    return helper.make_model(graph, opset_imports=[opset])


@pytest.mark.parametrize("operator", sorted(INFERRED_BY_ONNX))
def test_onnx_infers_the_sizes_after_the_operators_for_which_it_is_advised(operator: str) -> None:
    content = onnx.parser.parse_model(SCANNED) if operator == "Scan" else single_node(operator)
    kind = onnx.shape_inference.infer_shapes(content).graph.output[0].type.tensor_type
    assert kind.elem_type
    assert kind.shape.dim
    assert all(dim.HasField("dim_value") for dim in kind.shape.dim)
