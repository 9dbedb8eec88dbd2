"""The binding table: checks the memory that is bound to each tensor of an operator.

An array is bound as a whole buffer, from its first byte to its last one: its shape, data type and
strides are checked. A `BufferBinding` is raw memory: the rules of DML_BUFFER_BINDING apply.

DirectML binds ranges of bytes. No range of an output may overlap another range, even if the arrays
share no byte, as two columns of a matrix do.
"""

# So that help() and Sphinx show aliases by name.
from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from dmlsplit.arrays import ArrayView, view
from dmlsplit.arrays.acceptance import Mismatch, fits_exactly, mismatches
from dmlsplit.arrays.adapter import Requirement, Shape
from dmlsplit.arrays.array_view import data_type_name
from dmlsplit.arrays.overlap import overlapping_pairs
from dmlsplit.arrays.types import Array
from dmlsplit.checks import integer
from dmlsplit.directml.operator import SplitOperatorDesc, named_tensors
from dmlsplit.directml.rules import RULES, BrokenRule, violation_of
from dmlsplit.directml.rules.violation import ValidationReport, Violation
from dmlsplit.directml.tensor import MINIMUM_BUFFER_TENSOR_ALIGNMENT, TensorDesc, byte_strides
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.messages import Note, digits

_NATIVE = "<" if sys.byteorder == "little" else ">"
# What a buffer must have in common with an array; its type and its shape are free.
_BUFFER_FIELDS = ("device", "read_only")


@dataclass(frozen=True, slots=True, eq=False)
class BufferBinding:
    """DML_BUFFER_BINDING: a range of a buffer.

    The constructor checks only types. Whoever binds the range checks the rules of DirectML
    (Microsoft, "DML_BUFFER_BINDING" and "DML_BUFFER_TENSOR_DESC").

    Parameters
    ----------
    buffer : array
        A contiguous array of any shape and type; its bytes are the buffer.
    offset : int
        Bytes from the start of the buffer: a multiple of 16 (DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT)
        and of the tensor's `guaranteed_base_offset_alignment`.
    size_in_bytes : int, optional
        Bytes of the range: at least the tensor's `total_tensor_size_in_bytes`. None means up to
        the end of the buffer.

    Raises
    ------
    InvalidArgumentError
        If `offset` or `size_in_bytes` is not an integer. The error is also a TypeError.

    See Also
    --------
    CompiledOperator.bind : Binds arrays or ranges of buffers.

    Examples
    --------
    >>> import numpy as np
    >>> import dmlsplit as dml
    >>> buffer = np.arange(256, dtype=np.uint8)
    >>> x = dml.TensorDesc("UINT8", (4,))
    >>> op = dml.Device("cpu").compile(dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=(1, 3)))
    >>> op(dml.BufferBinding(buffer, offset=16, size_in_bytes=4))
    [array([16], dtype=uint8), array([17, 18, 19], dtype=uint8)]
    """

    buffer: Array  # Buffer
    offset: int = 0  # Offset
    size_in_bytes: int | None = None  # SizeInBytes

    def __post_init__(self) -> None:
        # As ints: the sums of NumPy's integers overflow.
        object.__setattr__(self, "offset", integer("offset", self.offset))
        if self.size_in_bytes is not None:
            size = integer("size_in_bytes", self.size_in_bytes)
            object.__setattr__(self, "size_in_bytes", size)


# The input, the owners of the outputs' memory, and the outputs' addresses.
Bindings: TypeAlias = tuple[ArrayView, Sequence[Any], list[int]]


class _TensorBinding:
    """A tensor of an operator, and what it requires of the memory that is bound to it."""

    def __init__(self, name: str, tensor: TensorDesc, device: str, is_output: bool) -> None:
        self.name = name
        self.tensor = tensor
        self.is_output = is_output
        width = tensor.element_bytes
        typestr = ("|" if width == 1 else _NATIVE) + tensor.data_type.numpy_name
        strides = byte_strides(tensor)
        read_only = not is_output
        self.required = Requirement(tensor.sizes, strides, typestr, width, device, read_only)

    def bound(self, binding: Any, violations: list[Violation]) -> ArrayView:
        """The memory of a binding. Broken rules are added to `violations`.

        An InvalidArgumentError says that it is not an array.
        """
        if isinstance(binding, BufferBinding):
            return self._bound_buffer(binding, violations)
        array = view(binding, self.name, self.is_output)
        if not fits_exactly(array, self.required):
            for mismatch in mismatches(array, self.required):
                violations.append(violation_of(self.name, _broken_rule(mismatch, self.tensor)))
        return array

    def _bound_buffer(self, binding: BufferBinding, violations: list[Violation]) -> ArrayView:
        """The range of a buffer, of which `violations` gets the broken rules."""
        array = view(binding.buffer, self.name, self.is_output)
        broken = [
            _broken_rule(mismatch, self.tensor)
            for mismatch in mismatches(array, self.required)
            if mismatch.field in _BUFFER_FIELDS
        ]
        broken += _broken_buffer_rules(self.tensor, binding, array)
        violations += [violation_of(self.name, rule) for rule in broken]
        size = self.tensor.total_tensor_size_in_bytes
        start = array.address + binding.offset
        device = self.required.device
        read_only = array.read_only
        return ArrayView(array.owner, start, (size,), (1,), "|u1", 1, device, read_only)

    def bound_or_none(self, binding: Any, violations: list[Violation]) -> ArrayView | None:
        """The memory of a binding; None if it is not an array, which is also a broken rule."""
        try:
            return self.bound(binding, violations)
        except InvalidArgumentError as error:
            violations.append(self._not_an_array(error))
            return None

    def _not_an_array(self, error: InvalidArgumentError) -> Violation:
        """The broken rule that an error of `view` reports; a fix in the error replaces the hint."""
        text = error.args[0]
        note = text if isinstance(text, Note) else Note(text)
        return Violation(
            RULES["DML-BIND-KIND"],
            self.name,
            found=note.fault,
            allowed=f"an array on {self.required.device}",
            fix=note.fix,
            text=note.fault,
        )


class BindingTable:
    """What an operator requires of the memory that is bound to its tensors (IDMLBindingTable).

    The rules, each with its source, are records in dmlsplit/directml/rules/bindings.yaml.

    Parameters
    ----------
    desc : SplitOperatorDesc
        The operator; its descriptor has passed validation.
    device : str
        ``cpu`` or ``cuda:N``, where all memory must be.

    Examples
    --------
    >>> import numpy as np
    >>> x = TensorDesc("INT32", (6,))
    >>> table = BindingTable(SplitOperatorDesc.from_sizes(x, axis=0, sizes=(2, 4)), "cpu")
    >>> table.bind_input(np.zeros(6, np.int32)).strides
    (4,)
    """

    def __init__(self, desc: SplitOperatorDesc, device: str) -> None:
        self.desc = desc
        self.device = device
        source, *outputs = named_tensors(desc)
        self._input = _TensorBinding(*source, device, is_output=False)
        self._outputs = [_TensorBinding(*output, device, is_output=True) for output in outputs]

    @property
    def output_layouts(self) -> list[tuple[Shape, Shape]]:
        """The shape and the strides in bytes of each output."""
        return [(output.required.shape, output.required.strides) for output in self._outputs]

    def bind_input(self, binding: Any) -> ArrayView:
        """The memory of the input; its outputs will be allocated to match.

        Parameters
        ----------
        binding : array or BufferBinding
            An array with the sizes, type and strides of the tensor, or a range of a buffer.

        Raises
        ------
        InvalidArgumentError
            If it breaks a rule; the `report` lists every broken one. Also if it is not an array.
        """
        violations: list[Violation] = []
        array = self._input.bound(binding, violations)
        if violations:
            raise self._refusal(violations)
        return array

    def bind(self, source: Any, outputs: Sequence[Any]) -> Bindings:
        """The memory of all tensors: ranges of bytes, none of which overlaps one of an output.

        Parameters
        ----------
        source : array or BufferBinding
            The input, as for `bind_input`.
        outputs : list or tuple of array or BufferBinding
            One for each output.

        Returns
        -------
        tuple
            The view of the input, the arrays that own the outputs' memory, and the outputs'
            addresses.

        Raises
        ------
        InvalidArgumentError
            If a binding breaks a rule; the `report` lists every broken one. Also if `outputs` is
            not a list.
        """
        if not isinstance(outputs, (list, tuple)):
            raise InvalidArgumentError(
                f"outputs has the type {type(outputs).__name__}; it must be a list with one array "
                "per output"
            )
        violations: list[Violation] = []
        if len(outputs) != len(self._outputs):
            counts = len(outputs), len(self._outputs)
            rule = BrokenRule("DML-BIND-COUNT", "BindingCount", *counts)
            violations.append(violation_of("Outputs", rule))
        array = self._input.bound_or_none(source, violations)
        pairs = zip(self._outputs, outputs, strict=False)
        arrays = [tensor.bound_or_none(binding, violations) for tensor, binding in pairs]
        for index, rule in _overlaps(array, arrays):
            violations.append(violation_of(f"OutputTensors[{index}]", rule))
        if violations:
            raise self._refusal(violations)
        source_view: Any = array  # without violations, no view is None
        views: Any = arrays
        return source_view, [output.owner for output in views], [output.address for output in views]

    def _refusal(self, violations: Sequence[Violation]) -> InvalidArgumentError:
        """The error with a report of these violations."""
        report = ValidationReport(f"binding of {self.desc}", "", tuple(violations))
        return InvalidArgumentError(str(report), report)


def _broken_rule(mismatch: Mismatch, tensor: TensorDesc) -> BrokenRule:
    """The rule that a field of an array breaks."""
    field, actual, required = mismatch
    match field:
        case "device":
            return BrokenRule("DML-BIND-KIND", "", f"an array on {actual}", f"on {required}")
        case "read_only":
            return BrokenRule("DML-BIND-READ-ONLY", "", "read-only", "writable")
        case "type":
            allowed = f"{data_type_name(required)} ({tensor.data_type.name})"
            return BrokenRule("DML-ARRAY-DATA-TYPE", "DataType", data_type_name(actual), allowed)
        case "shape":
            return BrokenRule("DML-ARRAY-SHAPE", "Sizes", list(actual), list(required))
    return BrokenRule(
        "DML-ARRAY-STRIDES", "Strides", f"{list(actual)} bytes", f"{list(required)} bytes"
    )


def _broken_buffer_rules(
    tensor: TensorDesc, binding: BufferBinding, array: ArrayView
) -> Iterator[BrokenRule]:
    """The rules of DML_BUFFER_BINDING that the range of a buffer, `array`, breaks."""
    offset = binding.offset
    alignment = tensor.guaranteed_base_offset_alignment
    if not array.is_contiguous:
        yield BrokenRule("DML-BIND-KIND", "Buffer", "a strided array", "a contiguous array")
    if offset % MINIMUM_BUFFER_TENSOR_ALIGNMENT:
        allowed = f"a multiple of {MINIMUM_BUFFER_TENSOR_ALIGNMENT}"
        yield BrokenRule("DML-BIND-OFFSET-ALIGNMENT", "Offset", offset, allowed)
    if alignment and offset % alignment:
        yield BrokenRule(
            "DML-BIND-GUARANTEED-ALIGNMENT", "Offset", offset, f"a multiple of {alignment}"
        )
    start, end = array.span
    yield from _broken_range_rules(binding, end - start, tensor.total_tensor_size_in_bytes)


def _broken_range_rules(
    binding: BufferBinding, buffer_bytes: int, tensor_bytes: int
) -> Iterator[BrokenRule]:
    """The rules about the range that a tensor of `tensor_bytes` needs of a buffer."""
    offset = binding.offset
    available = max(0, buffer_bytes - offset)
    size = available if binding.size_in_bytes is None else binding.size_in_bytes
    begins_inside = 0 <= offset <= buffer_bytes
    if not begins_inside or size > available:
        field = "SizeInBytes" if begins_inside else "Offset"
        selected = f"{digits(size)} bytes from byte {digits(offset)}"
        yield BrokenRule(
            "DML-BIND-RANGE", field, selected, f"inside the buffer's {buffer_bytes} bytes"
        )
    # A range up to the end of the buffer that does not begin inside has no size of its own.
    has_size = begins_inside or binding.size_in_bytes is not None
    if has_size and size < tensor_bytes:
        yield BrokenRule("DML-BIND-SIZE", "SizeInBytes", size, f"at least {tensor_bytes}")


def _overlaps(
    source: ArrayView | None, outputs: Sequence[ArrayView | None]
) -> Iterator[tuple[int, BrokenRule]]:
    """The index of each output that overlaps another output or the input, with the broken rule."""
    spans = [entry.span if entry else (0, 0) for entry in outputs]
    for index, owner in overlapping_pairs(spans):
        other = f"OutputTensors[{owner}]"
        yield index, BrokenRule("DML-BIND-OUTPUT-OVERLAP", "", other, "memory of its own")
    start, end = source.span if source else (0, 0)
    for index, (low, high) in enumerate(spans):
        if low < end and start < high:
            yield index, BrokenRule("DML-BIND-IN-PLACE", "", "the input", "memory of its own")
