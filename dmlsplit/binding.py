"""The binding table: which memory stands for which tensor, and whether it may.

An array stands for its own whole buffer: shape, data type, strides and overlap are
checked. A `BufferBinding` is raw memory, held to every rule of DML_BUFFER_BINDING.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dmlsplit.arrays import ArrayView, view
from dmlsplit.checks import integer
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules import Violation, report, violation
from dmlsplit.directml.tensor import (
    MINIMUM_BUFFER_TENSOR_ALIGNMENT,
    NUMPY_TYPES,
    TensorDesc,
    last_element_index,
)
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
    """One checked entry of the table. A tuple: it is made at every call.

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


@dataclass(frozen=True, slots=True)
class _Place:
    """What an array must be to stand for a tensor."""

    name: str
    tensor: TensorDesc
    type: str
    strides: tuple[int, ...]
    reach: int  # bytes from the first element to the one behind the last


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
    _input: _Place
    _outputs: tuple[_Place, ...]

    @classmethod
    def of(cls, desc: SplitOperatorDesc, device: str) -> BindingTable:
        """Return the table of an operator on a device."""
        outputs = enumerate(desc.output_tensors)
        return cls(
            desc,
            device,
            _place("InputTensor", desc.input_tensor),
            tuple(_place(f"OutputTensors[{index}]", tensor) for index, tensor in outputs),
        )

    def bind(self, source: Any, targets: Sequence[Any]) -> tuple[BoundTensor, list[BoundTensor]]:
        """Check what is bound and return the entries: input, outputs.

        Raises
        ------
        InvalidArgumentError
            With a report of every broken rule. Nothing has been written.
        """
        if not isinstance(targets, (list, tuple)):
            raise InvalidArgumentError(
                f"outputs is a {type(targets).__name__}; it must be a list with one array per "
                "output"
            )
        found: list[Violation] = []
        count = len(self._outputs)
        if len(targets) != count:
            found.append(
                violation("DML-BIND-COUNT", "Outputs", "BindingCount", len(targets), count)
            )
        bound_input = _bind(self._input, source, self.device, found)
        places = zip(self._outputs, targets, strict=False)
        bound = [_bind(place, target, self.device, found, True) for place, target in places]
        found += _overlaps(bound_input, bound)
        if found:
            refused = report(f"binding of {self.desc}", None, found)
            raise InvalidArgumentError(str(refused), refused)
        assert bound_input is not None
        return bound_input, [entry for entry in bound if entry is not None]


def _place(name: str, tensor: TensorDesc) -> _Place:
    width = tensor.element_bytes
    kind = ("|" if width == 1 else _NATIVE) + NUMPY_TYPES[tensor.data_type]
    strides = tuple(step * width for step in tensor.effective_strides)
    reach = (last_element_index(tensor.sizes, tensor.strides) + 1) * width
    return _Place(name, tensor, kind, strides, reach)


def _bind(
    place: _Place, target: Any, device: str, found: list[Violation], writes: bool = False
) -> BoundTensor | None:
    is_buffer = isinstance(target, BufferBinding)
    try:
        array = view(target.buffer if is_buffer else target, place.name)
    except InvalidArgumentError as error:
        found.append(
            violation("DML-BIND-KIND", place.name, "", str(error), f"an array on {device}")
        )
        return None
    if array.device != device or (writes and array.read_only):
        found += _anywhere(place.name, array, device, writes)
    if is_buffer:
        found += _buffer(place.name, place.tensor, target, array)
        address = array.address + target.offset
        area = (address, address + place.tensor.total_tensor_size_in_bytes)
        return BoundTensor(array.owner, address, area)
    is_as_expected = (
        array.strides == place.strides
        and array.shape == place.tensor.sizes
        and array.type == place.type
    )
    if is_as_expected:
        return BoundTensor(array.owner, array.address, (array.address, array.address + place.reach))
    found += _array(place, array)
    return BoundTensor(array.owner, array.address, array.span)


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


def _array(place: _Place, array: ArrayView) -> Iterator[Violation]:
    name, tensor = place.name, place.tensor
    if array.type != place.type:
        allowed = f"{place.type} ({tensor.data_type.name})"
        yield violation("DML-ARRAY-DATA-TYPE", name, "DataType", array.type, allowed)
    if array.shape != tensor.sizes:
        yield violation("DML-ARRAY-SHAPE", name, "Sizes", list(array.shape), list(tensor.sizes))
        return
    rows = zip(tensor.sizes, array.strides, place.strides, strict=True)
    if any(size > 1 and step != expected for size, step, expected in rows):
        found, allowed = f"{list(array.strides)} bytes", f"{list(place.strides)} bytes"
        yield violation("DML-ARRAY-STRIDES", name, "Strides", found, allowed)


def _overlaps(
    source: BoundTensor | None, targets: Sequence[BoundTensor | None]
) -> Iterator[Violation]:
    areas = sorted((entry.area, index) for index, entry in enumerate(targets) if entry)
    reached, holder = 0, 0
    for (low, high), index in areas:
        if low < reached:
            other = f"OutputTensors[{holder}]"
            name, allowed = f"OutputTensors[{index}]", f"apart from {other}"
            yield violation("DML-BIND-OUTPUT-OVERLAP", name, "", f"overlapping {other}", allowed)
        if high > reached:
            reached, holder = high, index
        if source and low < source.area[1] and source.area[0] < high:
            name, found = f"OutputTensors[{index}]", "overlapping the input"
            yield violation("DML-BIND-IN-PLACE", name, "", found, "apart from the input")
