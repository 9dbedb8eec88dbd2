"""The messages and fields of onnx.proto (ONNX project) that finding splits needs."""
# ruff: noqa: RUF009 - the calls make dataclass fields

from dataclasses import dataclass
from typing import Any

from dmlsplit.messages import printable
from dmlsplit.models.limits import MAX_RANK, MAX_VALUES
from dmlsplit.models.onnx.reader import I32, I64, VARINT, LimitError, Span, repeated, single
from dmlsplit.models.site import Size

Shape = tuple[Size, ...]

# AttributeProto.AttributeType.
_INT = 2  # one integer
_INTS = 7  # a list of integers


def domain(name: str) -> str:
    """The domain of an operator; empty for the default one, which has two names."""
    return "" if name == "ai.onnx" else name


def _checked_shape(shape: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    """A shape of a value, whose rank is limited."""
    if len(shape) > MAX_RANK:
        raise LimitError(
            f"value {shown_name(name)!r} has the rank {len(shape)}; it must be at most {MAX_RANK}"
        )
    return shape


@dataclass(frozen=True, slots=True)
class Entry:
    """StringStringEntryProto."""

    key: str = single(1, str, "")
    value: str = single(2, str, "")


@dataclass(frozen=True, slots=True)
class Tensor:
    """TensorProto. Its values are unread: ranges of the model, or in an external file."""

    dims: tuple[int, ...] = repeated(1, int)
    data_type: int = single(2, int, 0)
    float_data: tuple[Span, ...] = repeated(4, Span, I32)
    int32_data: tuple[Span, ...] = repeated(5, Span, VARINT)
    int64_data: tuple[Span, ...] = repeated(7, Span, VARINT)
    name: str = single(8, str, "")
    raw_data: Span | None = single(9, Span)
    double_data: tuple[Span, ...] = repeated(10, Span, I64)
    external_data: tuple[Entry, ...] = repeated(13, Entry)
    data_location: int = single(14, int, 0)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes; a LimitError if there are too many."""
        return _checked_shape(self.dims, self.name)

    @property
    def location(self) -> str | None:
        """Path of the external file; None for a tensor in the model."""
        if not self.external_data and self.data_location != 1:
            return None
        return {entry.key: entry.value for entry in self.external_data}.get("location", "")


@dataclass(frozen=True, slots=True)
class SparseTensor:
    """SparseTensorProto."""

    values: Tensor = single(1, Tensor, Tensor())
    indices: Tensor = single(2, Tensor, Tensor())

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        """The tensors, each of which may be in an external file."""
        return self.values, self.indices


@dataclass(frozen=True, slots=True)
class Dimension:
    """TensorShapeProto.Dimension."""

    dim_value: int | None = single(1, int)
    dim_param: str = single(2, str, "")

    @property
    def size(self) -> Size:
        """The size, or the name of a dynamic one; None if it has none."""
        # -1 is some exporters' dynamic size.
        size = -1 if self.dim_value is None else self.dim_value
        return self.dim_param or (None if size < 0 else size)


@dataclass(frozen=True, slots=True)
class TensorShape:
    """TensorShapeProto."""

    dim: tuple[Dimension, ...] = repeated(1, Dimension)


@dataclass(frozen=True, slots=True)
class TensorType:
    """TypeProto.Tensor."""

    elem_type: int = single(1, int, 0)
    shape: TensorShape | None = single(2, TensorShape)


@dataclass(frozen=True, slots=True)
class Type:
    """TypeProto; only tensors are read."""

    tensor_type: TensorType | None = single(1, TensorType)


@dataclass(frozen=True, slots=True)
class ValueInfo:
    """ValueInfoProto: the declared type of a name."""

    name: str = single(1, str, "")
    type: Type = single(2, Type, Type())

    @property
    def data_type(self) -> int:
        """TensorProto.DataType; 0 if undeclared."""
        tensor = self.type.tensor_type
        return tensor.elem_type if tensor else 0

    @property
    def shape(self) -> Shape | None:
        """The shape; None for an unknown rank, and for values other than tensors."""
        tensor = self.type.tensor_type
        if tensor is None or tensor.shape is None:
            return None
        return _checked_shape(tuple(dim.size for dim in tensor.shape.dim), self.name)


@dataclass(frozen=True, slots=True)
class Attribute:
    """AttributeProto."""

    name: str = single(1, str, "")
    f: bytes = single(2, bytes, b"", I32)
    i: int | None = single(3, int)
    s: bytes = single(4, bytes, b"")
    t: Tensor | None = single(5, Tensor)
    g: Span | None = single(6, Span)
    floats: tuple[bytes, ...] = repeated(7, bytes, I32)
    ints: tuple[int, ...] = repeated(8, int)
    tensors: tuple[Tensor, ...] = repeated(10, Tensor)
    graphs: tuple[Span, ...] = repeated(11, Span)
    type: int = single(20, int, 0)
    ref_attr_name: str = single(21, str, "")
    sparse_tensor: SparseTensor | None = single(22, SparseTensor)
    sparse_tensors: tuple[SparseTensor, ...] = repeated(23, SparseTensor)

    @property
    def value(self) -> int | tuple[int, ...] | None:
        """The integer or integers; None for any other kind, or more than MAX_VALUES."""
        if len(self.ints) > MAX_VALUES:
            return None  # A table, such as a tree ensemble's; no split has that many outputs.
        if self.type == _INTS or (not self.type and self.ints):
            return self.ints
        if self.type == _INT or (not self.type and self.i is not None):
            return self.i or 0
        return None

    @property
    def bodies(self) -> tuple[Span, ...]:
        """The graphs in the attribute, the single one first."""
        return self.graphs if self.g is None else (self.g, *self.graphs)


@dataclass(frozen=True, slots=True)
class Node:
    """NodeProto."""

    input: tuple[str, ...] = repeated(1, str)
    output: tuple[str, ...] = repeated(2, str)
    name: str = single(3, str, "")
    op_type: str = single(4, str, "")
    attribute: tuple[Attribute, ...] = repeated(5, Attribute)
    domain: str = single(7, domain, "")
    overload: str = single(8, str, "")

    @property
    def attributes(self) -> dict[str, Attribute]:
        """The attributes by name."""
        return {attribute.name: attribute for attribute in self.attribute}

    @property
    def has_references(self) -> bool:
        """Whether it has attributes that the caller of its function gives."""
        return any(attribute.ref_attr_name for attribute in self.attribute)


@dataclass(frozen=True, slots=True)
class Opset:
    """OperatorSetIdProto."""

    domain: str = single(1, domain, "")
    version: int = single(2, int, 0)


@dataclass(frozen=True, slots=True)
class Graph:
    """GraphProto: the main graph or a nested body."""

    node: tuple[Span, ...] = repeated(1, Span)
    name: str = single(2, str, "")
    initializer: tuple[Tensor, ...] = repeated(5, Tensor)
    input: tuple[ValueInfo, ...] = repeated(11, ValueInfo)
    output: tuple[ValueInfo, ...] = repeated(12, ValueInfo)
    value_info: tuple[ValueInfo, ...] = repeated(13, ValueInfo)
    sparse_initializer: tuple[SparseTensor, ...] = repeated(15, SparseTensor)


@dataclass(frozen=True, slots=True)
class Function:
    """FunctionProto."""

    name: str = single(1, str, "")
    input: tuple[str, ...] = repeated(4, str)
    output: tuple[str, ...] = repeated(5, str)
    node: tuple[Span, ...] = repeated(7, Span)
    domain: str = single(10, domain, "")
    attribute_proto: tuple[Attribute, ...] = repeated(11, Attribute)
    value_info: tuple[ValueInfo, ...] = repeated(12, ValueInfo)
    overload: str = single(13, str, "")

    @property
    def key(self) -> tuple[str, str, str]:
        """The domain, operator and overload of a node that calls it."""
        return self.domain, self.name, self.overload


@dataclass(frozen=True, slots=True)
class Model:
    """ModelProto."""

    ir_version: int = single(1, int, 0)
    graph: tuple[Span, ...] = repeated(7, Span)
    opset_import: tuple[Opset, ...] = repeated(8, Opset)
    functions: tuple[Function, ...] = repeated(25, Function)


def shown_name(name: str) -> str:
    """A name from a file, safe to print, and shortened if it is long."""
    text = printable(name)
    return text if len(text) <= 200 else f"{text[:200]}..."
