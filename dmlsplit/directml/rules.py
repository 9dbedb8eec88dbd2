"""The rules of a Split, by id, and the report of those that are broken.

Each rule says whether DirectML's documents state it (``documented``), whether it is known
from DirectML's debug layer or its developers only (``debug-layer``), or whether it is a
choice of this library where the documents are silent (``policy``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

Basis = Literal["documented", "debug-layer", "policy"]

_API = "https://learn.microsoft.com/windows/win32/api/directml/"
_GUIDE = "https://learn.microsoft.com/windows/ai/directml/"
_TENSOR = _API + "ns-directml-dml_buffer_tensor_desc"
_SPLIT = _API + "ns-directml-dml_split_operator_desc"
_BIND_INPUTS = _API + "nf-directml-idmlbindingtable-bindinputs"
_BIND_OUTPUTS = _API + "nf-directml-idmlbindingtable-bindoutputs"
_BUFFER_BINDING = _API + "ns-directml-dml_buffer_binding"
_HELPERS = _GUIDE + "dml-helper-functions"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: a stable id, what it says, on what basis, where that is written, how to comply."""

    id: str
    sentence: str
    basis: Basis
    source: str
    hint: str


RULES = {
    rule.id: rule
    for rule in (
        Rule(
            "DML-UINT-RANGE",
            "Descriptor fields are unsigned: 32 bits, TotalTensorSizeInBytes 64 bits.",
            "documented",
            _TENSOR,
            "use a value that fits; count an axis from the front",
        ),
        Rule(
            "DML-TENSOR-DATA-TYPE",
            "DML_TENSOR_DATA_TYPE_UNKNOWN is never valid.",
            "documented",
            _API + "ne-directml-dml_tensor_data_type",
            "name the tensor's data type",
        ),
        Rule(
            "DML-TENSOR-DIMENSION-COUNT",
            "A tensor has 1 to 8 dimensions.",
            "documented",
            _TENSOR,
            "merge or drop dimensions; a scalar becomes one dimension of size 1",
        ),
        Rule(
            "DML-TENSOR-ZERO-SIZE",
            "A dimension of size 0 is invalid.",
            "documented",
            _TENSOR,
            "leave empty tensors out of the operator",
        ),
        Rule(
            "DML-TENSOR-ELEMENT-COUNT",
            "A buffer tensor has at most 2^32-1 elements.",
            "documented",
            _TENSOR,
            "split the tensor along an outer dimension first",
        ),
        Rule(
            "DML-TENSOR-STRIDE-COUNT",
            "Strides, if given, has one entry for each dimension.",
            "documented",
            _TENSOR,
            "give one stride per dimension, or none at all",
        ),
        Rule(
            "DML-TENSOR-SIZE-SMALL",
            "TotalTensorSizeInBytes is at least what DMLCalcBufferTensorSize returns.",
            "documented",
            _TENSOR,
            "raise TotalTensorSizeInBytes",
        ),
        Rule(
            "DML-TENSOR-SIZE-DWORD",
            "TotalTensorSizeInBytes is a multiple of 4.",
            "documented",
            _HELPERS,
            "round TotalTensorSizeInBytes up to a multiple of 4",
        ),
        Rule(
            "DML-TENSOR-SIZE-WRAP",
            "The last element index fits 32 bits; DMLCalcBufferTensorSize wraps beyond.",
            "documented",
            _HELPERS,
            "use smaller strides, or split the tensor along an outer dimension first",
        ),
        Rule(
            "DML-TENSOR-ALIGNMENT",
            "GuaranteedBaseOffsetAlignment is 0, or a power of two not below the element size.",
            "documented",
            _TENSOR,
            "use 0, or a power of two such as 16 or 32",
        ),
        Rule(
            "DML-TENSOR-OWNED-OUTPUT",
            "DML_TENSOR_FLAG_OWNED_BY_DML is for inputs only.",
            "documented",
            _API + "ne-directml-dml_tensor_flags",
            "clear the flag on outputs",
        ),
        Rule(
            "DML-TENSOR-OUTPUT-OVERLAP",
            "No two elements of an output lie at the same place.",
            "policy",
            "dmlsplit; DirectML's documents are silent",
            "give outputs strides that keep elements apart",
        ),
        Rule(
            "DML-SPLIT-OUTPUT-COUNT",
            "OutputCount is greater than 0.",
            "documented",
            _SPLIT,
            "give at least one output",
        ),
        Rule(
            "DML-SPLIT-AXIS-RANGE",
            "Axis is below the input's DimensionCount.",
            "documented",
            _SPLIT,
            "count the axis from 0 at the outermost dimension",
        ),
        Rule(
            "DML-SPLIT-DATA-TYPE-MATCH",
            "Every output has the data type of the input.",
            "documented",
            _SPLIT,
            "give the output the input's data type",
        ),
        Rule(
            "DML-SPLIT-DIMENSION-COUNT-MATCH",
            "Every output has as many dimensions as the input.",
            "documented",
            _SPLIT,
            "give the output the input's number of dimensions",
        ),
        Rule(
            "DML-SPLIT-SIZE-MATCH",
            "Outputs have the input's sizes, except along Axis.",
            "documented",
            _SPLIT,
            "give the output the input's size",
        ),
        Rule(
            "DML-SPLIT-AXIS-SUM",
            "The outputs' sizes along Axis add up to the input's.",
            "documented",
            _SPLIT,
            "change the sizes along the axis so that they add up",
        ),
        Rule(
            "DML-LEVEL-DATA-TYPE",
            "The feature level supports the tensor's data type for Split.",
            "documented",
            _SPLIT,
            "raise the feature level, or carry the bits in a supported type of another width",
        ),
        Rule(
            "DML-LEVEL-DIMENSION-COUNT",
            "The feature level supports the tensor's dimension count for Split.",
            "documented",
            _SPLIT,
            "raise the feature level, or pad with size-1 dimensions, or merge dimensions",
        ),
        Rule(
            "DML-BIND-COUNT",
            "One buffer is bound for each tensor of the operator.",
            "documented",
            _BIND_OUTPUTS,
            "bind exactly one buffer per tensor",
        ),
        Rule(
            "DML-BIND-KIND",
            "A binding is an array on the operator's device, or a BufferBinding of one.",
            "documented",
            _BIND_INPUTS,
            "pass an array that lives on the device of the operator",
        ),
        Rule(
            "DML-BIND-OFFSET-ALIGNMENT",
            "Offset is a multiple of DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT (16).",
            "documented",
            _BUFFER_BINDING,
            "move the tensor to an offset that is a multiple of 16",
        ),
        Rule(
            "DML-BIND-GUARANTEED-ALIGNMENT",
            "Offset is a multiple of the tensor's GuaranteedBaseOffsetAlignment.",
            "documented",
            _TENSOR,
            "move the tensor, or lower GuaranteedBaseOffsetAlignment",
        ),
        Rule(
            "DML-BIND-RANGE",
            "The bound range lies inside the buffer.",
            "documented",
            _BUFFER_BINDING,
            "use a larger buffer, a lower offset or a smaller range",
        ),
        Rule(
            "DML-BIND-SIZE",
            "SizeInBytes is at least the tensor's TotalTensorSizeInBytes.",
            "documented",
            _TENSOR,
            "bind a larger range",
        ),
        Rule(
            "DML-BIND-READ-ONLY",
            "An output can be written.",
            "policy",
            "dmlsplit; a D3D12 buffer needs unordered access",
            "pass a writable array",
        ),
        Rule(
            "DML-BIND-OUTPUT-OVERLAP",
            "The writeable areas of two outputs do not overlap.",
            "documented",
            _BIND_OUTPUTS,
            "give every output memory of its own",
        ),
        Rule(
            "DML-BIND-IN-PLACE",
            "No output overlaps the input: Split has no in-place execution.",
            "documented",
            _BIND_OUTPUTS,
            "give the output memory of its own",
        ),
        Rule(
            "DML-ARRAY-DATA-TYPE",
            "A bound array has the tensor's data type, in native byte order.",
            "policy",
            "dmlsplit; DirectML buffers are untyped",
            "convert the array, or view the same bytes as the tensor's type",
        ),
        Rule(
            "DML-ARRAY-SHAPE",
            "A bound array has the tensor's sizes.",
            "policy",
            "dmlsplit; DirectML buffers are untyped",
            "reshape the array, or bind it as a BufferBinding",
        ),
        Rule(
            "DML-ARRAY-STRIDES",
            "A bound array has the tensor's strides.",
            "policy",
            "dmlsplit; DirectML buffers are untyped",
            "copy the array to the tensor's layout, or describe the array's strides",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule at one place.

    Attributes
    ----------
    rule : Rule
        What is broken.
    tensor : str
        ``InputTensor``, ``OutputTensors[2]``, or empty for the operator itself.
    field : str
        The DirectML field, such as ``Sizes[1]``.
    found, allowed : str
        The value, and what it must be.
    """

    rule: Rule
    tensor: str
    field: str
    found: str
    allowed: str

    @property
    def place(self) -> str:
        """Tensor and field, joined by a dot."""
        return ".".join(part for part in (self.tensor, self.field) if part)

    @property
    def hint(self) -> str:
        """How to comply."""
        return self.rule.hint

    def __str__(self) -> str:
        return (
            f"{self.rule.id} {self.place}: is {self.found}; must be {self.allowed}."
            f" Fix: {self.hint}."
        )


def violation(rule_id: str, tensor: str, field: str, found: object, allowed: object) -> Violation:
    """Return a violation of the rule with that id."""
    return Violation(RULES[rule_id], tensor, field, str(found), str(allowed))


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """Every broken rule of one descriptor or binding.

    Attributes
    ----------
    subject : str
        The descriptor in one line.
    level : str
        The feature level it was held against, such as ``3_0``; empty for none.
    violations : tuple of Violation
        Empty if all is well.
    """

    SHOWN: ClassVar[int] = 20

    subject: str
    level: str
    violations: tuple[Violation, ...]

    @property
    def ok(self) -> bool:
        """Whether no rule is broken."""
        return not self.violations

    @property
    def rule_ids(self) -> tuple[str, ...]:
        """The ids of the broken rules, each once, in order."""
        return tuple(Counter(violation.rule.id for violation in self.violations))

    def __str__(self) -> str:
        at = f" at feature level {self.level}" if self.level else ""
        if self.ok:
            return f"{self.subject}{at}: ok"
        count = len(self.violations)
        lines = [f"{self.subject}{at}: {count} rule{'s' if count > 1 else ''} broken"]
        lines += [f"  {violation}" for violation in self.violations[: self.SHOWN]]
        if count > self.SHOWN:
            lines.append(f"  ... and {count - self.SHOWN} more")
        return "\n".join(lines)


def report(subject: object, level: object, violations: Iterable[Violation]) -> ValidationReport:
    """Return the report of some violations."""
    return ValidationReport(str(subject), str(level or ""), tuple(violations))
