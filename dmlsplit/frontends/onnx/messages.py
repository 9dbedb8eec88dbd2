"""The messages of onnx.proto, as far as finding splits needs them.

Field numbers: onnx.proto of the ONNX project.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dmlsplit.frontends.onnx.wire import I32, I64, LEN, VARINT, Span

# How the values of a field are written; a repeated number may be packed or not.
_NUMBER, _BYTES, _NUMBERS, _FLOATS, _DOUBLES = (
    (VARINT,),
    (LEN,),
    (VARINT, LEN),
    (I32, LEN),
    (I64, LEN),
)

FIELDS: dict[str, dict[str, tuple[int, tuple[int, ...]]]] = {
    "ModelProto": {
        "ir_version": (1, _NUMBER),
        "graph": (7, _BYTES),
        "opset_import": (8, _BYTES),
        "functions": (25, _BYTES),
    },
    "OperatorSetIdProto": {"domain": (1, _BYTES), "version": (2, _NUMBER)},
    "GraphProto": {
        "node": (1, _BYTES),
        "name": (2, _BYTES),
        "initializer": (5, _BYTES),
        "input": (11, _BYTES),
        "output": (12, _BYTES),
        "value_info": (13, _BYTES),
    },
    "NodeProto": {
        "input": (1, _BYTES),
        "output": (2, _BYTES),
        "name": (3, _BYTES),
        "op_type": (4, _BYTES),
        "attribute": (5, _BYTES),
        "domain": (7, _BYTES),
        "overload": (8, _BYTES),
    },
    "AttributeProto": {
        "name": (1, _BYTES),
        "i": (3, _NUMBER),
        "t": (5, _BYTES),
        "g": (6, _BYTES),
        "ints": (8, _NUMBERS),
        "graphs": (11, _BYTES),
        "type": (20, _NUMBER),
        "ref_attr_name": (21, _BYTES),
    },
    "TensorProto": {
        "dims": (1, _NUMBERS),
        "data_type": (2, _NUMBER),
        "float_data": (4, _FLOATS),
        "int32_data": (5, _NUMBERS),
        "int64_data": (7, _NUMBERS),
        "name": (8, _BYTES),
        "raw_data": (9, _BYTES),
        "double_data": (10, _DOUBLES),
        "external_data": (13, _BYTES),
        "data_location": (14, _NUMBER),
    },
    "StringStringEntryProto": {"key": (1, _BYTES), "value": (2, _BYTES)},
    "ValueInfoProto": {"name": (1, _BYTES), "type": (2, _BYTES)},
    "TypeProto": {"tensor_type": (1, _BYTES)},
    "TypeProto.Tensor": {"elem_type": (1, _NUMBER), "shape": (2, _BYTES)},
    "TensorShapeProto": {"dim": (1, _BYTES)},
    "TensorShapeProto.Dimension": {"dim_value": (1, _NUMBER), "dim_param": (2, _BYTES)},
    "FunctionProto": {
        "name": (1, _BYTES),
        "input": (4, _BYTES),
        "output": (5, _BYTES),
        "attribute": (6, _BYTES),
        "node": (7, _BYTES),
        "opset_import": (9, _BYTES),
        "domain": (10, _BYTES),
        "attribute_proto": (11, _BYTES),
        "value_info": (12, _BYTES),
        "overload": (13, _BYTES),
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
    """The main graph or a nested body; all but its nodes."""

    name: str = ""
    initializers: list[Tensor] = field(default_factory=list)
    inputs: list[Declared] = field(default_factory=list)
    declared: list[Declared] = field(default_factory=list)


@dataclass(slots=True)
class Function:
    """A model function: all but its nodes."""

    span: Span
    name: str = ""
    domain: str = ""
    overload: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
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
