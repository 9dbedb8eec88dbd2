"""The binding table: checks the memory that is bound to each tensor of an operator.

An array is bound as a whole buffer: its shape, data type, strides and overlap are checked.
A `BufferBinding` is raw memory: the rules of DML_BUFFER_BINDING apply.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import add, attrgetter, itemgetter
from typing import Any

from dmlsplit.arrays import ArrayView, view, views
from dmlsplit.arrays.array_view import are_apart, overlaps
from dmlsplit.arrays.types import Array
from dmlsplit.checks import integer
from dmlsplit.directml.operator import SplitOperatorDesc, named_tensors
from dmlsplit.directml.rules import RULES, Broken, violations_of
from dmlsplit.directml.rules.violation import ValidationReport, Violation
from dmlsplit.directml.tensor import MINIMUM_BUFFER_TENSOR_ALIGNMENT, TensorDesc
from dmlsplit.errors import InvalidArgumentError

_SHAPE, _READ_ONLY = map(ArrayView._fields.index, ("shape", "read_only"))
_LAYOUT, _OUTPUT = itemgetter(slice(_SHAPE, _READ_ONLY)), itemgetter(slice(_SHAPE, None))
_ADDRESS = attrgetter("address")
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


class _Expected:
    """The requirements for an array that is bound as a tensor."""

    def __init__(self, name: str, tensor: TensorDesc, device: str, is_output: bool) -> None:
        self.name, self.tensor, self.device, self.is_output = name, tensor, device, is_output
        width = tensor.element_bytes
        kind = ("|" if width == 1 else _NATIVE) + tensor.data_type.numpy_name
        strides = tuple(step * width for step in tensor.effective_strides)
        # The `_LAYOUT` of an ArrayView that matches exactly.
        self.layout = tensor.sizes, strides, kind, width, device

    def bound(self, given: Any, found: list[Violation]) -> ArrayView:
        """The memory of `given`, which must be an array; broken rules are added to `found`."""
        is_buffer = isinstance(given, BufferBinding)
        array = view(given.buffer if is_buffer else given, self.name)
        found += violations_of(self.name, list(self._broken(given, array)))
        if not is_buffer:
            return array
        size = self.tensor.total_tensor_size_in_bytes
        at = array.address + given.offset
        return ArrayView(array.owner, at, (size,), (1,), "|u1", 1, self.device, array.read_only)

    def bound_or_none(self, given: Any, found: list[Violation]) -> ArrayView | None:
        """The same; if `given` is not an array, None, and that is one more broken rule."""
        try:
            return self.bound(given, found)
        except InvalidArgumentError as error:
            rule, said = RULES["DML-BIND-KIND"], error.message
            allowed = f"an array on {self.device}"
            found.append(Violation(rule, self.name, found=said, allowed=allowed, text=said))
            return None

    def _broken(self, given: Any, array: ArrayView) -> Iterator[Broken]:
        if array.device != self.device:
            yield "DML-BIND-KIND", "", f"an array on {array.device}", f"on {self.device}"
        if array.read_only and self.is_output:
            yield "DML-BIND-READ-ONLY", "", "read-only", "writable"
        if isinstance(given, BufferBinding):
            yield from _buffer(self.tensor, given, array)
        else:
            yield from _array(self, array)


class BindingTable:
    """The requirements for all bindings of an operator on a device, ``cpu`` or ``cuda:N``."""

    def __init__(self, desc: SplitOperatorDesc, device: str) -> None:
        self.desc, self.device = desc, device
        tensors = named_tensors(desc)
        expected = (_Expected(*named, device, at > 0) for at, named in enumerate(tensors))
        self._input, *self._outputs = every = list(expected)
        self._names = [e.name for e in every]
        # The `_OUTPUT` of views that match exactly: the last field is `read_only`.
        self._layouts = [(*e.layout, False) for e in self._outputs]
        self._sizes = [tensor.total_tensor_size_in_bytes for _, tensor in tensors]

    def bind_input(self, given: Any) -> ArrayView:
        """Check the input alone; its outputs will be allocated to match."""
        if not isinstance(given, BufferBinding):
            given = view(given, self._input.name)
            if _LAYOUT(given) == self._input.layout:  # fast path
                return given  # type: ignore[no-any-return]
        found: list[Violation] = []
        entry = self._input.bound(given, found)
        if found:
            raise self._refused(found)
        return entry

    def bind(self, source: Any, outputs: Sequence[Any]) -> tuple[ArrayView, list[ArrayView]]:
        """Check all bindings and return the memory of the input and of the outputs.

        An InvalidArgumentError reports every broken rule.
        """
        if not isinstance(outputs, (list, tuple)):
            raise InvalidArgumentError(
                f"outputs is a {type(outputs).__name__}; it must be a list with one array per "
                "output"
            )
        given, count = len(outputs), len(self._outputs)
        if given == count and (exact := self._exact(source, outputs)):
            return exact[0], exact[1:]
        found: list[Violation] = []
        if given != count:
            found += violations_of("Outputs", [("DML-BIND-COUNT", "BindingCount", given, count)])
        entry = self._input.bound_or_none(source, found)
        pairs = zip(self._outputs, outputs, strict=False)
        bound = [expected.bound_or_none(output, found) for expected, output in pairs]
        for index, broken in _overlaps(entry, bound):
            found += violations_of(f"OutputTensors[{index}]", [broken])
        if found:
            raise self._refused(found)
        return entry, bound  # type: ignore[return-value]

    def _exact(self, source: Any, outputs: Sequence[Any]) -> list[ArrayView] | None:
        """Fast path: the memory of arrays that fit exactly and are apart, padding included.

        None for any others, which are checked rule by rule.
        """
        if isinstance(source, BufferBinding):
            return None
        try:
            seen = views((source, *outputs), self._names)
        except InvalidArgumentError:
            return None
        if _LAYOUT(seen[0]) != self._input.layout or list(map(_OUTPUT, seen[1:])) != self._layouts:
            return None
        starts = list(map(_ADDRESS, seen))
        return seen if are_apart(starts, map(add, starts, self._sizes)) else None

    def _refused(self, found: Sequence[Violation]) -> InvalidArgumentError:
        refused = ValidationReport(f"binding of {self.desc}", "", tuple(found))
        return InvalidArgumentError(str(refused), refused)


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
    sizes, strides, kind = expected.layout[:3]
    if array.type != kind:
        allowed = f"{kind} ({expected.tensor.data_type.name})"
        yield "DML-ARRAY-DATA-TYPE", "DataType", array.type, allowed
    if array.shape != sizes:
        yield "DML-ARRAY-SHAPE", "Sizes", list(array.shape), list(sizes)
        return
    # The stride of a dimension of size 1 is never used.
    rows = zip(sizes, array.strides, strides, strict=True)
    if any(size > 1 and step != wanted for size, step, wanted in rows):
        found, allowed = f"{list(array.strides)} bytes", f"{list(strides)} bytes"
        yield "DML-ARRAY-STRIDES", "Strides", found, allowed


def _overlaps(
    source: ArrayView | None, outputs: Sequence[ArrayView | None]
) -> Iterator[tuple[int, Broken]]:
    """The index of each output that overlaps another output or the input, with the broken rule."""
    spans = [entry.span if entry else (0, 0) for entry in outputs]
    for index, owner in overlaps(spans):
        other = f"OutputTensors[{owner}]"
        yield index, ("DML-BIND-OUTPUT-OVERLAP", "", other, "memory of its own")
    start, end = source.span if source else (0, 0)
    for index, (low, high) in enumerate(spans):
        if low < end and start < high:
            yield index, ("DML-BIND-IN-PLACE", "", "the input", "memory of its own")
