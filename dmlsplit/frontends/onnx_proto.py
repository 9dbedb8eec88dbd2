"""The messages of onnx.proto, as far as finding splits needs them.

Field numbers: onnx.proto of the ONNX project.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dmlsplit.frontends.protobuf_wire import Span

FIELDS: dict[str, dict[str, int]] = {
    "ModelProto": {"ir_version": 1, "graph": 7, "opset_import": 8, "functions": 25},
    "OperatorSetIdProto": {"domain": 1, "version": 2},
    "GraphProto": {
        "node": 1,
        "name": 2,
        "initializer": 5,
        "input": 11,
        "output": 12,
        "value_info": 13,
    },
    "NodeProto": {
        "input": 1,
        "output": 2,
        "name": 3,
        "op_type": 4,
        "attribute": 5,
        "domain": 7,
        "overload": 8,
    },
    "AttributeProto": {
        "name": 1,
        "i": 3,
        "t": 5,
        "g": 6,
        "ints": 8,
        "graphs": 11,
        "type": 20,
        "ref_attr_name": 21,
    },
    "TensorProto": {
        "dims": 1,
        "data_type": 2,
        "float_data": 4,
        "int32_data": 5,
        "int64_data": 7,
        "name": 8,
        "raw_data": 9,
        "double_data": 10,
        "external_data": 13,
        "data_location": 14,
    },
    "StringStringEntryProto": {"key": 1, "value": 2},
    "ValueInfoProto": {"name": 1, "type": 2},
    "TypeProto": {"tensor_type": 1},
    "TypeProto.Tensor": {"elem_type": 1, "shape": 2},
    "TensorShapeProto": {"dim": 1},
    "TensorShapeProto.Dimension": {"dim_value": 1, "dim_param": 2},
    "FunctionProto": {
        "name": 1,
        "input": 4,
        "output": 5,
        "attribute": 6,
        "node": 7,
        "opset_import": 9,
        "domain": 10,
        "attribute_proto": 11,
        "value_info": 12,
        "overload": 13,
    },
}

# AttributeProto.AttributeType; OVERSIZED is ours, for a list that is not read.
_INT_ATTRIBUTE, _INTS_ATTRIBUTE, OVERSIZED = 2, 7, -1

MAXIMUM_RANK = 64

# A size is a number, or the name of a dynamic one; "?" where it has none.
Shape = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor that lies in the model, or in a file of its own.

    Attributes
    ----------
    name, data_type, shape
        As stored.
    location : str or None
        Path of the external file, which is never opened; None for a tensor in the model.
    span : Span
        The TensorProto.
    """

    name: str
    data_type: int
    shape: tuple[int, ...]
    location: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class Declared:
    """The type that a model declares for a name. Shape None: unknown rank, or no tensor."""

    name: str
    data_type: int
    shape: Shape | None


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of a node; only integers, tensors and graphs are read."""

    name: str
    number: int | None = None
    numbers: tuple[int, ...] | None = None
    tensor: Tensor | None = None
    graphs: tuple[Span, ...] = ()
    type: int = 0
    reference: str = ""

    @property
    def value(self) -> int | tuple[int, ...] | None:
        """The integer or integers; None for another kind of attribute."""
        if self.type == _INTS_ATTRIBUTE or (not self.type and self.numbers is not None):
            return self.numbers or ()
        if self.type == _INT_ATTRIBUTE or (not self.type and self.number is not None):
            return self.number or 0
        return None


@dataclass(frozen=True, slots=True)
class Node:
    """One node."""

    name: str
    op_type: str
    domain: str
    overload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Attribute]


@dataclass(slots=True)
class Graph:
    """The main graph or a nested body; nodes are read one by one when they are walked."""

    name: str = ""
    nodes: list[Span] = field(default_factory=list)
    initializers: list[Tensor] = field(default_factory=list)
    inputs: list[Declared] = field(default_factory=list)
    declared: list[Declared] = field(default_factory=list)


@dataclass(slots=True)
class Function:
    """A model function."""

    name: str = ""
    domain: str = ""
    overload: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    nodes: list[Span] = field(default_factory=list)
    opsets: dict[str, int] = field(default_factory=dict)
    defaults: dict[str, Attribute] = field(default_factory=dict)
    declared: list[Declared] = field(default_factory=list)


@dataclass(slots=True)
class Model:
    """A model's graph, functions and opsets by domain."""

    ir_version: int
    graph: Span
    opsets: dict[str, int]
    functions: list[Function]


def shown_name(name: str) -> str:
    """Return a name from a file, fit for one line: no control characters, not too long."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
    return text if len(text) <= 200 else f"{text[:200]}..."
