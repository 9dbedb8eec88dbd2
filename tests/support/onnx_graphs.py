"""ONNX models for the scanner, built node by node, and hostile files."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dmlsplit.frontends import SplitSite
from dmlsplit.models.limits import MAX_GRAPH_DEPTH

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
    outputs: str = "",
) -> Any:
    graph_outputs = [onnx.ValueInfoProto(name=name) for name in outputs.split()]
    graph = helper.make_graph(nodes, "main", inputs, graph_outputs, list(initializers))
    graph.value_info.extend(declared)
    imports = [helper.make_opsetid(d, v) for d, v in (opsets or {"": 18, "own": 1}).items()]
    return helper.make_model(
        graph, opset_imports=imports, functions=list(functions), ir_version=ir_version
    )


Scanned = Callable[..., list[SplitSite]]


SCALES = numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales")


def resized(shape: list[Any], *more: Any) -> Any:
    """A model with a split, after a Resize that doubles two sizes, and more nodes."""
    up = helper.make_node("Resize", ["x", "", "scales"], ["y"], name="up")
    cut = node("Split", "y", "a b", name="cut", axis=1, num_outputs=2)
    return model([up, cut, *more], [value("x", shape)], initializers=(SCALES,))


def branch(name: str, count: int) -> Any:
    cut = node("Split", "outer", " ".join(f"{name}{i}" for i in range(count)), num_outputs=count)
    return helper.make_graph([cut], name, [], [])


def halve() -> Any:
    """A function of opset 13 that splits along its attribute ``at``."""
    cut = node("Split", "x", "a b")
    cut.attribute.add(name="axis", ref_attr_name="at", type=onnx.AttributeProto.INT)
    imports = [helper.make_opsetid("", 13)]
    return helper.make_function("own", "Halve", ["x"], ["a", "b"], [cut], imports, ["at"])


def typed(name: str, numbers: list[int], **fields: Any) -> Any:
    return TensorProto(name=name, data_type=INT64, dims=[len(numbers)], **fields)


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


# tests/models/test_files.py has files of other kinds.
REFUSED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty; it must be an ONNX model"),
    "zeros": (bytes(1000), "field number 0 does not exist"),
    "ones": (b"\xff" * 1000, "a number has more than 10 bytes"),
    "no graph": (field(1, 8), "it has 0 graphs; a model must have 1"),
    "two graphs": (field(7, b"") * 2, "it has 2 graphs; a model must have 1"),
    "truncated": (GOOD[:-10], "after the end of its message"),
    "huge length": (b"\x3a" + varint(2**63), "after the end of its message"),
    "cut number": (field(1, 8) + b"\x3a\x80", "a number is cut off"),
    "group": (b"\x0b\x0c", "wire type 3 is invalid"),
    "deep": (nested(1500), f"nest deeper than {MAX_GRAPH_DEPTH}"),
    "huge name": (field(7, field(2, b"n" * 20_000)), "20000 bytes where at most 16384 are read"),
    "huge rank": (field(7, field(5, field(1, b"\1" * 1000))), "it must be at most 64"),
    "fields without end": (field(7, field(1, b"") * 110_000), "more than 93,750 fields"),
    "self-call": (
        chained([("f0", ["f0", "f0"])]).SerializeToString(),
        f"nest deeper than {MAX_GRAPH_DEPTH}",
    ),
    "cycle": (
        chained([("f0", ["f1"]), ("f1", ["f2"]), ("f2", ["f0"])]).SerializeToString(),
        f"nest deeper than {MAX_GRAPH_DEPTH}",
    ),
    "long chain": (
        chained([(f"f{i}", [f"f{i + 1}"]) for i in range(200)]).SerializeToString(),
        f"nest deeper than {MAX_GRAPH_DEPTH}",
    ),
}
