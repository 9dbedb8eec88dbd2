"""The rules of a Split, by id, and the report of those that are broken.

Each rule says whether DirectML's documents state it (``documented``), whether it is known
from DirectML's debug layer or its developers only (``debug-layer``), or whether it is a
choice of this library where the documents are silent (``policy``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal, TypeAlias

from dmlsplit.messages import counted

Basis = Literal["documented", "debug-layer", "policy"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule."""

    id: str  # stable: reports, baselines and searches use it
    sentence: str  # what it says
    basis: Basis
    source: str  # where it is written down
    hint: str  # how to comply
    # What breaking it comes to in DirectML at run time; None if nothing fails.
    hresult: int | None = 0x80070057  # E_INVALIDARG


def by_id(rules: dict[str, Rule]) -> dict[str, Rule]:
    """Give every rule its key as its id."""
    return {key: replace(rule, id=key) for key, rule in rules.items()}


# What a wrong binding comes to: BindInputs and BindOutputs return nothing, so that the device is
# removed. Source: https://learn.microsoft.com/windows/ai/directml/dml-errors
_DEVICE_REMOVED = 0x887A0005

# Where rules are written down. Each takes a sentence and a hint; `by_id` adds the id.
_rule = partial(Rule, "")
_API = "https://learn.microsoft.com/windows/win32/api/directml/"
_documented = partial(_rule, basis="documented")
_tensor = partial(_documented, source=_API + "ns-directml-dml_buffer_tensor_desc")
_data_type = partial(_documented, source=_API + "ne-directml-dml_tensor_data_type")
_flags = partial(_documented, source=_API + "ne-directml-dml_tensor_flags")
_helpers = partial(
    _documented, source="https://learn.microsoft.com/windows/ai/directml/dml-helper-functions"
)
_split = partial(_documented, source=_API + "ns-directml-dml_split_operator_desc")
_bind_inputs = partial(_documented, source=_API + "nf-directml-idmlbindingtable-bindinputs")
_bind_outputs = partial(
    _documented,
    source=_API + "nf-directml-idmlbindingtable-bindoutputs",
    hresult=_DEVICE_REMOVED,
)
_buffer_binding = partial(
    _documented, source=_API + "ns-directml-dml_buffer_binding", hresult=_DEVICE_REMOVED
)
_policy = partial(_rule, basis="policy")
_silent = partial(_policy, source="dmlsplit; DirectML's documents are silent")
_access = partial(_policy, source="dmlsplit; a D3D12 buffer needs unordered access")
_untyped = partial(_policy, source="dmlsplit; DirectML buffers are untyped")

# How to comply at a level that no higher one improves on.
AT_ANY_LEVEL = {
    "DML-LEVEL-DATA-TYPE": "carry the bits in a supported type of another width",
    "DML-LEVEL-DIMENSION-COUNT": "pad with size-1 dimensions, or merge dimensions",
}
_RAISE = "raise the feature level, or "

RULES = by_id(
    {
        "DML-UINT-RANGE": _tensor(
            "Descriptor fields are unsigned: 32 bits, TotalTensorSizeInBytes 64 bits.",
            hint="use a value that fits; count an axis from the front",
        ),
        "DML-TENSOR-DATA-TYPE": _data_type(
            "DML_TENSOR_DATA_TYPE_UNKNOWN is never valid.",
            hint="name the tensor's data type",
        ),
        "DML-TENSOR-DIMENSION-COUNT": _tensor(
            "A tensor has 1 to 8 dimensions.",
            hint="merge or drop dimensions; a scalar becomes one dimension of size 1",
        ),
        "DML-TENSOR-ZERO-SIZE": _tensor(
            "A dimension of size 0 is invalid.",
            hint="leave empty tensors out of the operator",
        ),
        "DML-TENSOR-ELEMENT-COUNT": _tensor(
            "A buffer tensor has at most 2^32-1 elements.",
            hint="split the tensor along an outer dimension first",
        ),
        "DML-TENSOR-STRIDE-COUNT": _tensor(
            "Strides, if given, has one entry for each dimension.",
            hint="give one stride per dimension, or none at all",
        ),
        "DML-TENSOR-SIZE-SMALL": _tensor(
            "TotalTensorSizeInBytes is at least what DMLCalcBufferTensorSize returns.",
            hint="raise TotalTensorSizeInBytes",
        ),
        "DML-TENSOR-SIZE-DWORD": _helpers(
            "TotalTensorSizeInBytes is a multiple of 4.",
            hint="round TotalTensorSizeInBytes up to a multiple of 4",
        ),
        "DML-TENSOR-SIZE-WRAP": _helpers(
            "The last element index fits 32 bits; DMLCalcBufferTensorSize wraps around.",
            hint="use smaller strides, or split the tensor along an outer dimension first",
        ),
        "DML-TENSOR-ALIGNMENT": _tensor(
            "GuaranteedBaseOffsetAlignment is 0, or a power of two not below the element size.",
            hint="use 0, or a power of two such as 16 or 32",
        ),
        "DML-TENSOR-OWNED-OUTPUT": _flags(
            "DML_TENSOR_FLAG_OWNED_BY_DML is for inputs only.",
            hint="clear the flag on outputs",
        ),
        "DML-TENSOR-OUTPUT-OVERLAP": _silent(
            "No two elements of an output share an address.",
            hint="give outputs strides that keep elements apart",
        ),
        "DML-SPLIT-OUTPUT-COUNT": _split(
            "OutputCount is greater than 0.",
            hint="give at least one output",
        ),
        "DML-SPLIT-AXIS-RANGE": _split(
            "Axis is below the input's DimensionCount.",
            hint="count the axis from 0 at the outermost dimension",
        ),
        "DML-SPLIT-DATA-TYPE-MATCH": _split(
            "Every output has the data type of the input.",
            hint="give the output the input's data type",
        ),
        "DML-SPLIT-DIMENSION-COUNT-MATCH": _split(
            "Every output has as many dimensions as the input.",
            hint="give the output the input's number of dimensions",
        ),
        "DML-SPLIT-SIZE-MATCH": _split(
            "Outputs have the input's sizes, except along Axis.",
            hint="give the output the input's size",
        ),
        "DML-SPLIT-AXIS-SUM": _split(
            "The outputs' sizes along Axis add up to the input's.",
            hint="change the sizes along the axis so that they add up",
        ),
        "DML-LEVEL-DATA-TYPE": _split(
            "The feature level supports the tensor's data type for Split.",
            hint=_RAISE + AT_ANY_LEVEL["DML-LEVEL-DATA-TYPE"],
        ),
        "DML-LEVEL-DIMENSION-COUNT": _split(
            "The feature level supports the tensor's dimension count for Split.",
            hint=_RAISE + AT_ANY_LEVEL["DML-LEVEL-DIMENSION-COUNT"],
        ),
        "DML-BIND-COUNT": _bind_outputs(
            "One buffer is bound for each tensor of the operator.",
            hint="bind exactly one buffer per tensor",
        ),
        "DML-BIND-KIND": _bind_inputs(
            "A binding is an array on the operator's device, or a BufferBinding of one.",
            hint="pass an array that lives on the device of the operator",
        ),
        "DML-BIND-OFFSET-ALIGNMENT": _buffer_binding(
            "Offset is a multiple of DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT (16).",
            hint="move the tensor to an offset that is a multiple of 16",
        ),
        "DML-BIND-GUARANTEED-ALIGNMENT": _tensor(
            "Offset is a multiple of the tensor's GuaranteedBaseOffsetAlignment.",
            hint="move the tensor, or lower GuaranteedBaseOffsetAlignment",
            hresult=_DEVICE_REMOVED,
        ),
        "DML-BIND-RANGE": _buffer_binding(
            "The bound range is inside the buffer.",
            hint="use a larger buffer, a lower offset or a smaller range",
        ),
        "DML-BIND-SIZE": _tensor(
            "SizeInBytes is at least the tensor's TotalTensorSizeInBytes.",
            hint="bind a larger range",
            hresult=_DEVICE_REMOVED,
        ),
        "DML-BIND-READ-ONLY": _access(
            "An output can be written.",
            hint="pass a writable array",
        ),
        "DML-BIND-OUTPUT-OVERLAP": _bind_outputs(
            "The writeable areas of two outputs do not overlap.",
            hint="give every output memory of its own",
        ),
        "DML-BIND-IN-PLACE": _bind_outputs(
            "No output overlaps the input: Split has no in-place execution.",
            hint="give the output memory of its own",
        ),
        "DML-ARRAY-DATA-TYPE": _untyped(
            "A bound array has the tensor's data type, in native byte order.",
            hint="convert the array, or view the same bytes as the tensor's type",
        ),
        "DML-ARRAY-SHAPE": _untyped(
            "A bound array has the tensor's sizes.",
            hint="reshape the array, or bind it as a BufferBinding",
        ),
        "DML-ARRAY-STRIDES": _untyped(
            "A bound array has the tensor's strides.",
            hint="copy the array to the tensor's layout, or describe the array's strides",
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule in one field.

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
    fix : str
        How to comply here, where that is not the rule's own hint.
    """

    rule: Rule
    tensor: str
    field: str
    found: str
    allowed: str
    fix: str = ""

    @property
    def place(self) -> str:
        """Tensor and field, joined by a dot."""
        return ".".join(part for part in (self.tensor, self.field) if part)

    @property
    def hint(self) -> str:
        """How to comply."""
        return self.fix or self.rule.hint

    def __str__(self) -> str:
        return (
            f"{self.rule.id} {self.place}: is {self.found}; must be {self.allowed}."
            f" Fix: {self.hint}."
        )


# What a check finds in a tensor: rule id, field, found, allowed.
Broken: TypeAlias = tuple[str, str, object, object]


def violations_of(tensor: str, broken: Iterable[Broken]) -> Iterator[Violation]:
    """Add the tensor, empty for the operator itself, to what a check has found."""
    for rule_id, field, found, allowed in broken:
        yield Violation(RULES[rule_id], tensor, field, str(found), str(allowed))


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """Every broken rule of one descriptor or binding.

    Attributes
    ----------
    subject : str
        The descriptor in one line.
    level : str
        The feature level it was checked for, such as ``3_0``; empty for none.
    violations : tuple of Violation
        Empty if no rule is broken.
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
        return tuple(dict.fromkeys(violation.rule.id for violation in self.violations))

    def __str__(self) -> str:
        at = f" at feature level {self.level}" if self.level else ""
        if self.ok:
            return f"{self.subject}{at}: ok"
        count = len(self.violations)
        lines = [f"{self.subject}{at}: {counted(count, 'rule')} broken"]
        lines += [f"  {violation}" for violation in self.violations[: self.SHOWN]]
        if count > self.SHOWN:
            lines.append(f"  ... and {count - self.SHOWN} more")
        return "\n".join(lines)


def report(subject: object, level: object, violations: Iterable[Violation]) -> ValidationReport:
    """Return the report of some violations."""
    return ValidationReport(str(subject), str(level or ""), tuple(violations))
