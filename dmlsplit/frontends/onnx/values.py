"""Knowledge about the values of an ONNX graph: types, shapes, elements, and reasons for gaps.

Elements are read from the model only; external data is never opened.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple, TypeVar

import numpy as np

from dmlsplit.checks import axis_from_front
from dmlsplit.frontends.onnx.messages import (
    MAXIMUM_VALUES,
    Attribute,
    Node,
    Shape,
    Tensor,
    TensorValues,
    shown_name,
)
from dmlsplit.frontends.onnx.operators import ElementType
from dmlsplit.frontends.onnx.reader import Reader, WireError
from dmlsplit.frontends.site import Cause, NotKnownError

# Elements of a value that does not depend on the inputs, or their tensor.
Constant = Tensor | tuple[int, ...] | int
# Why a shape is unknown: the arguments of NotKnownError.
Gap = tuple[str, Cause]
# Numbers of splits, each with an output of it.
Pieces = frozenset[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Value:
    """What is known about a value."""

    data_type: int = 0  # TensorProto.DataType; 0 if unknown
    shape: Shape | None = None  # None if the rank is unknown
    constant: Constant | None = None  # None if the elements are not constant
    gap: Gap | None = None  # None if its shape is known, or derives from dynamic inputs
    pieces: Pieces = frozenset()  # it derives from these element by element
    source: str = ""  # name of the model's input that it is, or derives from

    @property
    def element_type(self) -> ElementType | None:
        """The element type; None if it is unknown."""
        return ElementType(self.data_type) if self.data_type else None

    @property
    def is_static(self) -> bool:
        """Whether every size is known."""
        return self.shape is not None and all(isinstance(size, int) for size in self.shape)

    def gap_error(self, dynamic: str) -> NotKnownError:
        """The error for a size that is unknown because of the gap or, without one, dynamic."""
        return NotKnownError(*(self.gap or (dynamic, Cause.DYNAMIC)))


UNKNOWN = Value()
_Number = TypeVar("_Number", int, tuple[int, ...])


def merged(found: Value, declared: Value | None) -> Value:
    """An inferred value, completed from the declared one."""
    if declared is None:
        return found
    shape = found.shape
    if shape is None:
        shape = declared.shape
    elif declared.shape is not None and len(declared.shape) == len(shape):
        pairs = zip(shape, declared.shape, strict=True)
        shape = tuple(
            one if isinstance(one, int) or other == "?" else other for one, other in pairs
        )
    return replace(found, data_type=found.data_type or declared.data_type, shape=shape)


def contradict(found: Value, declared: Value | None) -> bool:
    """Whether the declared shape contradicts the inferred one."""
    if declared is None or found.shape is None or declared.shape is None:
        return False
    pairs = zip(found.shape, declared.shape, strict=False)
    sizes = (pair for pair in pairs if all(isinstance(size, int) for size in pair))
    return len(found.shape) != len(declared.shape) or any(one != other for one, other in sizes)


def traced(found: Value, inputs: Sequence[Value], here: Callable[[], Gap]) -> Value:
    """An output of a node with the reason for its unknown shape: an input's, else `here()`."""
    if found.is_static or found.gap:
        return found
    before = next((value.gap for value in inputs if value.gap), None)
    # This node lost the rank, or a size although it knew all of its inputs'.
    if before is None and (found.shape is None or all(value.is_static for value in inputs)):
        before = here()
    return replace(found, gap=before) if before else found


class Call(NamedTuple):
    """A node and its inputs. Its methods raise ValueError or IndexError if something is missing."""

    node: Node
    inputs: Sequence[Value]
    reader: Reader

    def shape(self, at: int) -> Shape:
        """The shape of an input."""
        shape = self.inputs[at].shape
        if shape is None:
            raise ValueError("unknown rank")
        return shape

    @property
    def shapes(self) -> list[Shape]:
        """The shapes of all inputs."""
        return [self.shape(at) for at in range(len(self.inputs))]

    def number(self, name: str, default: _Number) -> _Number:
        """An attribute of the type of its default, an integer or a tuple of integers."""
        value = self.node.attributes.get(name, Attribute()).value
        return value if isinstance(value, type(default)) else default

    def integers(self, name: str, at: int = 1) -> Sequence[int]:
        """Integers from an attribute (old opsets) or an input (new ones)."""
        if name in self.node.attributes:
            return self.number(name, ())
        return [int(value) for value in self.elements(at).reshape(-1)]

    def elements(self, at: int) -> np.ndarray:
        """The elements of an input, a constant of integers."""
        constant = self.inputs[at].constant
        values = None if constant is None else elements(self.reader, constant)
        if values is None or values.dtype.kind != "i":
            raise ValueError("no constant integers")
        return values

    def axes(self, at: int, default: Iterable[int]) -> list[int]:
        """The node's axes, or else the default ones, counted from the front."""
        given = len(self.inputs) > at or "axes" in self.node.attributes
        rank = len(self.shape(0))
        return [axis_from_front(n, rank) for n in (self.integers("axes", at) if given else default)]

    def slices(self) -> Iterator[tuple[int, slice]]:
        """The axes that a Slice cuts, counted from the front, with their slices."""
        starts, ends = self.integers("starts"), self.integers("ends", 2)
        axes = self.axes(3, range(len(starts)))
        steps = self.integers("steps", 4) if len(self.inputs) > 4 else [1] * len(starts)
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            yield axis, slice(start, end, step)


def elements(reader: Reader, constant: Constant) -> np.ndarray:
    """The elements of a small constant of integers or floats.

    It is a WireError if it is external, too large, of another type, or does not fill its shape.
    """
    if not isinstance(constant, Tensor):
        return np.array(constant, np.int64)
    name = shown_name(constant.name)
    if constant.data_type not in _STORAGE or constant.location is not None:
        raise WireError(f"tensor {name!r} cannot be read as numbers")
    kind, field = _STORAGE[ElementType(constant.data_type)]
    dtype = np.dtype(kind)
    count = prod(constant.shape) if min(constant.shape, default=0) >= 0 else -1
    if not 0 <= count <= MAXIMUM_VALUES:
        raise WireError(
            f"tensor {name!r} has sizes {list(constant.shape)}; at most {MAXIMUM_VALUES} "
            "values are read"
        )
    stored = _stored(reader, constant, field, dtype.itemsize)
    if len(stored) != count * dtype.itemsize:
        raise WireError(
            f"tensor {name!r} has byte length {len(stored)}; its sizes {list(constant.shape)} need "
            f"{count * dtype.itemsize}"
        )
    return np.frombuffer(stored, dtype).reshape(constant.shape)


def _stored(reader: Reader, tensor: Tensor, field: str, item_bytes: int) -> bytes:
    most = MAXIMUM_VALUES * item_bytes
    values = reader.read(TensorValues, tensor.span)
    if values.raw_data is not None:
        return reader.copy(values.raw_data, most)
    entries = getattr(values, field)
    if len(entries) > MAXIMUM_VALUES:
        raise WireError(f"byte {tensor.span.start}: more than {MAXIMUM_VALUES} values")
    if field in ("float_data", "double_data"):
        return b"".join(reader.copy(inside, most) for inside in entries)
    return np.array(entries, np.int64).astype(f"<i{item_bytes}").tobytes()


# Type and field of a tensor's values. The bits of a FLOAT16 are a number in int32_data.
_STORAGE = {
    ElementType.INT64: ("<i8", "int64_data"),
    ElementType.INT32: ("<i4", "int32_data"),
    ElementType.FLOAT: ("<f4", "float_data"),
    ElementType.DOUBLE: ("<f8", "double_data"),
    ElementType.FLOAT16: ("<f2", "int32_data"),
}


def met(inputs: Sequence[Pieces]) -> set[int]:
    """The splits whose pieces arrive at different inputs, as in GLU.

    DirectML miscomputes some fused graphs of this form; see the rule SPLIT-DEFECT-MEET.
    """
    # Pieces of one split in the same input have met before.
    first: dict[int, int] = {}
    return {split for pieces in inputs for split, at in pieces if first.setdefault(split, at) != at}
