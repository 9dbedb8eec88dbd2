"""Reads an ONNX model's structure from its bytes, and leaves its weights where they are.

Only what `messages` declares is read; every other field is skipped. Large tensors are never
copied, external data is never opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from math import prod
from typing import Any, TypeVar

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
        name = shown_name(tensor.name)
        if tensor.data_type not in _STORAGE or tensor.location is not None:
            raise WireError(f"tensor {name!r} cannot be read as numbers")
        kind, field = _STORAGE[ElementType(tensor.data_type)]
        dtype = np.dtype(kind)
        count = prod(tensor.shape) if min(tensor.shape, default=0) >= 0 else -1
        if not 0 <= count <= MAXIMUM_VALUES:
            raise WireError(
                f"tensor {name!r} has sizes {list(tensor.shape)}; at most {MAXIMUM_VALUES} "
                "values are read"
            )
        stored = self._stored(tensor, field, dtype.itemsize)
        if len(stored) != count * dtype.itemsize:
            raise WireError(
                f"tensor {name!r} has {len(stored)} bytes; its {count} values take "
                f"{count * dtype.itemsize}"
            )
        return np.frombuffer(stored, dtype).reshape(tensor.shape)

    def _stored(self, tensor: Tensor, field: str, item_bytes: int) -> bytes:
        """Return a tensor's values as raw bytes, from `raw_data` or the field of its type."""
        most = MAXIMUM_VALUES * item_bytes
        values = self.read(TensorValues, tensor.span)
        if values.raw_data is not None:
            return self._wire.copy(values.raw_data, most)
        entries = getattr(values, field)
        if len(entries) > MAXIMUM_VALUES:
            raise WireError(f"byte {tensor.span.start}: more than {MAXIMUM_VALUES} values")
        if field in ("float_data", "double_data"):
            return b"".join(self._wire.copy(inside, most) for inside in entries)
        return np.array(entries, np.int64).astype(f"<i{item_bytes}").tobytes()


@cache
def _layout(message: type) -> dict[int, tuple[str, Encoding]]:
    """Return name and encoding of each declared field, by the key that it begins with."""
    return {
        field_key(encoding.number, wire_type): (each.name, encoding)
        for each in fields(message)
        if (encoding := each.metadata.get("encoding"))
        for wire_type in encoding.wire_types
    }


# Type and field of a tensor's values. The bits of a FLOAT16 are a number in int32_data.
_STORAGE = {
    ElementType.INT64: ("<i8", "int64_data"),
    ElementType.INT32: ("<i4", "int32_data"),
    ElementType.FLOAT: ("<f4", "float_data"),
    ElementType.DOUBLE: ("<f8", "double_data"),
    ElementType.FLOAT16: ("<f2", "int32_data"),
}
