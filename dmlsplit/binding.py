"""The binding table: which memory each tensor of an operator uses, and whether it may.

An array is bound as a whole buffer: its shape, data type, strides and overlap are checked.
A `BufferBinding` is raw memory, which every rule of DML_BUFFER_BINDING applies to.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dmlsplit.arrays import ArrayView, view
from dmlsplit.arrays.types import Array
from dmlsplit.checks import integer
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules import Broken, Violation, report, violations_of
from dmlsplit.directml.tensor import MINIMUM_BUFFER_TENSOR_ALIGNMENT, TensorDesc
from dmlsplit.errors import InvalidArgumentError

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

    buffer: Array  # Buffer
    offset: int = 0  # Offset
    size_in_bytes: int | None = None  # SizeInBytes

    def __post_init__(self) -> None:
        integer("offset", self.offset)
        if self.size_in_bytes is not None:
            integer("size_in_bytes", self.size_in_bytes)


class BoundTensor(NamedTuple):
    """One checked entry of the table. A tuple, because one is made at every call."""

    owner: Any  # keeps the memory alive
    address: int  # of the tensor's first element
    area: tuple[int, int]  # first byte of the tensor's memory, and the one after its last


@dataclass(frozen=True, slots=True)
class _Expected:
    """What an array must be to be bound as a tensor."""

    name: str
    tensor: TensorDesc
    # Strides in bytes, sizes and NumPy's type string. The usual array is exactly this, which
    # one comparison tells; only then is it asked what differs and whether that matters.
    layout: tuple[tuple[int, ...], tuple[int, ...], str]
    reach: int  # bytes from the first element to the end of the last

    @classmethod
    def of(cls, name: str, tensor: TensorDesc) -> _Expected:
        width = tensor.element_bytes
        kind = ("|" if width == 1 else _NATIVE) + tensor.data_type.numpy_name
        strides = tuple(step * width for step in tensor.effective_strides)
        reach = (tensor.last_element_index + 1) * width
        return cls(name, tensor, (strides, tensor.sizes, kind), reach)


class BindingTable:
    """What an operator on a device, ``cpu`` or ``cuda:N``, expects of its bindings."""

    def __init__(self, desc: SplitOperatorDesc, device: str) -> None:
        self.desc = desc
        self.device = device
        self._input = _Expected.of("InputTensor", desc.input_tensor)
        self._outputs = [
            _Expected.of(f"OutputTensors[{index}]", tensor)
            for index, tensor in enumerate(desc.output_tensors)
        ]

    def bind(self, source: Any, outputs: Sequence[Any]) -> tuple[BoundTensor, list[BoundTensor]]:
        """Check what is bound and return the entries: input, outputs.

        Raises
        ------
        InvalidArgumentError
            With a report of every broken rule. Nothing has been written.
        """
        if not isinstance(outputs, (list, tuple)):
            raise InvalidArgumentError(
                f"outputs is a {type(outputs).__name__}; it must be a list with one array per "
                "output"
            )
        found: list[Violation] = []
        given, count = len(outputs), len(self._outputs)
        if given != count:
            found += violations_of("Outputs", [("DML-BIND-COUNT", "BindingCount", given, count)])
        bound_input = _bind(self._input, source, self.device, found)
        pairs = zip(self._outputs, outputs, strict=False)
        bound = [_bind(expected, array, self.device, found, True) for expected, array in pairs]
        for index, broken in _overlaps(bound_input, bound):
            found += violations_of(f"OutputTensors[{index}]", [broken])
        if found:
            refused = report(f"binding of {self.desc}", None, found)
            raise InvalidArgumentError(str(refused), refused)
        assert bound_input is not None
        return bound_input, [entry for entry in bound if entry is not None]


def _bind(
    expected: _Expected, given: Any, device: str, found: list[Violation], is_output: bool = False
) -> BoundTensor | None:
    """Return the entry of one tensor, None if it has no memory, and add to what was found."""
    is_buffer = isinstance(given, BufferBinding)
    try:
        array = view(given.buffer if is_buffer else given, expected.name)
    except InvalidArgumentError as error:
        unseen = ("DML-BIND-KIND", "", str(error), f"an array on {device}")
        found += violations_of(expected.name, [unseen])
        return None
    broken: list[Broken] = []
    if array.device != device:
        broken.append(("DML-BIND-KIND", "", f"an array on {array.device}", f"on {device}"))
    if is_output and array.read_only:
        broken.append(("DML-BIND-READ-ONLY", "", "read-only", "writable"))
    if is_buffer:
        broken += _buffer(expected.tensor, given, array)
        address = array.address + given.offset
        area = (address, address + expected.tensor.total_tensor_size_in_bytes)
    elif (array.strides, array.shape, array.type) == expected.layout:
        address = array.address
        area = (address, address + expected.reach)
    else:
        broken += _array(expected, array)
        address, area = array.address, array.span
    if broken:
        found += violations_of(expected.name, broken)
    return BoundTensor(array.owner, address, area)


def _buffer(tensor: TensorDesc, binding: BufferBinding, array: ArrayView) -> Iterator[Broken]:
    offset, total = binding.offset, tensor.total_tensor_size_in_bytes
    low, high = array.span
    rest = max(0, high - low - offset)
    size = rest if binding.size_in_bytes is None else binding.size_in_bytes
    guaranteed = tensor.guaranteed_base_offset_alignment
    if not array.is_contiguous:
        yield "DML-BIND-KIND", "Buffer", "a strided array", "a contiguous array"
    if offset % MINIMUM_BUFFER_TENSOR_ALIGNMENT:
        allowed = f"a multiple of {MINIMUM_BUFFER_TENSOR_ALIGNMENT}"
        yield "DML-BIND-OFFSET-ALIGNMENT", "Offset", offset, allowed
    if guaranteed and offset % guaranteed:
        yield "DML-BIND-GUARANTEED-ALIGNMENT", "Offset", offset, f"a multiple of {guaranteed}"
    if offset < 0 or size > rest:
        found = f"bytes {offset} to {offset + size}"
        yield "DML-BIND-RANGE", "SizeInBytes", found, f"inside the buffer's {high - low} bytes"
    if size < total:
        yield "DML-BIND-SIZE", "SizeInBytes", size, f"at least {total}"


def _array(expected: _Expected, array: ArrayView) -> Iterator[Broken]:
    strides, sizes, kind = expected.layout
    if array.type != kind:
        allowed = f"{kind} ({expected.tensor.data_type.name})"
        yield "DML-ARRAY-DATA-TYPE", "DataType", array.type, allowed
    if array.shape != sizes:
        yield "DML-ARRAY-SHAPE", "Sizes", list(array.shape), list(sizes)
        return
    # The stride of a dimension of size 1 is never used, so that any will do.
    rows = zip(sizes, array.strides, strides, strict=True)
    if any(size > 1 and step != wanted for size, step, wanted in rows):
        found, allowed = f"{list(array.strides)} bytes", f"{list(strides)} bytes"
        yield "DML-ARRAY-STRIDES", "Strides", found, allowed


def _overlaps(
    bound_input: BoundTensor | None, outputs: Sequence[BoundTensor | None]
) -> Iterator[tuple[int, Broken]]:
    """Find outputs, by index, whose memory is also that of another output or of the input."""
    # By rising address, an output overlaps an earlier one if it begins before the furthest end.
    areas = sorted((entry.area, index) for index, entry in enumerate(outputs) if entry)
    furthest, owner = 0, 0
    for (low, high), index in areas:
        if low < furthest:
            other = f"OutputTensors[{owner}]"
            found, allowed = f"overlapping {other}", f"apart from {other}"
            yield index, ("DML-BIND-OUTPUT-OVERLAP", "", found, allowed)
        if high > furthest:
            furthest, owner = high, index
        if bound_input and low < bound_input.area[1] and bound_input.area[0] < high:
            yield index, ("DML-BIND-IN-PLACE", "", "overlapping the input", "apart from the input")
