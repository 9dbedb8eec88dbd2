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

    buffer: Any  # Buffer
    offset: int = 0  # Offset
    size_in_bytes: int | None = None  # SizeInBytes

    def __post_init__(self) -> None:
        integer("offset", self.offset)
        if self.size_in_bytes is not None:
            integer("size_in_bytes", self.size_in_bytes)


class BoundTensor(NamedTuple):
    """One checked entry of the table. A tuple, because one is made at every call.

    Attributes
    ----------
    owner : object
        Keeps the memory alive.
    address : int
        Of the tensor's first element.
    area : tuple of int
        Addresses of the first byte of the tensor's memory and of the byte after its last.
    """

    owner: Any
    address: int
    area: tuple[int, int]


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


@dataclass(frozen=True, slots=True)
class BindingTable:
    """What an operator expects of its bindings.

    Attributes
    ----------
    desc : SplitOperatorDesc
        The operator.
    device : str
        ``cpu`` or ``cuda:N``.
    """

    desc: SplitOperatorDesc
    device: str
    _input: _Expected
    _outputs: tuple[_Expected, ...]

    @classmethod
    def of(cls, desc: SplitOperatorDesc, device: str) -> BindingTable:
        """Return the table of an operator on a device."""
        outputs = enumerate(desc.output_tensors)
        return cls(
            desc,
            device,
            _Expected.of("InputTensor", desc.input_tensor),
            tuple(_Expected.of(f"OutputTensors[{index}]", tensor) for index, tensor in outputs),
        )

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
    name, tensor = expected.name, expected.tensor
    is_buffer = isinstance(given, BufferBinding)
    try:
        array = view(given.buffer if is_buffer else given, name)
    except InvalidArgumentError as error:
        broken = ("DML-BIND-KIND", "", str(error), f"an array on {device}")
        found += violations_of(name, [broken])
        return None
    found += violations_of(name, _unusable(array, device, is_output))
    if is_buffer:
        found += violations_of(name, _buffer(tensor, given, array))
        address = array.address + given.offset
        area = (address, address + tensor.total_tensor_size_in_bytes)
    elif (array.strides, array.shape, array.type) == expected.layout:
        address = array.address
        area = (address, address + expected.reach)
    else:
        found += violations_of(name, _array(expected, array))
        address, area = array.address, array.span
    return BoundTensor(array.owner, address, area)


def _unusable(array: ArrayView, device: str, is_output: bool) -> Iterator[Broken]:
    if array.device != device:
        yield "DML-BIND-KIND", "", f"an array on {array.device}", f"on {device}"
    if is_output and array.read_only:
        yield "DML-BIND-READ-ONLY", "", "read-only", "writable"


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
        found, allowed = (
            f"bytes {offset} to {offset + size}",
            f"inside the buffer's {high - low} bytes",
        )
        yield "DML-BIND-RANGE", "SizeInBytes", found, allowed
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
            yield (
                index,
                ("DML-BIND-OUTPUT-OVERLAP", "", f"overlapping {other}", f"apart from {other}"),
            )
        if high > furthest:
            furthest, owner = high, index
        if bound_input and low < bound_input.area[1] and bound_input.area[0] < high:
            yield index, ("DML-BIND-IN-PLACE", "", "overlapping the input", "apart from the input")
