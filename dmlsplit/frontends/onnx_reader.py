"""Reads an ONNX model's structure from its bytes, and leaves its weights where they are.

Only what finding splits needs is read; every other field is passed over. Big tensors are
never copied, external data is never opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

import numpy as np

from dmlsplit.frontends.onnx_operators import ElementType
from dmlsplit.frontends.onnx_proto import (
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
)
from dmlsplit.frontends.protobuf_wire import LEN, VARINT, Span, Wire, WireError, signed

MAXIMUM_NAME_BYTES = 16_384
MAXIMUM_VALUES = 65_536

_NAMES = {
    message: {number: name for name, number in numbers.items()}
    for message, numbers in FIELDS.items()
}


class _Part(NamedTuple):
    """A field with its name in the message, as text where it is one."""

    name: str
    wire_type: int
    value: int
    span: Span


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
        for part in self._parts("ModelProto", Span(0, len(self._wire.data))):
            if part.name == "graph" and part.wire_type == LEN:
                graphs.append(part.span)
            elif part.name == "opset_import" and part.wire_type == LEN:
                opsets.update([self._opset(part.span)])
            elif part.name == "functions" and part.wire_type == LEN:
                functions.append(part.span)
            elif part.name == "ir_version" and part.wire_type == VARINT:
                ir_version = part.value
        if len(graphs) != 1:
            raise WireError(f"it has {len(graphs)} graphs; a model has 1")
        return Model(ir_version, graphs[0], opsets, [self._function(span) for span in functions])

    def graph(self, span: Span) -> Graph:
        """Read a graph up to its nodes."""
        graph = Graph()
        for part in self._parts("GraphProto", span):
            if part.wire_type != LEN:
                continue
            if part.name == "node":
                graph.nodes.append(part.span)
            elif part.name == "name":
                graph.name = self._text(part.span)
            elif part.name == "initializer":
                graph.initializers.append(self.tensor(part.span))
            elif part.name == "input":
                graph.inputs.append(self._declared(part.span))
            else:
                graph.declared.append(self._declared(part.span))
        return graph

    def node(self, span: Span) -> Node:
        """Read a node with its attributes."""
        text = {"name": "", "op_type": "", "domain": "", "overload": ""}
        names: dict[str, list[str]] = {"input": [], "output": []}
        attributes = {}
        for part in self._parts("NodeProto", span):
            if part.wire_type != LEN:
                continue
            if part.name == "attribute":
                attribute = self._attribute(part.span)
                attributes[attribute.name] = attribute
            elif part.name in names:
                names[part.name].append(self._text(part.span))
            else:
                text[part.name] = self._text(part.span)
        return Node(
            text["name"],
            text["op_type"],
            _domain(text["domain"]),
            text["overload"],
            tuple(names["input"]),
            tuple(names["output"]),
            attributes,
        )

    def tensor(self, span: Span) -> Tensor:
        """Read a tensor's name, type and shape, and where its values are."""
        name, data_type, external, location = "", 0, False, ""
        dims: list[int] = []
        for part in self._parts("TensorProto", span):
            if part.name == "dims":
                dims += self._numbers(part, MAXIMUM_RANK)
                if len(dims) > MAXIMUM_RANK:
                    raise WireError(f"byte {span.start}: a tensor of rank above {MAXIMUM_RANK}")
            elif part.name == "data_type" and part.wire_type == VARINT:
                data_type = part.value
            elif part.name == "name" and part.wire_type == LEN:
                name = self._text(part.span)
            elif part.name == "external_data" and part.wire_type == LEN:
                key, value = self._entry(part.span)
                location = value if key == "location" else location
                external = True
            elif part.name == "data_location" and part.wire_type == VARINT:
                external = external or part.value == 1
        return Tensor(name, data_type, tuple(dims), location if external else None, span)

    def values(self, tensor: Tensor) -> np.ndarray:
        """Return the values of a small tensor of integers or floats.

        Raises
        ------
        WireError
            If it is external, too large, of another type, or its bytes do not fill its shape.
        """
        kind = _TYPES.get(tensor.data_type)
        count = prod(tensor.shape) if min(tensor.shape, default=0) >= 0 else -1
        if kind is None or tensor.location is not None:
            raise WireError(f"tensor {tensor.name!r} cannot be read as numbers")
        if not 0 <= count <= MAXIMUM_VALUES:
            raise WireError(
                f"tensor {tensor.name!r} has sizes {list(tensor.shape)}; at most "
                f"{MAXIMUM_VALUES} values are read"
            )
        found = self._stored(tensor, kind)
        if found.size != count:
            raise WireError(f"tensor {tensor.name!r} holds {found.size} of its {count} values")
        return found.reshape(tensor.shape)

    def _stored(self, tensor: Tensor, kind: _Storage) -> np.ndarray:
        dtype = np.dtype(kind.dtype)
        numbers: list[int] = []
        chunks: list[bytes] = []
        for part in self._parts("TensorProto", tensor.span):
            if part.name == "raw_data" and part.wire_type == LEN:
                raw = self._wire.copy(part.span, MAXIMUM_VALUES * dtype.itemsize)
                if len(raw) % dtype.itemsize:
                    raise WireError(f"tensor {tensor.name!r} holds {len(raw)} bytes")
                return np.frombuffer(raw, dtype)
            if part.name != kind.field:
                continue
            if kind.field in ("float_data", "double_data"):
                chunks.append(self._wire.copy(part.span, MAXIMUM_VALUES * dtype.itemsize))
            else:
                numbers += self._numbers(part, MAXIMUM_VALUES)
            if len(numbers) > MAXIMUM_VALUES or len(chunks) > MAXIMUM_VALUES:
                raise WireError(f"tensor {tensor.name!r} holds more than its values")
        if chunks:
            joined = b"".join(chunks)
            if len(joined) % dtype.itemsize:
                raise WireError(f"tensor {tensor.name!r} holds {len(joined)} bytes")
            return np.frombuffer(joined, dtype)
        narrow = np.array(numbers, np.int64).astype(kind.stored)
        return narrow.view(dtype)

    def _attribute(self, span: Span) -> Attribute:
        name, number, kind, reference = "", None, 0, ""
        numbers: list[int] = []
        tensor: Tensor | None = None
        graphs: list[Span] = []
        for part in self._parts("AttributeProto", span):
            if part.name == "name" and part.wire_type == LEN:
                name = self._text(part.span)
            elif part.name == "i" and part.wire_type == VARINT:
                number = signed(part.value)
            elif part.name == "ints":
                numbers += self._numbers(part, MAXIMUM_VALUES)
                if len(numbers) > MAXIMUM_VALUES:
                    # A table, such as a tree ensemble's; no split has so many pieces.
                    return Attribute(name, type=OVERSIZED)
            elif part.name == "t" and part.wire_type == LEN:
                tensor = self.tensor(part.span)
            elif part.name in ("g", "graphs") and part.wire_type == LEN:
                graphs.append(part.span)
            elif part.name == "type" and part.wire_type == VARINT:
                kind = part.value
            elif part.name == "ref_attr_name" and part.wire_type == LEN:
                reference = self._text(part.span)
        listed = tuple(numbers) if numbers else None
        return Attribute(name, number, listed, tensor, tuple(graphs), kind, reference)

    def _function(self, span: Span) -> Function:
        function = Function()
        for part in self._parts("FunctionProto", span):
            if part.wire_type != LEN:
                continue
            match part.name:
                case "name" | "domain" | "overload":
                    setattr(function, part.name, self._text(part.span))
                case "input":
                    function.inputs.append(self._text(part.span))
                case "output":
                    function.outputs.append(self._text(part.span))
                case "node":
                    function.nodes.append(part.span)
                case "opset_import":
                    function.opsets.update([self._opset(part.span)])
                case "attribute_proto":
                    attribute = self._attribute(part.span)
                    function.defaults[attribute.name] = attribute
                case "value_info":
                    function.declared.append(self._declared(part.span))
        function.domain = _domain(function.domain)
        return function

    def _declared(self, span: Span) -> Declared:
        name, data_type = "", 0
        shape: Shape | None = None
        for part in self._parts("ValueInfoProto", span):
            if part.name == "name" and part.wire_type == LEN:
                name = self._text(part.span)
            elif part.name == "type" and part.wire_type == LEN:
                for inner in self._parts("TypeProto", part.span):
                    if inner.wire_type == LEN:
                        data_type, shape = self._tensor_type(inner.span)
        return Declared(name, data_type, shape)

    def _tensor_type(self, span: Span) -> tuple[int, Shape | None]:
        data_type = 0
        shape: list[int | str] | None = None
        for part in self._parts("TypeProto.Tensor", span):
            if part.name == "elem_type" and part.wire_type == VARINT:
                data_type = part.value
            elif part.name == "shape" and part.wire_type == LEN:
                shape = []
                for dim in self._parts("TensorShapeProto", part.span):
                    if len(shape) == MAXIMUM_RANK:
                        raise WireError(f"byte {span.start}: a rank above {MAXIMUM_RANK}")
                    shape.append(self._dimension(dim.span) if dim.wire_type == LEN else "?")
        return data_type, None if shape is None else tuple(shape)

    def _dimension(self, span: Span) -> int | str:
        size: int | str = "?"
        for part in self._parts("TensorShapeProto.Dimension", span):
            if part.name == "dim_value" and part.wire_type == VARINT:
                # -1 is how some exporters write a dynamic size.
                size = "?" if signed(part.value) == -1 else signed(part.value)
            elif part.name == "dim_param" and part.wire_type == LEN:
                size = self._text(part.span) or "?"
        return size

    def _opset(self, span: Span) -> tuple[str, int]:
        domain, version = "", 0
        for part in self._parts("OperatorSetIdProto", span):
            if part.name == "domain" and part.wire_type == LEN:
                domain = self._text(part.span)
            elif part.name == "version" and part.wire_type == VARINT:
                version = signed(part.value)
        return _domain(domain), version

    def _entry(self, span: Span) -> tuple[str, str]:
        entry = {"key": "", "value": ""}
        for part in self._parts("StringStringEntryProto", span):
            if part.wire_type == LEN:
                entry[part.name] = self._text(part.span)
        return entry["key"], entry["value"]

    def _parts(self, message: str, span: Span) -> Iterator[_Part]:
        names = _NAMES[message]
        for number, wire_type, value, inside in self._wire.fields(span):
            name = names.get(number)
            if name is not None:
                yield _Part(name, wire_type, value, inside)

    def _numbers(self, part: _Part, most: int) -> list[int]:
        """Return the numbers of a repeated field, which may or may not be packed."""
        if part.wire_type == VARINT:
            return [signed(part.value)]
        if part.wire_type == LEN:
            return [signed(value) for value in self._wire.varints(part.span, most)]
        return []

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
