"""SplitSite the splits of ONNX files: places, shapes, lengths, and hostile files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlsplit import InvalidArgumentError
from dmlsplit.frontends import SplitSite
from dmlsplit.frontends.onnx import scan
from dmlsplit.frontends.onnx import messages
from dmlsplit.frontends.onnx.scanner import MAXIMUM_DEPTH
from dmlsplit.frontends.onnx.shapes import _RULES

onnx = pytest.importorskip("onnx", reason="builds models with the package onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def value(name: str, shape: list[Any] | None = None, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def sizes(name: str, *numbers: int) -> Any:
    return numpy_helper.from_array(np.array(numbers, np.int64), name)


def model(
    nodes: list[Any],
    inputs: list[Any],
    *,
    initializers: tuple[Any, ...] = (),
    declared: tuple[Any, ...] = (),
    opsets: dict[str, int] | None = None,
    functions: tuple[Any, ...] = (),
    ir_version: int = 10,
) -> Any:
    graph = helper.make_graph(nodes, "main", inputs, [], list(initializers))
    graph.value_info.extend(declared)
    imports = [helper.make_opsetid(d, v) for d, v in (opsets or {"": 18, "own": 1}).items()]
    return helper.make_model(
        graph, opset_imports=imports, functions=list(functions), ir_version=ir_version
    )


@pytest.fixture
def scanned(tmp_path: Path) -> Callable[[Any], list[SplitSite]]:
    def scan_model(content: Any) -> list[SplitSite]:
        path = tmp_path / "model.onnx"
        path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
        return scan(path)

    return scan_model


Scanned = Callable[[Any], list[SplitSite]]


def test_field_numbers_are_those_of_onnx_proto() -> None:
    from google.protobuf.descriptor import FieldDescriptor as F

    wire_types = {F.TYPE_FLOAT: 5, F.TYPE_DOUBLE: 1, F.TYPE_MESSAGE: 2, F.TYPE_STRING: 2}
    wire_types |= {F.TYPE_BYTES: 2, F.TYPE_INT64: 0, F.TYPE_INT32: 0, F.TYPE_ENUM: 0}
    for message, fields in FIELDS.items():
        descriptor = onnx
        for part in message.split("."):
            descriptor = getattr(descriptor, part)
        known = descriptor.DESCRIPTOR.fields_by_name
        for name, (number, kinds) in fields.items():
            assert known[name].number == number
            assert wire_types[known[name].type] in kinds


# --- the place and the descriptor ---------------------------------------------------------------


def test_a_split_is_found_with_its_place_and_its_descriptor(scanned: Scanned) -> None:
    nodes = [node("Relu", "x", "y"), node("Split", "y s", "a b", name="cut", axis=-1)]
    (found,) = scanned(model(nodes, [value("x", [2, 6])], initializers=(sizes("s", 2, 4),)))
    assert found.place == "main"
    assert (found.node, found.index, found.operator) == ("cut", 1, "Split-18")
    (desc,) = found.descriptors
    assert str(desc) == "SPLIT axis 1: FLOAT32[2,6] -> FLOAT32[2,2], FLOAT32[2,4]"
    assert (found.problem, found.unknown, found.warnings) == ("", "", ())


@pytest.mark.parametrize(
    ("opset", "name"),
    [
        (1, "Split-1"),
        (2, "Split-2"),
        (10, "Split-2"),
        (11, "Split-11"),
        (12, "Split-11"),
        (13, "Split-13"),
        (17, "Split-13"),
        (18, "Split-18"),
        (28, "Split-18"),
    ],
)
def test_the_opset_says_the_version(scanned: Scanned, opset: int, name: str) -> None:
    given = {"num_outputs": 2} if opset >= 18 else {}
    cut = node("Split", "x", "a b", axis=0, **given)
    for domain in ("", "ai.onnx"):
        (found,) = scanned(model([cut], [value("x", [4])], opsets={domain: opset}))
        assert found.operator == name
        assert [d.split_sizes for d in found.descriptors] == [(2, 2)]


@pytest.mark.parametrize(("opset", "name"), [(11, "-11"), (23, "-11"), (24, "-24"), (28, "-24")])
def test_split_to_sequence_is_found(scanned: Scanned, opset: int, name: str) -> None:
    cut = node("SplitToSequence", "x s", "y")
    chunk = numpy_helper.from_array(np.array(2, np.int64), "s")
    (found,) = scanned(
        model([cut], [value("x", [5, 3])], initializers=(chunk,), opsets={"": opset})
    )
    assert found.operator == f"SplitToSequence{name}"
    assert [d.split_sizes for d in found.descriptors] == [(2, 2, 1)]
    assert "no SplitToSequence; the node runs on the CPU" in found.warnings[0]


def test_an_opset_that_is_missing_or_too_old_is_a_problem(scanned: Scanned) -> None:
    (found,) = scanned(model([node("Split", "x", "a")], [value("x", [4])], opsets={"own": 1}))
    assert "the model imports no opset of ai.onnx" in found.problem
    sequence = node("SplitToSequence", "x", "a")
    (found,) = scanned(model([sequence], [value("x", [4])], opsets={"": 10}))
    assert "the operator exists since opset 11" in found.problem


def test_splits_of_other_domains_are_not_ours(scanned: Scanned) -> None:
    assert scanned(model([node("Split", "x", "a", domain="own")], [value("x", [4])])) == []


def branch(name: str, count: int) -> Any:
    cut = node("Split", "outer", " ".join(f"{name}{i}" for i in range(count)), num_outputs=count)
    return helper.make_graph([cut], name, [], [])


def test_nested_bodies_are_walked_and_see_outer_names(scanned: Scanned) -> None:
    inner = node(
        "If", "c", "z", name="inner", then_branch=branch("t", 2), else_branch=branch("e", 3)
    )
    body = helper.make_graph([inner], "body", [value("i"), value("c")], [])
    loop = node("Loop", "n c", "y", body=body)
    nodes = [node("Relu", "x", "outer"), loop]
    found = scanned(model(nodes, [value("x", [6, 2])]))
    assert [f.place for f in found] == [
        "main/Loop[1].body/inner.else_branch",
        "main/Loop[1].body/inner.then_branch",
    ]
    assert [f.descriptors[0].split_sizes for f in found] == [(2, 2, 2), (3, 3)]


def test_names_of_a_body_do_not_leak_out(scanned: Scanned) -> None:
    body = helper.make_graph([node("Relu", "wide", "y")], "b", [value("wide", [8])], [])
    nodes = [node("Scan", "x", "z", body=body), node("Split", "y", "a b", num_outputs=2)]
    (found,) = scanned(model(nodes, [value("x", [6])]))
    assert found.unknown == "the input's shape is dynamic"


def halve(opset: int = 13, name: str = "Halve", operator: str = "Split") -> Any:
    cut = node(operator, "x", "a b")
    cut.attribute.add(name="axis", ref_attr_name="at", type=onnx.AttributeProto.INT)
    imports = [helper.make_opsetid("", opset)]
    return helper.make_function("own", name, ["x"], ["a", "b"], [cut], imports, ["at"])


def test_functions_are_scanned_per_call_with_their_own_opset(scanned: Scanned) -> None:
    nodes = [
        node("Halve", "x", "a b", domain="own", at=1, name="first"),
        node("Halve", "a", "c d", domain="own", at=0),
        node("Halve", "b", "e f", domain="own", at=0),  # The same types as the second call.
        node("Split", "d", "g h", num_outputs=2),
    ]
    found = scanned(model(nodes, [value("x", [4, 8])], functions=(halve(),)))
    assert [(f.place, f.operator) for f in found] == [
        ("main/first", "Split-13"),
        ("main/Halve[1]", "Split-13"),
        ("main", "Split-18"),
    ]
    shapes = [f.descriptors[0].output_tensors[0].sizes for f in found]
    assert shapes == [(4, 4), (2, 4), (1, 4)]


def test_a_function_that_nobody_calls_is_scanned_without_its_arguments(scanned: Scanned) -> None:
    (found,) = scanned(model([], [], functions=(halve(),)))
    assert found.place == "function own.Halve"
    assert found.unknown == "attribute 'axis' is dynamic: the function's caller gives it"


def test_defaults_of_function_attributes_count(scanned: Scanned) -> None:
    function = halve()
    del function.attribute[:]
    function.attribute_proto.append(helper.make_attribute("at", 1))
    call = node("Halve", "x", "a b", domain="own")
    (found,) = scanned(model([call], [value("x", [4, 8])], functions=(function,)))
    assert found.descriptors[0].axis == 1


# --- lengths ------------------------------------------------------------------------------------


def typed(name: str, numbers: list[int], **fields: Any) -> Any:
    return TensorProto(name=name, data_type=INT64, dims=[len(numbers)], **fields)


@pytest.mark.parametrize(
    ("source", "initializers", "nodes"),
    [
        ("raw initializer", (sizes("s", 2, 4),), []),
        ("int64_data", (typed("s", [2, 4], int64_data=[2, 4]),), []),
        ("Constant", (), [node("Constant", "", "s", value=sizes("", 2, 4))]),
        ("Constant value_ints", (), [node("Constant", "", "s", value_ints=[2, 4])]),
        ("Identity", (sizes("r", 2, 4),), [node("Identity", "r", "s")]),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_lengths_are_found(
    scanned: Scanned, source: str, initializers: tuple[Any, ...], nodes: list[Any]
) -> None:
    for each in nodes:
        if each.op_type == "Constant":
            del each.input[:]
    content = model(
        [*nodes, node("Split", "x s", "a b")], [value("x", [6])], initializers=initializers
    )
    (found,) = scanned(content)
    assert found.descriptors[0].split_sizes == (2, 4)


def test_lengths_of_split_1_are_floats(scanned: Scanned) -> None:
    for kind in (np.float16, np.float32, np.float64):
        array = np.array([2, 4], kind)
        data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        raw = numpy_helper.from_array(array, "s")
        plain = helper.make_tensor("s", data_type, [2], array.tolist())
        for tensor in (raw, plain):
            content = model(
                [node("Split", "x s", "a b", axis=0)],
                [value("x", [6])],
                initializers=(tensor,),
                opsets={"": 1},
            )
            (found,) = scanned(content)
            assert found.descriptors[0].split_sizes == (2, 4)


def test_what_is_dynamic_is_said(scanned: Scanned) -> None:
    cut = node("Split", "x s", "a b", axis=1)
    lengths = (sizes("s", 2, 4),)

    def unknown(shape: Any, **given: Any) -> str:
        (found,) = scanned(model([cut], [value("x", shape)], **given))
        assert not found.descriptors
        assert not found.problem
        return found.unknown

    assert unknown(["batch", 6], initializers=lengths) == "dimension 0 is dynamic (batch)"
    assert unknown([2, "n"], initializers=lengths) == "the axis, dimension 1 is dynamic (n)"
    assert unknown([2, -1], initializers=lengths) == "the axis, dimension 1 is dynamic"
    assert unknown([2, None], initializers=lengths) == "the axis, dimension 1 is dynamic"
    assert unknown(None, initializers=lengths) == "the input's shape is dynamic"
    (found,) = scanned(model([cut], [value("x", [2, 6]), value("s", [2], INT64)]))
    assert found.unknown == "split is dynamic: it is computed when the model runs"


def test_a_dynamic_batch_does_not_hide_wrong_sizes(scanned: Scanned) -> None:
    cut = node("Split", "x s", "a b", axis=1)
    (found,) = scanned(model([cut], [value("x", ["n", 7])], initializers=(sizes("s", 2, 4),)))
    assert "split is [2, 4], 6 in sum; it must add up to the axis, of size 7" in found.problem


def test_the_default_of_a_graph_input_is_warned_of(scanned: Scanned) -> None:
    cut = node("Split", "x s", "a b")
    inputs = [value("x", [6]), value("s", [2], INT64)]
    for ir_version, warned in ((3, False), (8, True)):
        content = model([cut], inputs, initializers=(sizes("s", 2, 4),), ir_version=ir_version)
        (found,) = scanned(content)
        assert found.descriptors[0].split_sizes == (2, 4)
        assert any("a caller may override it" in text for text in found.warnings) == warned


@pytest.mark.parametrize(
    ("location", "escapes"),
    [
        ("weights.bin", False),
        ("sub/weights.bin", False),
        ("/etc/passwd", True),
        ("../w", True),
        ("a/../../w", True),
        ("C:\\w", True),
        ("..\\w", True),
    ],
)
def test_external_lengths_are_never_opened(
    scanned: Scanned, monkeypatch: pytest.MonkeyPatch, location: str, escapes: bool
) -> None:
    tensor = TensorProto(name="s", data_type=INT64, dims=[2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    tensor.external_data.add(key="offset", value="-1")
    tensor.external_data.add(key="length", value=str(2**70))
    opened: list[str] = []
    original = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *a, **k: (opened.append(path), original(path, *a))[1]
    )
    content = model([node("Split", "x s", "a b")], [value("x", [6])], initializers=(tensor,))
    (found,) = scanned(content)
    assert [Path(path).name for path in opened if "pytest" in str(path)] == ["model.onnx"]
    if escapes:
        assert "the path must stay inside the model's folder" in found.problem
    else:
        assert found.unknown == "split lies in external data, which is not opened"


# --- shapes -------------------------------------------------------------------------------------


def test_declared_shapes_count_where_tracking_ends(scanned: Scanned) -> None:
    nodes = [node("Mystery", "x", "y", domain="own"), node("Split", "y", "a b", num_outputs=2)]
    (found,) = scanned(model(nodes, [value("x", [3])], declared=(value("y", [8, 2]),)))
    assert str(found.descriptors[0]) == "SPLIT axis 0: FLOAT32[8,2] -> FLOAT32[4,2], FLOAT32[4,2]"


X = [2, 3, 8, 8]
SHAPE_CASES: list[tuple[str, list[Any], dict[str, list[Any]], tuple[Any, ...]]] = [
    ("Relu", [node("Relu", "x", "y")], {"x": X}, ()),
    ("Cast", [node("Cast", "x", "y", to=TensorProto.INT8)], {"x": X}, ()),
    ("Add", [node("Add", "x w", "y")], {"x": [2, 1, 4], "w": [3, 1]}, ()),
    ("Where", [node("Where", "c x w", "y")], {"c": [2, 1], "x": [1, 3], "w": [1]}, ()),
    ("Transpose", [node("Transpose", "x", "y", perm=[0, 2, 3, 1])], {"x": X}, ()),
    ("Transpose", [node("Transpose", "x", "y")], {"x": [2, 3, 4]}, ()),
    ("Reshape", [node("Reshape", "x s", "y")], {"x": X}, (sizes("s", 0, -1, 4),)),
    ("Reshape", [node("Reshape", "x s", "y")], {"x": ["n", 4, 6]}, (sizes("s", 0, 2, -1),)),
    ("Flatten", [node("Flatten", "x", "y", axis=2)], {"x": X}, ()),
    ("Flatten", [node("Flatten", "x", "y", axis=-1)], {"x": X}, ()),
    ("Unsqueeze", [node("Unsqueeze", "x s", "y")], {"x": X}, (sizes("s", 0, -1),)),
    ("Squeeze", [node("Squeeze", "x s", "y")], {"x": [1, 3, 1]}, (sizes("s", -1),)),
    ("Concat", [node("Concat", "x w", "y", axis=1)], {"x": [2, 3], "w": [2, 5]}, ()),
    ("MatMul", [node("MatMul", "x w", "y")], {"x": [5, 1, 2, 3], "w": [4, 3, 7]}, ()),
    ("Gemm", [node("Gemm", "x w", "y", transB=1)], {"x": [2, 3], "w": [5, 3]}, ()),
    (
        "Conv",
        [node("Conv", "x w", "y", pads=[1, 1, 1, 1], strides=[2, 2])],
        {"x": X, "w": [5, 3, 3, 3]},
        (),
    ),
    (
        "Conv",
        [node("Conv", "x w", "y", dilations=[2, 1], pads=[0, 1, 2, 0])],
        {"x": X, "w": [5, 3, 3, 2]},
        (),
    ),
    ("MaxPool", [node("MaxPool", "x", "y", kernel_shape=[3, 2])], {"x": X}, ()),
    ("Split", [node("Split", "x s", "p y", axis=1)], {"x": X}, (sizes("s", 1, 2),)),
]


@pytest.mark.parametrize(("name", "nodes", "shapes", "constants"), SHAPE_CASES)
def test_shapes_are_those_of_onnx_shape_inference(
    scanned: Scanned,
    name: str,
    nodes: list[Any],
    shapes: dict[str, list[Any]],
    constants: tuple[Any, ...],
) -> None:
    kinds = {"c": TensorProto.BOOL}
    inputs = [value(key, shape, kinds.get(key, FLOAT)) for key, shape in shapes.items()]
    content = model(
        [*nodes, node("Split", "y", "all", num_outputs=1)], inputs, initializers=constants
    )
    inferred = onnx.shape_inference.infer_shapes(content, strict_mode=True)
    (declared,) = [v for v in inferred.graph.value_info if v.name == "y"]
    wanted = [d.dim_param or d.dim_value for d in declared.type.tensor_type.shape.dim]
    found = scanned(content)[-1]
    if found.descriptors:
        assert list(found.descriptors[0].input_tensor.sizes) == wanted
    else:
        assert found.unknown == f"the axis, dimension 0 is dynamic ({wanted[0]})"


def test_shapes_travel_through_a_chain_as_in_a_yolo_head(scanned: Scanned) -> None:
    weights = numpy_helper.from_array(np.zeros((64, 3, 3, 3), np.float32), "w")
    nodes = [
        node("Conv", "x w", "c", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Sigmoid", "c", "s"),
        node("Mul", "c s", "m"),
        node("Split", "m lengths", "a b", axis=1),
        node("Concat", "a b m", "j", axis=1),
        node("Split", "j", "p q", axis=1, num_outputs=2),
    ]
    initializers = (weights, sizes("lengths", 32, 32))
    found = scanned(model(nodes, [value("x", [1, 3, 160, 160])], initializers=initializers))
    assert [str(f.descriptors[0].input_tensor) for f in found] == [
        "FLOAT32[1,64,80,80]",
        "FLOAT32[1,128,80,80]",
    ]


@pytest.mark.parametrize(
    "broken",
    [
        node("Transpose", "x", "y", perm=[0, 0]),
        node("Reshape", "x s", "y"),
        node("Conv", "x x", "y", strides=[0, 0]),
        node("MaxPool", "x", "y", kernel_shape=[1]),
        node("Concat", "x", "y", axis=9),
        node("Flatten", "x", "y", axis=2**62),
        node("Unsqueeze", "x s", "y"),
        node("Gemm", "x", "y"),
    ],
)
def test_a_node_that_breaks_its_rules_has_an_unknown_shape(scanned: Scanned, broken: Any) -> None:
    nodes = [broken, node("Split", "y", "a b", num_outputs=2)]
    (found,) = scanned(model(nodes, [value("x", [4, 4])], initializers=(sizes("s", -1, 0, 7),)))
    assert found.unknown == "the input's shape is dynamic"


def test_what_cannot_be_read_leaves_shape_and_type_unknown(scanned: Scanned) -> None:
    cut = node("Split", "y", "a b", num_outputs=2)
    external = TensorProto(name="s", data_type=INT64, dims=[1], data_location=TensorProto.EXTERNAL)
    for shape in (external, typed("s", [1]), sizes("other", 1)):
        content = model(
            [node("Reshape", "x s", "y"), cut], [value("x", [4])], initializers=(shape,)
        )
        assert scanned(content)[0].unknown == "the input's shape is dynamic"
    (found,) = scanned(model([node("Cast", "x", "y"), cut], [value("x", [4])]))
    assert found.unknown == "the input's data type is not known"


def test_types_declared_inside_a_function_count(scanned: Scanned) -> None:
    function = halve()
    function.node.insert(0, node("Mystery", "x", "z", domain="own"))
    function.node[1].input[0] = "z"
    function.value_info.append(value("z", [4, 6]))
    call = node("Halve", "x", "a b", domain="own", at=1)
    (found,) = scanned(model([call], [value("x", [4, 8])], functions=(function,)))
    assert found.descriptors[0].input_tensor.sizes == (4, 6)


# --- warnings -----------------------------------------------------------------------------------


def test_empty_pieces_are_warned_of(scanned: Scanned) -> None:
    cut = node("Split", "x s", "a b")
    (found,) = scanned(model([cut], [value("x", [4])], initializers=(sizes("s", 0, 4),)))
    assert str(found.descriptors[0]) == "SPLIT axis 0: FLOAT32[4] -> FLOAT32[4]"
    assert "DirectML provider appears to skip" in found.warnings[0]


def test_what_onnx_runtime_dies_or_chokes_of_is_warned_of(scanned: Scanned) -> None:
    cut = helper.make_node("Split", ["x", ""], ["a", "", "c"], num_outputs=3)
    (found,) = scanned(model([cut], [value("x", [6])]))
    assert found.descriptors[0].split_sizes == (2, 2, 2)
    assert any("output 1 has no name" in text for text in found.warnings)
    assert any("omitted by an empty name beside num_outputs" in text for text in found.warnings)


def test_num_outputs_on_a_dynamic_axis_is_warned_of(scanned: Scanned) -> None:
    for count, warned in ((2, 0), (3, 1)):
        cut = node("Split", "x", " ".join("abc"[:count]), num_outputs=count)
        (found,) = scanned(model([cut], [value("x", ["n"])]))
        assert len(found.warnings) == warned


def test_neither_sizes_nor_num_outputs_is_warned_of(scanned: Scanned) -> None:
    (found,) = scanned(model([node("Split", "x", "a b")], [value("x", [6])]))
    assert found.descriptors[0].split_sizes == (3, 3)
    assert "which ONNX forbids" in found.warnings[0]


def test_strings_have_no_descriptor(scanned: Scanned) -> None:
    cut = node("Split", "x", "a b", num_outputs=2)
    (found,) = scanned(model([cut], [value("x", [6], TensorProto.STRING)]))
    assert found.descriptors == ()
    assert "they are split on the host" in found.warnings[0]


# --- hostile files ------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    out = b""
    number &= 2**64 - 1
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number: int, content: bytes | int) -> bytes:
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def nested(depth: int) -> bytes:
    graph = field(1, field(4, b"Identity"))
    for _ in range(depth):
        graph = field(1, field(4, b"If") + field(5, field(1, b"then_branch") + field(6, graph)))
    return field(7, graph)


def chained(calls: list[tuple[str, list[str]]]) -> Any:
    functions = []
    for name, callees in calls:
        body = [node(callee, "x", f"y{i}", domain="own") for i, callee in enumerate(callees)]
        imports = [helper.make_opsetid("own", 1), helper.make_opsetid("", 18)]
        functions.append(helper.make_function("own", name, ["x"], ["y0"], body, imports))
    return model(
        [node("f0", "x", "y", domain="own")], [value("x", [2])], functions=tuple(functions)
    )


GOOD = model(
    [node("Relu", "x", "y"), node("Split", "y s", "a b", axis=1)],
    [value("x", [2, 6])],
    initializers=(sizes("s", 2, 4),),
).SerializeToString()

REFUSED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty; it must be an ONNX model"),
    "text": (b"ir_version: 8\ngraph {\n", "byte "),
    "JSON": (json.dumps({"irVersion": 8}).encode(), "byte "),
    "zip": (b"PK\x03\x04" + bytes(100), "byte "),
    "zeros": (bytes(1000), "field number 0 does not exist"),
    "ones": (b"\xff" * 1000, "a number has more than 10 bytes"),
    "no graph": (field(1, 8), "it has 0 graphs; a model has 1"),
    "two graphs": (field(7, b"") * 2, "it has 2 graphs; a model has 1"),
    "truncated": (GOOD[:-10], "behind the"),
    "huge length": (b"\x3a" + varint(2**63), "behind the"),
    "cut number": (field(1, 8) + b"\x3a\x80", "a number is cut off"),
    "group": (b"\x0b\x0c", "wire type 3 is not in use"),
    "deep": (nested(5000), f"nest deeper than {MAXIMUM_DEPTH}"),
    "huge name": (field(7, field(2, b"n" * 20_000)), "20000 bytes where at most 16384 are read"),
    "huge rank": (
        field(7, field(5, field(1, b"\1" * 1000))),
        "a rank above 64",
    ),
    "fields without end": (field(7, field(1, b"") * 600_000), "more than 1000000 fields"),
    "self-call": (chained([("f0", ["f0"])]).SerializeToString(), "own.f0 calls itself"),
    "cycle": (
        chained([("f0", ["f1"]), ("f1", ["f2"]), ("f2", ["f0"])]).SerializeToString(),
        "own.f0 calls itself",
    ),
    "long chain": (
        chained([(f"f{i}", [f"f{i + 1}"]) for i in range(200)]).SerializeToString(),
        f"nest deeper than {MAXIMUM_DEPTH}",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_hostile_file_is_one_clear_line_at_once(scanned: Scanned, case: str) -> None:
    content, message = REFUSED[case]
    start = time.perf_counter()
    with pytest.raises(InvalidArgumentError) as error:
        scanned(content)
    assert time.perf_counter() - start < (5 if "without end" in case else 1)
    text = str(error.value)
    assert "model.onnx: " in text
    assert message in text
    assert len(text.splitlines()) == 1
    assert len(text) < 500


def test_functions_that_call_each_other_twice_do_not_double_the_work(scanned: Scanned) -> None:
    calls = [(f"f{i}", [f"f{i + 1}"] * 2) for i in range(40)] + [("f40", [])]
    start = time.perf_counter()
    assert scanned(chained(calls)) == []
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize("what", ["missing", "folder", "pipe", "NUL"])
def test_what_is_no_file_is_one_clear_line(tmp_path: Path, what: str) -> None:
    path = tmp_path / ("model\0.onnx" if what == "NUL" else "model.onnx")
    if what == "folder":
        path.mkdir()
    if what == "pipe":
        os.mkfifo(path)
    with pytest.raises(InvalidArgumentError) as error:
        scan(path)
    assert len(str(error.value).splitlines()) == 1


def lengths_of(data_type: int, dims: list[int], **fields: Any) -> Any:
    return TensorProto(name="s", data_type=data_type, dims=dims, **fields)


PROBLEMS: list[tuple[str, dict[str, Any], str]] = [
    ("negative dimension", {"shape": [-7]}, "the input's dimension 0 is -7"),
    ("short lengths", {"s": lengths_of(INT64, [3], int64_data=[1])}, "holds 8 bytes"),
    ("torn lengths", {"s": lengths_of(INT64, [2], raw_data=b"123")}, "holds 3 bytes"),
    ("no lengths", {"s": lengths_of(INT64, [2])}, "holds 0 bytes"),
    ("many lengths", {"s": lengths_of(INT64, [2**62, 2**62])}, "at most 65536 values are read"),
    ("negative size", {"s": lengths_of(INT64, [-2], int64_data=[2, 4])}, "at most 65536 values"),
    ("negative length", {"s": sizes("s", -(2**63), 6)}, "split[0] is -9223372036854775808"),
    ("overflowing sum", {"s": sizes("s", *[2**62] * 2)}, "9223372036854775808 in sum"),
    ("int32", {"s": lengths_of(TensorProto.INT32, [2], int32_data=[2, 4])}, "INT32; it must be"),
    ("unknown type", {"s": lengths_of(2**31 - 1, [2])}, "split has type UNDEFINED"),
    ("float axis", {"axis": 1.5}, "attribute 'axis' is neither an integer nor a list"),
    ("far axis", {"axis": 2**63 - 1}, "axis is 9223372036854775807; it must be -1 to 0"),
    ("near axis", {"axis": -(2**63)}, "axis is -9223372036854775808; it must be -1 to 0"),
    ("huge num_outputs", {"num_outputs": 2**63 - 1}, "num_outputs is 9223372036854775807, and"),
    ("float lengths", {"s": lengths_of(FLOAT, [2], float_data=[2, 4])}, "split has type FLOAT"),
    ("unpacked lengths", {"s": lengths_of(INT64, [2], int64_data=[0] * 70_000)}, "more than 65536"),
    ("no output", {"outputs": "", "num_outputs": 1}, "num_outputs is 1, and there are 0 outputs"),
    ("no input", {"inputs": ""}, "the node has no input"),
    ("three inputs", {"inputs": "x s s"}, "the node has 3 inputs; at most 2 exist"),
    ("an attribute from elsewhere", {"colour": 1}, "attribute 'colour' is set; its attributes are"),
    ("a type ONNX does not split", {"kind": TensorProto.FLOAT8E5M2}, "data type is FLOAT8E5M2"),
]


@pytest.mark.parametrize(("case", "given", "message"), PROBLEMS, ids=[p[0] for p in PROBLEMS])
def test_a_hostile_node_is_a_finding_with_a_problem(
    scanned: Scanned, case: str, given: dict[str, Any], message: str
) -> None:
    given = dict(given)
    lengths = given.pop("s", sizes("s", 2, 4))
    shape, kind = given.pop("shape", [6]), given.pop("kind", FLOAT)
    outputs = given.pop("outputs", "a b")
    inputs = given.pop("inputs", "x" if "num_outputs" in given else "x s")
    cut = node("Split", inputs, outputs, **given)
    (found,) = scanned(model([cut], [value("x", shape, kind)], initializers=(lengths,)))
    assert message in found.problem
    assert not found.descriptors
    assert len(found.problem.splitlines()) == 1


def test_a_list_of_absurdly_many_sizes_is_not_read(scanned: Scanned) -> None:
    for content in ([0] * 65_537, varint(0) * 65_537):
        cut = node("Split", "x", "a b")
        if isinstance(content, bytes):  # Packed, as other writers do.
            cut.attribute.add().ParseFromString(field(1, b"split") + field(8, content))
        else:
            cut.attribute.append(helper.make_attribute("split", content))
        (found,) = scanned(model([cut], [value("x", [6])], opsets={"": 11}))
        assert "'split' is neither an integer nor a list of at most 65536" in found.problem


def test_sizes_beyond_directml_still_become_a_descriptor(scanned: Scanned) -> None:
    cut = node("Split", "x", "a b", num_outputs=2)
    (found,) = scanned(model([cut], [value("x", [2**62, 2**62])]))
    assert found.descriptors[0].split_sizes == (2**61, 2**61)


def test_a_sequence_of_too_many_pieces_is_not_described(scanned: Scanned) -> None:
    for size in (2**62, 2**20):
        (found,) = scanned(model([node("SplitToSequence", "x", "y")], [value("x", [size])]))
        assert not found.descriptors
        assert f"{size} pieces" in found.problem + found.unknown


def test_names_from_a_file_stay_on_their_line(scanned: Scanned) -> None:
    cut = node("Split", "x s", "a b", name="a\n::error::\x1b[31m" + "b" * 1000)
    (found,) = scanned(model([cut], [value("x", ["d\ne"])], initializers=(sizes("s", 2, 4),)))
    assert found.node.startswith("a\\n::error::\\x1b[31m")
    assert len(found.node) < 250
    assert found.unknown == "the axis, dimension 0 is dynamic (d\\ne)"


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        # Ends ONNX's shape inference and ONNX Runtime: SIGABRT.
        (node("Split", "x", "a b c", num_outputs=2), "num_outputs is 2, and there are 3 outputs"),
        # Ends ONNX Runtime: SIGSEGV.
        (helper.make_node("Split", ["x", "s"], ["a", ""]), ""),
        # Ends ONNX Runtime: SIGFPE.
        (node("SplitToSequence", "x zero", "q"), "the chunk size, a scalar split, is 0"),
    ],
    ids=["SIGABRT", "SIGSEGV", "SIGFPE"],
)
def test_models_that_end_onnx_s_own_tools_are_described(
    scanned: Scanned, cut: Any, message: str
) -> None:
    zero = numpy_helper.from_array(np.array(0, np.int64), "zero")
    (found,) = scanned(model([cut], [value("x", [6])], initializers=(sizes("s", 2, 4), zero)))
    assert message in found.problem
    if not message:
        assert found.descriptors
        assert "ONNX Runtime 1.31 crashes on such a node" in found.warnings[0]


def test_a_large_model_costs_its_graph_and_not_its_weights(tmp_path: Path) -> None:
    path = tmp_path / "large.onnx"
    weights = 3 << 30
    names = [field(1, field(4, b"Relu") + field(1, b"w") + field(2, b"y"))]
    names.append(field(1, field(4, b"Split") + field(1, b"y") + field(2, b"a") + field(2, b"b")))
    tensor = field(1, 3072) + field(1, 1 << 18) + field(2, 1) + field(8, b"w")
    tensor += varint(9 << 3 | 2) + varint(weights)
    initializer = varint(5 << 3 | 2) + varint(len(tensor) + weights) + tensor
    graph = b"".join(names) + initializer
    head = field(1, 8) + field(8, field(2, 13))
    head += varint(7 << 3 | 2) + varint(len(graph) + weights) + graph
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + weights)
    code = (
        "import resource, sys, time\n"
        "from dmlsplit.frontends.onnx import scan\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "start = time.perf_counter()\n"
        "(found,) = scan(sys.argv[1])\n"
        "print(found.descriptors[0])\n"
        "print(time.perf_counter() - start)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    text, seconds, kibibytes = result.stdout.splitlines()
    half = "FLOAT32[1536,262144]"
    assert text == f"SPLIT axis 0: FLOAT32[3072,262144] -> {half}, {half}"
    assert float(seconds) < 1
    assert int(kibibytes) < 16 * 1024


def assert_read_or_refused(path: Path) -> None:
    message = ""
    try:
        found = scan(path)
    except InvalidArgumentError as error:
        message = str(error)
        found = []
    assert len(message.splitlines()) == (0 if not message else 1)
    assert all(isinstance(each, SplitSite) for each in found)


@settings(max_examples=500)
@given(data=st.data())
def test_mutated_models_never_do_more_than_refuse(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(data.draw(st.sampled_from(SEEDS)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        kind = data.draw(st.sampled_from(["flip", "insert", "delete", "repeat", "cut"]))
        piece = data.draw(st.binary(min_size=1, max_size=12))
        if kind == "flip":
            content[at] ^= piece[0] or 1
        elif kind == "insert":
            content[at:at] = piece
        elif kind == "delete":
            del content[at : at + len(piece)]
        elif kind == "repeat":
            content[at:at] = content[at : at + 40] * piece[0]
        else:
            del content[at:]
        if not content:
            return
    path = tmp_path_factory.getbasetemp() / "mutated.onnx"
    path.write_bytes(content)
    start = time.perf_counter()
    assert_read_or_refused(path)
    assert time.perf_counter() - start < 2


@settings(max_examples=300)
@given(content=st.binary(min_size=1, max_size=200))
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "noise.onnx"
    path.write_bytes(field(7, content) + field(8, field(2, 18)))
    assert_read_or_refused(path)


EXTREMES = st.sampled_from([0, 1, -1, 2, 3, 7, 2**31, 2**62, 2**63 - 1, -(2**63)])
NAMES = st.sampled_from(["x", "w", "s", "c", "y", "z", ""])


@st.composite
def odd_nodes(draw: st.DrawFn) -> Any:
    """Return a node of a known operator with any inputs, outputs and attributes."""
    operators = ["Split", "SplitToSequence", "Constant", "Identity", *_RULES]
    made = helper.make_node(
        draw(st.sampled_from(operators)),
        draw(st.lists(NAMES, max_size=4)),
        draw(st.lists(NAMES, max_size=4)),
    )
    names = ["axis", "split", "num_outputs", "keepdims", "perm", "to", "pads", "strides", "axes"]
    names += ["kernel_shape", "shape", "value", "value_ints", "dilations", "allowzero", "transA"]
    for name in draw(st.lists(st.sampled_from(names), max_size=3, unique=True)):
        content = draw(EXTREMES | st.lists(EXTREMES, min_size=1, max_size=4))
        if name == "value":
            content = numpy_helper.from_array(np.array(content, np.int64))
        made.attribute.append(helper.make_attribute(name, content))
    return made


@settings(max_examples=300)
@given(
    nodes=st.lists(odd_nodes(), min_size=1, max_size=8),
    shapes=st.lists(st.lists(EXTREMES | st.just("n"), max_size=4), min_size=2, max_size=2),
    opset=st.sampled_from([1, 2, 11, 13, 18, 24]),
)
def test_odd_graphs_never_do_more_than_refuse(
    tmp_path_factory: pytest.TempPathFactory, nodes: list[Any], shapes: list[Any], opset: int
) -> None:
    inputs = [value("x", shapes[0]), value("w", shapes[1])]
    content = model(nodes, inputs, initializers=(sizes("s", 2, -1, 0),), opsets={"": opset})
    path = tmp_path_factory.getbasetemp() / "odd.onnx"
    path.write_bytes(content.SerializeToString())
    found = scan(path)
    assert len(found) == sum(each.op_type in ("Split", "SplitToSequence") for each in nodes)
    for site in found:
        assert site.operator.startswith("Split")
        assert len(site.problem.splitlines()) <= 1


SEEDS = [
    GOOD,
    chained([("f0", ["f1"]), ("f1", [])]).SerializeToString(),
    model(
        [
            node("Constant", "", "s", value=sizes("", 2, 4)),
            node("Reshape", "x t", "y"),
            node("Split", "y s", "a b"),
            node("Halve", "a", "p q", domain="own", at=1),
            node("If", "c", "z", then_branch=branch("t", 2), else_branch=branch("e", 3)),
            node("SplitToSequence", "x", "l", keepdims=0),
        ],
        [value("x", [2, 6]), value("outer", ["n", 6])],
        initializers=(sizes("t", -1, 2),),
        functions=(halve(),),
    ).SerializeToString(),
]
