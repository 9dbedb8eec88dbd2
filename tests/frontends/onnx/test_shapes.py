"""Inferred shapes agree with ONNX's or are unknown."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from dmlsplit.frontends.site import Cause
from tests.support.onnx_graphs import FLOAT, INT64, Scanned, model, node, sizes, typed, value


def test_declared_shapes_count_if_the_tracker_knows_none(scanned: Scanned) -> None:
    nodes = [node("Mystery", "x", "y", domain="own"), node("Split", "y", "a b", num_outputs=2)]
    (found,) = scanned(model(nodes, [value("x", [3])], declared=(value("y", [8, 2]),)))
    assert str(found.descriptors[0]) == "SPLIT axis 0: FLOAT32[8,2] -> FLOAT32[4,2], FLOAT32[4,2]"


@pytest.mark.parametrize("wrong", [[1, 1, 3], [1, 3]])
def test_declared_shapes_do_not_count_after_one_that_is_wrong(
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
    declared = (value("v", [1, 1, 4]), value("y", wrong), value("z", [1, 1, 3]))
    before, pooled, after = scanned(model(nodes, [value("x", [1, 1, 4])], declared=declared))
    assert before.shape == (1, 1, 4)
    assert pooled.shape == (1, 1, 2)
    assert after.unknown == "its shape is unknown after Mystery 'next' of main"


X = [2, 3, 8, 8]
# Nodes that make y, the shapes of their inputs, and their constants.


SHAPE_CASES: list[tuple[Any, ...]] = [
    ([node("Relu", "x", "y")], {"x": X}),
    ([node("Cast", "x", "y", to=TensorProto.INT8)], {"x": X}),
    ([node("Add", "x w", "y")], {"x": [2, 1, 4], "w": [3, 1]}),
    ([node("Where", "c x w", "y")], {"c": [2, 1], "x": [1, 3], "w": [1]}),
    ([node("Transpose", "x", "y", perm=[0, 2, 3, 1])], {"x": X}),
    ([node("Transpose", "x", "y")], {"x": [2, 3, 4]}),
    ([node("Reshape", "x s", "y")], {"x": X}, sizes("s", 0, -1, 4)),
    ([node("Reshape", "x s", "y")], {"x": ["n", 4, 6]}, sizes("s", 0, 2, -1)),
    ([node("Flatten", "x", "y", axis=2)], {"x": X}),
    ([node("Flatten", "x", "y", axis=-1)], {"x": X}),
    ([node("Unsqueeze", "x s", "y")], {"x": X}, sizes("s", 0, -1)),
    ([node("Squeeze", "x s", "y")], {"x": [1, 3, 1]}, sizes("s", -1)),
    ([node("Concat", "x w", "y", axis=1)], {"x": [2, 3], "w": [2, 5]}),
    ([node("MatMul", "x w", "y")], {"x": [5, 1, 2, 3], "w": [4, 3, 7]}),
    ([node("Gemm", "x w", "y", transB=1)], {"x": [2, 3], "w": [5, 3]}),
    ([node("Conv", "x w", "y", pads=[1, 1, 1, 1], strides=[2, 2])], {"x": X, "w": [5, 3, 3, 3]}),
    ([node("Conv", "x w", "y", dilations=[2, 1], pads=[0, 1, 2, 0])], {"x": X, "w": [5, 3, 3, 2]}),
    ([node("MaxPool", "x", "y", kernel_shape=[3, 2])], {"x": X}),
    ([node("GlobalMaxPool", "x", "y")], {"x": X}),
    ([node("ReduceMean", "x s", "y")], {"x": X}, sizes("s", 1, -1)),
    ([node("ReduceSum", "x s", "y", keepdims=0)], {"x": X}, sizes("s", 2)),
    ([node("ReduceMax", "x", "y")], {"x": X}),
    ([node("ReduceMin", "x", "y", noop_with_empty_axes=1)], {"x": X}),
    (
        [node("Slice", "x s e a t", "y")],
        {"x": X},
        sizes("s", -1, 1),
        sizes("e", -(2**62), 2**62),
        sizes("a", 2, 1),
        sizes("t", -3, 1),
    ),
    ([node("Pad", "x s", "y")], {"x": [2, 3]}, sizes("s", 0, 1, -1, 2)),
    ([node("Tile", "x s", "y")], {"x": [2, 3]}, sizes("s", 3, 1)),
    ([node("Expand", "x s", "y")], {"x": [2, 1]}, sizes("s", 4, 1, 5)),
    ([node("Gather", "x s", "y", axis=1)], {"x": X}, sizes("s", 0, 0, 1, 0)),
    ([node("ConstantOfShape", "s", "y")], {}, sizes("s", 4, 6)),
    (
        [
            node("Shape", "x", "whole"),
            node("Gather", "whole zero", "n"),
            node("Unsqueeze", "n zero1", "n1"),
            node("Slice", "whole one1 end1", "last"),
            node("Mul", "last two1", "double"),
            node("Concat", "n1 minus1 double", "wanted", axis=0),
            node("Reshape", "x wanted", "y"),
        ],
        {"x": [3, 4, 4]},
        numpy_helper.from_array(np.array(0, np.int64), "zero"),
        sizes("zero1", 0),
        sizes("one1", 2),
        sizes("end1", 2**62),
        sizes("two1", 2),
        sizes("minus1", -1),
    ),
    ([node("Split", "x s", "p y", axis=1)], {"x": X}, sizes("s", 1, 2)),
]


@pytest.mark.parametrize("case", SHAPE_CASES, ids=lambda case: case[0][-1].op_type)
def test_shapes_are_those_of_onnx_shape_inference(scanned: Scanned, case: tuple[Any, ...]) -> None:
    nodes, shapes, *constants = case
    kinds = {"c": TensorProto.BOOL}
    inputs = [value(key, shape, kinds.get(key, FLOAT)) for key, shape in shapes.items()]
    nodes = [*nodes, node("Split", "y", "all", num_outputs=1)]
    content = model(nodes, inputs, initializers=tuple(constants))
    inferred = onnx.shape_inference.infer_shapes(content, strict_mode=True, data_prop=True)
    (declared,) = [v for v in inferred.graph.value_info if v.name == "y"]
    wanted = [d.dim_param or d.dim_value for d in declared.type.tensor_type.shape.dim]
    found = scanned(content)[-1]
    if found.descriptors:
        assert list(found.descriptors[0].input_tensor.sizes) == wanted
    else:
        assert found.unknown == f"dimension 0, the axis, is dynamic ({wanted[0]})"


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
    ],
)
def test_a_node_that_breaks_its_rules_has_an_unknown_shape(scanned: Scanned, broken: Any) -> None:
    nodes = [broken, node("Split", "y", "a b", num_outputs=2)]
    inputs = [value("x", [4, 4]), value("x3", [3, 4]), value("x4", [1, 1, 4, 4])]
    (found,) = scanned(model(nodes, inputs, initializers=(sizes("s", -1, 0, 7),)))
    assert found.unknown == f"its shape is unknown after {broken.op_type}[0] of main"
    assert found.cause is Cause.UNTRACKED


def test_values_that_cannot_be_read_leave_shape_and_type_unknown(scanned: Scanned) -> None:
    cut = node("Split", "y", "a b", num_outputs=2)
    external = TensorProto(name="s", data_type=INT64, dims=[1], data_location=TensorProto.EXTERNAL)
    for shape in (external, typed("s", [1]), sizes("other", 1)):
        reshape = node("Reshape", "x s", "y")
        (found,) = scanned(model([reshape, cut], [value("x", [4])], initializers=(shape,)))
        said = "its shape is unknown after Reshape[0] of main"
        if shape.name == "other":
            said = "no earlier node produces value 's'"
        assert found.unknown == said
    (found,) = scanned(model([node("Cast", "x", "y"), cut], [value("x", [4])]))
    assert found.unknown == "the input's data type is not known"
