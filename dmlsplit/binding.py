"""The binding table: which memory each tensor of an operator uses, and whether it may.

An array is bound as a whole buffer: its shape, data type, strides and overlap are checked.
A `BufferBinding` is raw memory, which every rule of DML_BUFFER_BINDING applies to.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import add, le
from typing import Any, NamedTuple, TypeAlias

from dmlsplit.arrays import ArrayView, view
from dmlsplit.arrays.types import Array
from dmlsplit.checks import integer
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.rules import Broken, violations_of
from dmlsplit.directml.rules.violation import Violation, report
from dmlsplit.directml.tensor import MINIMUM_BUFFER_TENSOR_ALIGNMENT, TensorDesc
from dmlsplit.errors import InvalidArgumentError

# The first fields of a view that an array of other memory shares, and those two of them that
# matter to an output more than to the input.
_SHAPE, _READ_ONLY = ArrayView._fields.index("shape"), ArrayView._fields.index("read_only")
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
    """One checked entry of the table."""

    owner: Any  # keeps the memory alive
    address: int  # of the tensor's first element
    span: tuple[int, int]  # first byte of the tensor's memory, and the one after its last


# What the table returns: an array that is bound as it is may stand for itself.
Entry: TypeAlias = ArrayView | BoundTensor


@dataclass(frozen=True, slots=True)
class _Expected:
    """What an array must be to be bound as a tensor."""

    name: str
    tensor: TensorDesc
    # The fields of a view from its shape on. The usual array is exactly this, which one comparison
    # tells; of any other it is asked what differs and whether that matters.
    usual: tuple[Any, ...]
    reach: int  # bytes from the first element to the end of the last

    @classmethod
    def of(cls, name: str, tensor: TensorDesc, device: str) -> _Expected:
        width = tensor.element_bytes
        kind = ("|" if width == 1 else _NATIVE) + tensor.data_type.numpy_name
        strides = tuple(step * width for step in tensor.effective_strides)
        usual = ArrayView(None, 0, tensor.sizes, strides, kind, width, False, device)
        return cls(name, tensor, usual[_SHAPE:], (tensor.last_element_index + 1) * width)

    @property
    def layout(self) -> tuple[tuple[int, ...], tuple[int, ...], str]:
        """Sizes, strides in bytes, and NumPy's type string."""
        return self.usual[:3]


class BindingTable:
    """What an operator on a device, ``cpu`` or ``cuda:N``, expects of its bindings."""

    def __init__(self, desc: SplitOperatorDesc, device: str) -> None:
        self.desc = desc
        self.device = device
        self._input = _Expected.of("InputTensor", desc.input_tensor, device)
        self._outputs = [
            _Expected.of(f"OutputTensors[{index}]", tensor, device)
            for index, tensor in enumerate(desc.output_tensors)
        ]
        self._layout = self._input.usual[: _READ_ONLY - _SHAPE]
        self._usual = [expected.usual for expected in self._outputs]
        self._reaches = [expected.reach for expected in (self._input, *self._outputs)]

    def is_input(self, array: ArrayView) -> bool:
        """Whether an array is exactly what the input usually is, which breaks no rule."""
        return array[_SHAPE:_READ_ONLY] == self._layout and array.device == self.device

    def bind(self, source: Any, outputs: Sequence[Any]) -> tuple[Entry, Sequence[Entry]]:
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
        # Each array is described once: that may wait for what its library has under way.
        source = _seen(source, "InputTensor")
        outputs = [_seen(output, "an output") for output in outputs]
        if self._are_usual(source, outputs):
            return source, outputs
        return self._checked(source, outputs)

    def _are_usual(self, source: Any, outputs: Sequence[Any]) -> bool:
        """Whether these are arrays that break no rule: the sooner answer, and mostly the last."""
        seen = [source, *outputs]
        is_usual = set(map(type, seen)) == {ArrayView} and self.is_input(source)
        if not is_usual or [output[_SHAPE:] for output in outputs] != self._usual:
            return False
        # By rising address, no tensor ends after the next one begins.
        starts = [array.address for array in seen]
        ends = sorted(map(add, starts, self._reaches))
        return all(map(le, ends, sorted(starts)[1:]))

    def _checked(self, source: Any, outputs: Sequence[Any]) -> tuple[Entry, Sequence[Entry]]:
        """Check rule by rule what is bound, and return the entries."""
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
        span = (address, address + expected.tensor.total_tensor_size_in_bytes)
    else:
        broken += _array(expected, array)
        address, span = array.address, array.span
    if broken:
        found += violations_of(expected.name, broken)
    return BoundTensor(array.owner, address, span)


def _seen(given: Any, name: str) -> Any:
    """Return the view of an array; a binding, or what is no array, as it is."""
    if isinstance(given, BufferBinding):
        return given
    try:
        return view(given, name)
    except InvalidArgumentError:
        return given


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
    sizes, strides, kind = expected.layout
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
    areas = sorted((entry.span, index) for index, entry in enumerate(outputs) if entry)
    furthest, owner = 0, 0
    for (low, high), index in areas:
        if low < furthest:
            other = f"OutputTensors[{owner}]"
            found, allowed = f"overlapping {other}", f"apart from {other}"
            yield index, ("DML-BIND-OUTPUT-OVERLAP", "", found, allowed)
        if high > furthest:
            furthest, owner = high, index
        if bound_input and low < bound_input.span[1] and bound_input.span[0] < high:
            yield index, ("DML-BIND-IN-PLACE", "", "overlapping the input", "apart from the input")
