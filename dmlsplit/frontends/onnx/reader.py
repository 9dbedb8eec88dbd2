"""Reads an ONNX model's structure from its bytes, and leaves its weights where they are.

Only what finding splits needs is read; every other field is passed over. Big tensors are
never copied, external data is never opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

import numpy as np

from dmlsplit.frontends.onnx.messages import (
    FIELDS,
    MAXIMUM_RANK,
    OVERSIZED,
    Attribute,
    Declared,
    Function,
    Graph,
    Model,
    Node,
    Shape,
    Tensor,
    shown_name,
)
from dmlsplit.frontends.onnx.operators import ElementType
from dmlsplit.frontends.onnx.wire import VARINT, Field, Span, Wire, WireError, field_key, signed

MAXIMUM_NAME_BYTES = 16_384
MAXIMUM_VALUES = 65_536

_NAMES = {
    message: {
        field_key(number, wire_type): name
        for name, (number, wire_types) in fields.items()
        for wire_type in wire_types
    }
    for message, fields in FIELDS.items()
}


class Reader:
    """Reads the messages of a model.

    Parameters
    ----------
    wire
        The bytes of the file.

    Raises
    ------
    WireError
        From every method, where the bytes are not what they should be.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def model(self) -> Model:
        """Read the top of the file."""
        graphs, functions = [], []
        opsets: dict[str, int] = {}
        ir_version = 0
        for name, _, value, inside in self._fields("ModelProto", Span(0, len(self._wire.data))):
            match name:
                case "graph":
                    graphs.append(inside)
                case "opset_import":
                    opsets.update([self._opset(inside)])
                case "functions":
                    functions.append(self._function(inside))
                case "ir_version":
                    ir_version = value
        if len(graphs) != 1:
            raise WireError(f"it has {len(graphs)} graphs; a model has 1")
        return Model(ir_version, graphs[0], opsets, functions)

    def graph(self, span: Span) -> Graph:
        """Read a graph but for its nodes."""
        graph = Graph()
        for name, _, _, inside in self._fields("GraphProto", span):
            match name:
                case "name":
                    graph.name = self._text(inside)
                case "initializer":
                    graph.initializers.append(self._tensor(inside))
                case "input":
                    graph.inputs.append(self._declared(inside))
                case "output" | "value_info":
                    graph.declared.append(self._declared(inside))
        return graph

    def nodes(self, message: str, span: Span) -> Iterator[Node]:
        """Read the nodes of a GraphProto or a FunctionProto, one by one."""
        for name, _, _, inside in self._fields(message, span):
            if name == "node":
                yield self._node(inside)

    def _node(self, span: Span) -> Node:
        text = {"name": "", "op_type": "", "domain": "", "overload": ""}
        names: dict[str, list[str]] = {"input": [], "output": []}
        attributes = {}
        for name, _, _, inside in self._fields("NodeProto", span):
            if name == "attribute":
                attribute = self._attribute(inside)
                attributes[attribute.name] = attribute
            elif name in names:
                names[name].append(self._text(inside))
            else:
                text[name] = self._text(inside)
        return Node(
            text["name"],
            text["op_type"],
            _domain(text["domain"]),
            text["overload"],
            tuple(names["input"]),
            tuple(names["output"]),
            attributes,
        )

    def _tensor(self, span: Span) -> Tensor:
        tensor_name, data_type, external, location = "", 0, False, ""
        dims: list[int] = []
        for name, wire_type, value, inside in self._fields("TensorProto", span):
            match name:
                case "dims":
                    dims += self._numbers(wire_type, value, inside, MAXIMUM_RANK)
                    if len(dims) > MAXIMUM_RANK:
                        raise WireError(f"byte {span.start}: a rank above {MAXIMUM_RANK}")
                case "data_type":
                    data_type = value
                case "name":
                    tensor_name = self._text(inside)
                case "external_data":
                    key, text = self._entry(inside)
                    location = text if key == "location" else location
                    external = True
                case "data_location":
                    external = external or value == 1
        where = location if external else None
        return Tensor(tensor_name, data_type, tuple(dims), where, span)

    def values(self, tensor: Tensor) -> np.ndarray:
        """Return the values of a small tensor of integers or floats.

        Raises
        ------
        WireError
            If it is external, too large, of another type, or its bytes do not fill its shape.
        """
        name, kind = shown_name(tensor.name), _TYPES.get(tensor.data_type)
        if kind is None or tensor.location is not None:
            raise WireError(f"tensor {name!r} cannot be read as numbers")
        count = prod(tensor.shape) if min(tensor.shape, default=0) >= 0 else -1
        if not 0 <= count <= MAXIMUM_VALUES:
            raise WireError(
                f"tensor {name!r} has sizes {list(tensor.shape)}; at most {MAXIMUM_VALUES} "
                "values are read"
            )
        stored = self._stored(tensor, kind)
        if len(stored) != count * np.dtype(kind.dtype).itemsize:
            raise WireError(
                f"tensor {name!r} holds {len(stored)} bytes, which are not its {count} values"
            )
        return np.frombuffer(stored, kind.dtype).reshape(tensor.shape)

    def _stored(self, tensor: Tensor, kind: _Storage) -> bytes:
        """Return a tensor's values as raw bytes, whichever field they lie in."""
        most = MAXIMUM_VALUES * np.dtype(kind.dtype).itemsize
        numbers: list[int] = []
        chunks: list[bytes] = []
        for name, wire_type, value, inside in self._fields("TensorProto", tensor.span):
            if name == "raw_data":
                return self._wire.copy(inside, most)
            if name != kind.field:
                continue
            if name in ("float_data", "double_data"):
                chunks.append(self._wire.copy(inside, most))
            else:
                numbers += self._numbers(wire_type, value, inside, MAXIMUM_VALUES)
            if max(len(numbers), len(chunks)) > MAXIMUM_VALUES:
                raise WireError(f"byte {tensor.span.start}: more than {MAXIMUM_VALUES} values")
        return b"".join(chunks) or np.array(numbers, np.int64).astype(kind.stored).tobytes()

    def _attribute(self, span: Span) -> Attribute:
        attribute_name, number, kind, reference = "", None, 0, ""
        numbers: list[int] = []
        tensor: Tensor | None = None
        graphs: list[Span] = []
        for name, wire_type, value, inside in self._fields("AttributeProto", span):
            match name:
                case "name":
                    attribute_name = self._text(inside)
                case "i":
                    number = signed(value)
                case "ints":
                    numbers += self._numbers(wire_type, value, inside, MAXIMUM_VALUES)
                    if len(numbers) > MAXIMUM_VALUES:
                        # A table, such as a tree ensemble's; no split has so many pieces.
                        return Attribute(attribute_name, type=OVERSIZED)
                case "t":
                    tensor = self._tensor(inside)
                case "g" | "graphs":
                    graphs.append(inside)
                case "type":
                    kind = value
                case "ref_attr_name":
                    reference = self._text(inside)
        listed = tuple(numbers) if numbers else None
        return Attribute(attribute_name, number, listed, tensor, tuple(graphs), kind, reference)

    def _function(self, span: Span) -> Function:
        function = Function(span)
        for name, _, _, inside in self._fields("FunctionProto", span):
            match name:
                case "name" | "domain" | "overload":
                    setattr(function, name, self._text(inside))
                case "input":
                    function.inputs.append(self._text(inside))
                case "output":
                    function.outputs.append(self._text(inside))
                case "opset_import":
                    function.opsets.update([self._opset(inside)])
                case "attribute_proto":
                    attribute = self._attribute(inside)
                    function.defaults[attribute.name] = attribute
                case "value_info":
                    function.declared.append(self._declared(inside))
        function.domain = _domain(function.domain)
        return function

    def _declared(self, span: Span) -> Declared:
        value_name, data_type = "", 0
        shape: Shape | None = None
        for name, _, _, inside in self._fields("ValueInfoProto", span):
            if name == "name":
                value_name = self._text(inside)
                continue
            for _, _, _, tensor in self._fields("TypeProto", inside):
                data_type, shape = self._tensor_type(tensor)
        return Declared(value_name, data_type, shape)

    def _tensor_type(self, span: Span) -> tuple[int, Shape | None]:
        data_type = 0
        shape: Shape | None = None
        for name, _, value, inside in self._fields("TypeProto.Tensor", span):
            if name == "elem_type":
                data_type = value
            else:
                shape = self._shape(inside)
        return data_type, shape

    def _shape(self, span: Span) -> Shape:
        sizes: list[int | str] = []
        for _, _, _, inside in self._fields("TensorShapeProto", span):
            if len(sizes) == MAXIMUM_RANK:
                raise WireError(f"byte {span.start}: a rank above {MAXIMUM_RANK}")
            sizes.append(self._dimension(inside))
        return tuple(sizes)

    def _dimension(self, span: Span) -> int | str:
        size: int | str = "?"
        for name, _, value, inside in self._fields("TensorShapeProto.Dimension", span):
            if name == "dim_value":
                # -1 is how some exporters write a dynamic size.
                size = "?" if signed(value) == -1 else signed(value)
            else:
                size = self._text(inside) or "?"
        return size

    def _opset(self, span: Span) -> tuple[str, int]:
        domain, version = "", 0
        for name, _, value, inside in self._fields("OperatorSetIdProto", span):
            if name == "domain":
                domain = self._text(inside)
            else:
                version = signed(value)
        return _domain(domain), version

    def _entry(self, span: Span) -> tuple[str, str]:
        entry = {"key": "", "value": ""}
        for name, _, _, inside in self._fields("StringStringEntryProto", span):
            entry[name] = self._text(inside)
        return entry["key"], entry["value"]

    def _fields(self, message: str, span: Span) -> Iterator[Field]:
        return self._wire.fields(span, _NAMES[message])

    def _numbers(self, wire_type: int, value: int, span: Span, most: int) -> list[int]:
        """Return the numbers of a repeated field, packed or not; no more than `most` + 1."""
        if wire_type == VARINT:
            return [signed(value)]
        return [signed(number) for number in self._wire.varints(span, most + 1)]

    def _text(self, span: Span) -> str:
        return self._wire.copy(span, MAXIMUM_NAME_BYTES).decode("utf-8", "backslashreplace")


class _Storage(NamedTuple):
    """How a tensor's values are stored: as `dtype` raw, or as `stored` in a field."""

    dtype: str
    field: str
    stored: str


_TYPES: dict[int, _Storage] = {
    ElementType.INT64: _Storage("<i8", "int64_data", "<i8"),
    ElementType.INT32: _Storage("<i4", "int32_data", "<i4"),
    ElementType.FLOAT: _Storage("<f4", "float_data", "<f4"),
    ElementType.DOUBLE: _Storage("<f8", "double_data", "<f8"),
    ElementType.FLOAT16: _Storage("<f2", "int32_data", "<u2"),
}


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain
