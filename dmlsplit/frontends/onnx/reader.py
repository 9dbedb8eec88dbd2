"""Reads an ONNX model's structure from its bytes, and leaves its weights where they are.

Only what `messages` declares is read; every other field is skipped. Large tensors are never
copied, external data is never opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from math import prod
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dmlsplit.frontends.onnx.messages import (
    MAXIMUM_VALUES,
    NODES,
    Encoding,
    Function,
    Graph,
    Located,
    Model,
    Node,
    Tensor,
    TensorValues,
    shown_name,
)
from dmlsplit.frontends.onnx.operators import ElementType
from dmlsplit.frontends.onnx.wire import LEN, Span, Wire, WireError, field_key, signed

MAXIMUM_NAME_BYTES = 16_384

Message = TypeVar("Message")


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
        model = self.read(Model, Span(0, len(self._wire.data)))
        if len(model.graph) != 1:
            raise WireError(f"it has {len(model.graph)} graphs; a model has 1")
        return model

    def nodes(self, body: Graph | Function) -> Iterator[Node]:
        """Read the nodes of a graph or a function, one by one."""
        key = field_key(NODES[type(body)], LEN)
        for _, _, _, inside in self._wire.fields(body.span, {key: "node"}):
            yield self.read(Node, inside)

    def read(self, message: type[Message], span: Span) -> Message:
        """Read the fields that a message declares."""
        found: dict[str, Any] = {}
        layout = _layout(message)  # type: ignore[arg-type]
        for (name, encoding), wire_type, value, inside in self._wire.fields(span, layout):
            if not encoding.repeated:
                found[name] = self._value(encoding.kind, value, inside)
                continue
            entries = found.setdefault(name, [])
            left = encoding.most + 1 - len(entries)
            if encoding.kind is int and wire_type == LEN:
                entries += map(signed, self._wire.varints(inside, left))
            elif left:
                entries.append(self._value(encoding.kind, value, inside))
        if issubclass(message, Located):
            found["span"] = span
        return message(**{k: tuple(v) if isinstance(v, list) else v for k, v in found.items()})

    def _value(self, kind: Callable[..., Any], value: int, inside: Span) -> Any:
        if kind is int:
            return signed(value)
        if kind is Span:
            return inside
        if is_dataclass(kind):
            return self.read(kind, inside)
        text = self._wire.copy(inside, MAXIMUM_NAME_BYTES)
        return kind(text.decode("utf-8", "backslashreplace"))

    def values(self, tensor: Tensor) -> np.ndarray:
        """Return the values of a small tensor of integers or floats.

        Raises
        ------
        WireError
            If it is external, too large, of another type, or its bytes do not fill its shape.
        """
        name, kind = shown_name(tensor.name), _STORAGE.get(tensor.data_type)
        if kind is None or tensor.location is not None:
            raise WireError(f"tensor {name!r} cannot be read as numbers")
        count = prod(tensor.dims) if min(tensor.dims, default=0) >= 0 else -1
        if not 0 <= count <= MAXIMUM_VALUES:
            raise WireError(
                f"tensor {name!r} has sizes {list(tensor.dims)}; at most {MAXIMUM_VALUES} "
                "values are read"
            )
        stored = self._stored(tensor, kind)
        if len(stored) != count * np.dtype(kind.dtype).itemsize:
            raise WireError(
                f"tensor {name!r} holds {len(stored)} bytes, which are not its {count} values"
            )
        return np.frombuffer(stored, kind.dtype).reshape(tensor.dims)

    def _stored(self, tensor: Tensor, kind: _Storage) -> bytes:
        """Return a tensor's values as raw bytes, whichever field they are in."""
        most = MAXIMUM_VALUES * np.dtype(kind.dtype).itemsize
        values = self.read(TensorValues, tensor.span)
        if values.raw_data is not None:
            return self._wire.copy(values.raw_data, most)
        entries = getattr(values, kind.field)
        if len(entries) > MAXIMUM_VALUES:
            raise WireError(f"byte {tensor.span.start}: more than {MAXIMUM_VALUES} values")
        if kind.field in ("float_data", "double_data"):
            return b"".join(self._wire.copy(inside, most) for inside in entries)
        return np.array(entries, np.int64).astype(kind.stored).tobytes()


@cache
def _layout(message: type) -> dict[int, tuple[str, Encoding]]:
    """Return name and encoding of each declared field, by the key that it begins with."""
    declared = [(f.name, f.metadata["encoding"]) for f in fields(message) if f.metadata]
    return {
        field_key(encoding.number, wire_type): (name, encoding)
        for name, encoding in declared
        for wire_type in encoding.wire_types
    }


class _Storage(NamedTuple):
    """How a tensor's values are stored: as `dtype` raw, or as `stored` in a field."""

    dtype: str
    field: str
    stored: str


_STORAGE: dict[int, _Storage] = {
    ElementType.INT64: _Storage("<i8", "int64_data", "<i8"),
    ElementType.INT32: _Storage("<i4", "int32_data", "<i4"),
    ElementType.FLOAT: _Storage("<f4", "float_data", "<f4"),
    ElementType.DOUBLE: _Storage("<f8", "double_data", "<f8"),
    ElementType.FLOAT16: _Storage("<f2", "int32_data", "<u2"),
}
