"""Knowledge about the values of an ONNX graph: types, shapes, constants, and reasons for gaps.

Elements of small constants are read without NumPy, whose import would double the time of a scan.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, NamedTuple, TypeVar

from dmlsplit.checks import axis_from_front
from dmlsplit.models.limits import MAX_RANK, MAX_VALUES
from dmlsplit.models.onnx.operators import ElementType
from dmlsplit.models.onnx.protobuf import Attribute, Node, Shape, Tensor, shown_name
from dmlsplit.models.onnx.reader import LimitError, Reader, WireError
from dmlsplit.models.site import Cause, Size, UnknownSplitError

# An element of a constant: a number or, in a tensor of sizes, a dynamic size, which is its name, or
# None without one.
Item = int | float | str | None
# The elements of a value that does not depend on the inputs: in row-major order, or unread.
Constant = Tensor | tuple[Item, ...]
# Why a shape is unknown: the arguments of UnknownSplitError.
Gap = tuple[str, Cause]


class Piece(NamedTuple):
    """A piece of a split: the number of the split, and the index of the output."""

    split: int
    output: int
    # Whether the value that derives from the piece has passed an activation.
    is_activated: bool = False


Pieces = frozenset[Piece]


@dataclass(frozen=True, slots=True)
class Value:
    """What is known about a value: inferred facts, where it comes from, and what to say about it.

    Equal values make equal calls of a function, which is visited once for all of them. Fields that
    are not compared do not tell calls apart.
    """

    # TensorProto.DataType; 0 if it is unknown.
    data_type: int = 0
    # The sizes; None if the rank is unknown.
    shape: Shape | None = None
    # The elements; None if they are not constant, or not known.
    constant: Constant | None = None
    # Why the shape is unknown; None if it is known, or unknown only because of dynamic inputs.
    gap: Gap | None = None
    # The pieces of splits from which the value derives element by element.
    origins: Pieces = frozenset()
    # Whether ONNX Runtime computes the value when it loads the model.
    is_folded: bool = False
    # Whether the value is a shape, or computed from shapes. ONNX Runtime keeps these on the CPU.
    is_shape: bool = False
    # The operator that makes the value, if it counts as a neighbour of splits; otherwise empty.
    maker: str = field(default="", compare=False)
    # The number of the SplitToSequence that makes the value; None for other values.
    sequence: int | None = field(default=None, compare=False)
    # The dynamic sizes that the elements may follow from, as `dimension_name` calls them.
    sizes: frozenset[str] = field(default=frozenset(), compare=False)
    # The limit of dmlsplit that left the elements unknown; None if none did.
    limit: str | None = field(default=None, compare=False)
    # The warning about the declared shape of the value; None if it is not wrong.
    remark: str | None = field(default=None, compare=False)

    @property
    def element_type(self) -> ElementType | None:
        """The element type; None if it is unknown."""
        return ElementType(self.data_type) if self.data_type else None

    @property
    def is_static(self) -> bool:
        """Whether every size is known."""
        return self.shape is not None and all(isinstance(size, int) for size in self.shape)

    def gap_error(self, dynamic: str) -> UnknownSplitError:
        """The error for a size that is unknown because of the gap or, without one, dynamic."""
        return UnknownSplitError(*(self.gap or (dynamic, Cause.DYNAMIC)))

    def merged(self, declared: "Value") -> "Value":
        """The value, completed from the declared one, unless that has another shape."""
        if contradicts(declared.shape, self.shape):
            return self
        shape = declared.shape if self.shape is None else self.shape
        if shape is not None and declared.shape is not None:
            pairs = zip(shape, declared.shape, strict=True)
            shape = tuple(n if isinstance(n, int) or size is None else size for n, size in pairs)
        return replace(self, data_type=self.data_type or declared.data_type, shape=shape)

    def with_gap(self, inputs: Sequence["Value"], own_gap: Callable[[], Gap]) -> "Value":
        """The output of a node with the reason for its unknown shape: an input's, else its own."""
        if self.is_static or self.gap:
            return self
        gap = next((value.gap for value in inputs if value.gap), None)
        # This node lost the rank, or a size although it knew all of its inputs'.
        if gap is None and (self.shape is None or all(value.is_static for value in inputs)):
            gap = own_gap()
        return replace(self, gap=gap) if gap else self


UNKNOWN = Value()


def contradicts(declared: Shape | None, shape: Shape | None) -> bool:
    """Whether a declared shape has another rank, or another size where both are known."""
    if declared is None or shape is None:
        return False
    return len(declared) != len(shape) or any(
        isinstance(size, int) and isinstance(own, int) and size != own
        for size, own in zip(declared, shape, strict=True)
    )


_Number = TypeVar("_Number", int, tuple[int, ...])


def agreement(left: Value, right: Value) -> Value:
    """The common knowledge about two values: what both agree on."""
    shape = None
    if left.shape is not None and right.shape is not None and len(left.shape) == len(right.shape):
        pairs = zip(left.shape, right.shape, strict=True)
        shape = tuple(size if size == also else None for size, also in pairs)
    data_type = left.data_type if left.data_type == right.data_type else 0
    return Value(data_type, shape, gap=left.gap or right.gap)


class InferenceContext(NamedTuple):
    """A node and what is known about its inputs. ONNX's C++ API has a class of this name.

    Its methods raise ValueError or IndexError if something is missing.
    """

    node: Node
    inputs: Sequence[Value]
    reader: Reader

    def shape(self, index: int) -> Shape:
        """The shape of an input."""
        shape = self.inputs[index].shape
        if shape is None:
            raise ValueError(f"the rank of input {index} is not known")
        return shape

    @property
    def shapes(self) -> list[Shape]:
        """The shapes of all inputs."""
        return [self.shape(index) for index in range(len(self.inputs))]

    @property
    def shape_axes(self) -> range:
        """The axes whose sizes Shape outputs."""
        axes = range(len(self.shape(0)))
        return axes[self.int_attribute("start", 0) : self.int_attribute("end", MAX_RANK)]

    @property
    def shape_part(self) -> Shape:
        """The output of Shape."""
        axes = self.shape_axes
        return self.shape(0)[axes.start : axes.stop]

    def text(self, name: str) -> str:
        """A string attribute; empty without one."""
        return self.node.attributes.get(name, Attribute()).s.decode("utf-8", "replace")

    def floats(self, name: str) -> tuple[float, ...]:
        """An attribute of one float, or of as many as a shape may have sizes."""
        attribute = self.node.attributes.get(name, Attribute())
        stored = attribute.f or b"".join(attribute.floats)
        if len(stored) > 4 * MAX_RANK:
            count = len(stored) // 4
            raise ValueError(f"attribute {name} has {count} floats; at most {MAX_RANK} are read")
        return struct.unpack(f"<{len(stored) // 4}f", stored)

    def int_attribute(self, name: str, default: _Number) -> _Number:
        """An attribute of the type of its default, an integer or a tuple of integers."""
        value = self.node.attributes.get(name, Attribute()).value
        return value if isinstance(value, type(default)) else default

    def items(self, index: int) -> tuple[Item, ...]:
        """The elements of an input, a constant."""
        constant = self.inputs[index].constant
        if constant is None:
            raise ValueError(f"input {index} is not a constant")
        return elements(self.reader, constant)

    def sizes(self, name: str, index: int = 1) -> Shape:
        """Sizes from an attribute (old opsets) or an input (new ones)."""
        if name in self.node.attributes:
            return self.int_attribute(name, ())
        count = self.shape(index)
        if self.inputs[index].constant is None and len(count) == 1 and isinstance(count[0], int):
            return (None,) * min(count[0], MAX_RANK + 1)
        items = self.items(index)
        sizes = tuple(size for size in items if not isinstance(size, float))
        if len(sizes) < len(items):
            raise ValueError(f"input {index} has floats; sizes are integers")
        return sizes

    def size(self, name: str, index: int = 1) -> Size:
        """The only entry of `sizes`; None if it is not a constant."""
        try:
            (size,) = self.sizes(name, index)
        except (ValueError, IndexError):
            return None
        return size

    def integers(self, name: str, index: int = 1) -> tuple[int, ...]:
        """The entries of attribute `name` or, without it, of input `index`.

        It is a ValueError if one of them is dynamic.
        """
        sizes = self.sizes(name, index)
        numbers = tuple(size for size in sizes if isinstance(size, int))
        if len(numbers) < len(sizes):
            raise ValueError(f"attribute {name!r} or input {index} has an entry that is not known")
        return numbers

    def has_axes(self, index: int) -> bool:
        """Whether the node has axes, as an attribute or that input."""
        return any(self.node.input[index : index + 1]) or "axes" in self.node.attributes

    def axes(self, index: int, default: Iterable[int]) -> list[int]:
        """The node's axes, or else the default ones, counted from the front."""
        axes = self.integers("axes", index) if self.has_axes(index) else default
        return [axis_from_front(axis, len(self.shape(0))) for axis in axes]

    def slices(self) -> Iterator[tuple[int, slice]]:
        """The axes that a Slice cuts, counted from the front, with their slices."""
        starts = self.integers("starts")
        ends = self.integers("ends", 2)
        axes = self.axes(3, range(len(starts)))
        steps = self.integers("steps", 4) if any(self.node.input[4:5]) else [1] * len(starts)
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            yield axis, slice(start, end, step)


def elements(reader: Reader, constant: Constant) -> tuple[Any, ...]:
    """The elements of a small constant of integers, truths or floats.

    It is a WireError if it is external, too large, of another type, or does not fill its shape.
    """
    if not isinstance(constant, Tensor):
        return constant
    name = shown_name(constant.name)
    if constant.data_type not in _STORAGE or constant.location is not None:
        is_external = constant.location is not None
        type_text = f"has type {constant.data_type} of TensorProto.DataType"
        problem = "is in external data" if is_external else type_text
        raise WireError(
            f"tensor {name!r} {problem}; it must have integers, truths or floats in the model"
        )
    code, field = _STORAGE[ElementType(constant.data_type)]
    width = struct.calcsize(code)
    if min(constant.shape, default=0) < 0:
        raise WireError(f"tensor {name!r} has sizes {list(constant.shape)}; none may be negative")
    count = prod(constant.shape)
    if count > MAX_VALUES:
        raise LimitError(
            f"tensor {name!r} has sizes {list(constant.shape)}; at most {MAX_VALUES:,} values are "
            "read"
        )
    stored = _stored(reader, constant, field, width)
    if len(stored) != count * width:
        raise WireError(
            f"tensor {name!r} has byte length {len(stored)}; its sizes {list(constant.shape)} need "
            f"{count * width}"
        )
    return struct.unpack(f"<{count}{code}", stored)


def _stored(reader: Reader, tensor: Tensor, field: str, width: int) -> bytes:
    """The bytes of a tensor's elements, little-endian."""
    limit = MAX_VALUES * width
    if tensor.raw_data is not None:
        return reader.copy(tensor.raw_data, limit)
    spans = getattr(tensor, field)
    if field in ("float_data", "double_data"):
        return b"".join(reader.copy(span, limit) for span in spans)
    numbers: list[int] = []
    for span in spans:
        reader.add_numbers(numbers, span)
    return b"".join((number % (1 << 8 * width)).to_bytes(width, "little") for number in numbers)


# The format of `struct` for an element, and the field of a tensor that has the elements if raw_data
# has not. The bits of a FLOAT16 are a number in int32_data.
_STORAGE = {
    ElementType.INT64: ("q", "int64_data"),
    ElementType.INT32: ("i", "int32_data"),
    ElementType.FLOAT: ("f", "float_data"),
    ElementType.DOUBLE: ("d", "double_data"),
    ElementType.FLOAT16: ("e", "int32_data"),
    ElementType.BOOL: ("?", "int32_data"),
}
