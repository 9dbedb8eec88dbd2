"""The binding table: which memory stands for which tensor, and whether it may.

An array stands for its own whole buffer: shape, data type, strides and overlap are
checked. A `BufferBinding` is raw memory, held to every rule of DML_BUFFER_BINDING.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dmlsplit.arrays import ArrayView, view
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.rules import Violation, report, violation
from dmlsplit.split import SplitOperatorDesc
from dmlsplit.tensor import MINIMUM_BUFFER_TENSOR_ALIGNMENT, TensorDataType, TensorDesc, integer

NUMPY_TYPES = {
    TensorDataType.FLOAT32: "f4",
    TensorDataType.FLOAT16: "f2",
    TensorDataType.FLOAT64: "f8",
    TensorDataType.UINT8: "u1",
    TensorDataType.UINT16: "u2",
    TensorDataType.UINT32: "u4",
    TensorDataType.UINT64: "u8",
    TensorDataType.INT8: "i1",
    TensorDataType.INT16: "i2",
    TensorDataType.INT32: "i4",
    TensorDataType.INT64: "i8",
}

_NATIVE = "<" if sys.byteorder == "little" else ">"


@dataclass(frozen=True, slots=True, eq=False)
class BufferBinding:
    """DML_BUFFER_BINDING: a range of a buffer.

    Parameters
    ----------
    buffer
        A contiguous array of any type; its bytes are the buffer.
    offset
        Bytes from the start of the buffer; a multiple of 16.
    size_in_bytes
        Bytes of the range; None means up to the end of the buffer.
    """

    buffer: Any  # Buffer
    offset: int = 0  # Offset
    size_in_bytes: int | None = None  # SizeInBytes

    def __post_init__(self) -> None:
        integer("offset", self.offset)
        if self.size_in_bytes is not None:
            integer("size_in_bytes", self.size_in_bytes)


@dataclass(frozen=True, slots=True)
class BoundTensor:
    """One checked entry of the table.

    Attributes
    ----------
    owner : object
        Keeps the memory alive.
    address : int
        Of the tensor's first element.
    area : tuple of int
        First byte of the tensor's area, and the one behind its last.
    """

    owner: Any
    address: int
    area: tuple[int, int]


def bind_tensors(
    desc: SplitOperatorDesc, source: Any, targets: Sequence[Any], device: str
) -> tuple[BoundTensor, tuple[BoundTensor, ...]]:
    """Check the binding table of an operator and return its entries: input, outputs.

    Raises
    ------
    InvalidArgumentError
        With a report of every broken rule. Nothing has been written.
    """
    if not isinstance(targets, (list, tuple)):
        raise InvalidArgumentError(
            f"outputs is a {type(targets).__name__}; it must be a list with one array per output"
        )
    found: list[Violation] = []
    if len(targets) != desc.output_count:
        found.append(
            violation("DML-BIND-COUNT", "Outputs", "BindingCount", len(targets), desc.output_count)
        )
    bound_input = _bind("InputTensor", desc.input_tensor, source, device, found)
    bound = [
        _bind(f"OutputTensors[{index}]", tensor, target, device, found, writes=True)
        for index, (tensor, target) in enumerate(zip(desc.output_tensors, targets, strict=False))
    ]
    found += _overlaps(bound_input, bound)
    if found:
        refused = report(f"binding of {desc}", None, found)
        raise InvalidArgumentError(str(refused), refused)
    assert bound_input is not None
    return bound_input, tuple(entry for entry in bound if entry is not None)


def _bind(
    name: str,
    tensor: TensorDesc,
    target: Any,
    device: str,
    found: list[Violation],
    writes: bool = False,
) -> BoundTensor | None:
    is_buffer = isinstance(target, BufferBinding)
    try:
        array = view(target.buffer if is_buffer else target, name)
    except InvalidArgumentError as error:
        found.append(violation("DML-BIND-KIND", name, "", str(error), f"an array on {device}"))
        return None
    found += _anywhere(name, array, device, writes)
    if is_buffer:
        found += _buffer(name, tensor, target, array)
        address = array.address + target.offset
        area = (address, address + tensor.total_tensor_size_in_bytes)
    else:
        found += _array(name, tensor, array)
        address, area = array.address, array.span
    return BoundTensor(array.owner, address, area)


def _anywhere(name: str, array: ArrayView, device: str, writes: bool) -> Iterator[Violation]:
    if array.device != device:
        yield violation("DML-BIND-KIND", name, "", f"an array on {array.device}", f"on {device}")
    if writes and array.read_only:
        yield violation("DML-BIND-READ-ONLY", name, "", "read-only", "writable")


def _buffer(
    name: str, tensor: TensorDesc, binding: BufferBinding, array: ArrayView
) -> Iterator[Violation]:
    if not array.is_contiguous:
        yield violation("DML-BIND-KIND", name, "Buffer", "a strided array", "a contiguous array")
    low, high = array.span
    rest = max(0, high - low - binding.offset)
    size = rest if binding.size_in_bytes is None else binding.size_in_bytes
    if binding.offset % MINIMUM_BUFFER_TENSOR_ALIGNMENT:
        allowed = f"a multiple of {MINIMUM_BUFFER_TENSOR_ALIGNMENT}"
        yield violation("DML-BIND-OFFSET-ALIGNMENT", name, "Offset", binding.offset, allowed)
    guaranteed = tensor.guaranteed_base_offset_alignment
    if guaranteed and binding.offset % guaranteed:
        allowed = f"a multiple of {guaranteed}"
        yield violation("DML-BIND-GUARANTEED-ALIGNMENT", name, "Offset", binding.offset, allowed)
    if binding.offset < 0 or size > rest:
        found = f"bytes {binding.offset} to {binding.offset + size}"
        allowed = f"inside the buffer's {high - low} bytes"
        yield violation("DML-BIND-RANGE", name, "SizeInBytes", found, allowed)
    total = tensor.total_tensor_size_in_bytes
    if size < total:
        yield violation("DML-BIND-SIZE", name, "SizeInBytes", size, f"at least {total}")


def _array(name: str, tensor: TensorDesc, array: ArrayView) -> Iterator[Violation]:
    wanted = NUMPY_TYPES[tensor.data_type]
    native = "|" if tensor.element_bytes == 1 else _NATIVE
    if array.type != native + wanted:
        allowed = f"{native}{wanted} ({tensor.data_type.name})"
        yield violation("DML-ARRAY-DATA-TYPE", name, "DataType", array.type, allowed)
    if array.shape != tensor.sizes:
        yield violation("DML-ARRAY-SHAPE", name, "Sizes", list(array.shape), list(tensor.sizes))
        return
    strides = tuple(step * tensor.element_bytes for step in tensor.effective_strides)
    rows = zip(tensor.sizes, array.strides, strides, strict=True)
    if any(size > 1 and step != expected for size, step, expected in rows):
        found = f"{list(array.strides)} bytes"
        yield violation("DML-ARRAY-STRIDES", name, "Strides", found, f"{list(strides)} bytes")


def _overlaps(
    source: BoundTensor | None, targets: Sequence[BoundTensor | None]
) -> Iterator[Violation]:
    areas = sorted(
        (entry.area, f"OutputTensors[{index}]") for index, entry in enumerate(targets) if entry
    )
    reached, holder = 0, ""
    for (low, high), name in areas:
        if low < reached:
            allowed = f"apart from {holder}"
            yield violation("DML-BIND-OUTPUT-OVERLAP", name, "", f"overlapping {holder}", allowed)
        if high > reached:
            reached, holder = high, name
        if source and low < source.area[1] and source.area[0] < high:
            found = "overlapping the input"
            yield violation("DML-BIND-IN-PLACE", name, "", found, "apart from the input")
