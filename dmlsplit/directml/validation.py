"""Checks a descriptor against every rule of DirectML and of a feature level.

A check yields what it finds and never raises, so that a report lists every broken rule.
"""

# So that help() and Sphinx show aliases by name.
from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import TypeAlias

from dmlsplit.checks import instance
from dmlsplit.directml.levels import NEWEST, FeatureLevel, LevelSupport, support_table
from dmlsplit.directml.operator import SplitOperatorDesc, named_tensors
from dmlsplit.directml.rules import RULES, BrokenRule, violation_of
from dmlsplit.directml.rules.violation import ValidationReport, Violation
from dmlsplit.directml.self_overlap import may_overlap_itself
from dmlsplit.directml.tensor import (
    DIMENSION_COUNT_MAX,
    UINT64_MAX,
    UINT_MAX,
    TensorDataType,
    TensorDesc,
    TensorFlags,
)
from dmlsplit.messages import digits

# The name of a tensor, or "" for the operator itself, and the rules that it breaks.
_Findings: TypeAlias = Iterator[tuple[str, Iterator[BrokenRule]]]

# Begins the hint of a rule that a higher feature level relaxes.
_RAISE = "raise the feature level, or "


def validate(
    desc: SplitOperatorDesc, feature_level: FeatureLevel | str | int = NEWEST
) -> ValidationReport:
    """The report of every rule that a descriptor breaks at a feature level.

    Each violation has its rule, and the rule its source: a document of Microsoft, or the statement
    that it is a choice of dmlsplit where these are silent.

    Parameters
    ----------
    desc : SplitOperatorDesc
        The descriptor. A rule that it breaks is reported and raises no error.
    feature_level : FeatureLevel, str or int
        Anything that `FeatureLevel.parse` reads; the newest level if none is given.

    Returns
    -------
    ValidationReport
        Every broken rule; its `ok` is True if no rule is broken.

    Raises
    ------
    InvalidArgumentError
        If there is no such level, or `desc` is not a descriptor at all; the latter error is also
        a TypeError.

    See Also
    --------
    minimum_feature_level : The lowest level that accepts the descriptor.
    legalize : An equivalent that a lower level accepts.

    Examples
    --------
    >>> import dmlsplit as dml
    >>> x = dml.TensorDesc("INT64", (1, 1, 1, 6))
    >>> desc = dml.SplitOperatorDesc.from_sizes(x, axis=3, sizes=(2, 5))
    >>> dml.validate(desc, feature_level="4_0").rule_ids
    ('DML-SPLIT-AXIS-SUM', 'DML-LEVEL-DATA-TYPE')
    >>> dml.validate(desc).violations[0].message
    'OutputTensors.Sizes[3] add up to 7; they must add up to 6, which is InputTensor.Sizes[3]'
    """
    level = FeatureLevel.parse(feature_level)
    instance("desc", desc, SplitOperatorDesc)
    return report_at(desc, level)


def report_at(desc: SplitOperatorDesc, level: FeatureLevel) -> ValidationReport:
    """The report of `validate`, for a descriptor and a level that are parsed already."""
    return ValidationReport(str(desc), str(level), violations_at(desc, level))


@lru_cache(maxsize=1024)  # a model has many splits, but few different descriptors
def violations_at(desc: SplitOperatorDesc, level: FeatureLevel) -> tuple[Violation, ...]:
    """The violations of `report_at`, without the text of the descriptor."""
    return tuple(violations(desc, support_table()[level]))


def minimum_feature_level(desc: SplitOperatorDesc) -> FeatureLevel | None:
    """The lowest level that accepts a descriptor, or None if none does.

    Parameters
    ----------
    desc : SplitOperatorDesc
        The descriptor.

    Returns
    -------
    FeatureLevel or None
        None if the descriptor breaks a rule that holds at every level.

    Raises
    ------
    InvalidArgumentError
        If `desc` is not a descriptor. The error is also a TypeError.

    See Also
    --------
    validate : Why a level does not accept it.
    legalize : An equivalent that a lower level accepts.

    Examples
    --------
    >>> import dmlsplit as dml
    >>> x = dml.TensorDesc("INT64", (6,))
    >>> print(dml.minimum_feature_level(dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=(2, 4))))
    4_1
    """
    if _has_any(_general_findings(instance("desc", desc, SplitOperatorDesc))):
        return None
    rows = support_table().values()
    return next((row.level for row in rows if not _has_any(_level_findings(desc, row))), None)


def violations(desc: SplitOperatorDesc, support: LevelSupport) -> Iterator[Violation]:
    """Every rule that a descriptor breaks at the level of a row of the support table."""
    for tensor, broken in chain(_general_findings(desc), _level_findings(desc, support)):
        for rule in broken:
            yield violation_of(tensor, rule)


def _has_any(findings: _Findings) -> bool:
    """Whether a rule is broken."""
    return any(next(broken, None) for _, broken in findings)


def _general_findings(desc: SplitOperatorDesc) -> _Findings:
    """The rules of every level, tensor by tensor."""
    (name, source), *outputs = named_tensors(desc)
    yield name, _broken_tensor_rules(source)
    for name, tensor in outputs:
        yield name, chain(_broken_tensor_rules(tensor), _broken_output_rules(tensor))
    yield "", _broken_operator_rules(desc)
    for name, tensor in outputs:
        yield name, _broken_match_rules(tensor, desc)
    yield "OutputTensors", _broken_axis_sum_rules(desc)


def _level_findings(desc: SplitOperatorDesc, support: LevelSupport) -> _Findings:
    """The rules of one level, tensor by tensor."""
    highest = support_table()[NEWEST]
    for name, tensor in named_tensors(desc):
        yield name, _broken_level_rules(tensor, support, highest)


def _broken_tensor_rules(tensor: TensorDesc) -> Iterator[BrokenRule]:
    """Rules of any tensor."""
    rank = tensor.dimension_count
    if tensor.data_type is TensorDataType.UNKNOWN:
        yield BrokenRule("DML-TENSOR-DATA-TYPE", "DataType", "UNKNOWN", "a known type")
    if not 1 <= rank <= DIMENSION_COUNT_MAX:
        allowed = f"from 1 to {DIMENSION_COUNT_MAX}"
        yield BrokenRule("DML-TENSOR-DIMENSION-COUNT", "DimensionCount", rank, allowed)
    for index, size in enumerate(tensor.sizes):
        if size == 0:
            yield BrokenRule("DML-TENSOR-ZERO-SIZE", f"Sizes[{index}]", 0, "at least 1")
    if tensor.strides is not None and len(tensor.strides) != rank:
        allowed = f"{rank} entries, one per dimension"
        yield BrokenRule(
            "DML-TENSOR-STRIDE-COUNT", "Strides", f"{len(tensor.strides)} entries", allowed
        )
    yield from _broken_range_rules(tensor)
    yield from _broken_extent_rules(tensor)
    yield from _broken_alignment_rules(tensor)


def _broken_range_rules(tensor: TensorDesc) -> Iterator[BrokenRule]:
    """Numbers that do not fit their fields: a UINT has 32 bits, a UINT64 has 64."""
    total = tensor.total_tensor_size_in_bytes
    alignment = tensor.guaranteed_base_offset_alignment
    fields = [(f"Sizes[{i}]", size, UINT_MAX) for i, size in enumerate(tensor.sizes)]
    fields += [(f"Strides[{i}]", step, UINT_MAX) for i, step in enumerate(tensor.strides or ())]
    fields += [("TotalTensorSizeInBytes", total, UINT64_MAX)]
    fields += [("GuaranteedBaseOffsetAlignment", alignment, UINT_MAX)]
    for field, value, limit in fields:
        if not 0 <= value <= limit:
            yield BrokenRule("DML-UINT-RANGE", field, value, f"from 0 to {limit}")


def _has_extent(tensor: TensorDesc) -> bool:
    """Whether sizes and strides are valid enough to compute with."""
    strides = tensor.strides
    has_all = strides is None or len(strides) == tensor.dimension_count
    are_sizes = all(0 < size <= UINT_MAX for size in tensor.sizes)
    return has_all and are_sizes and all(0 <= step <= UINT_MAX for step in strides or ())


def _broken_extent_rules(tensor: TensorDesc) -> Iterator[BrokenRule]:
    """Rules of the number of elements and of TotalTensorSizeInBytes."""
    total = tensor.total_tensor_size_in_bytes
    minimum = tensor.minimum_size_in_bytes
    count = tensor.element_count
    last = tensor.last_element_index
    if total % 4:
        yield BrokenRule(
            "DML-TENSOR-SIZE-DWORD", "TotalTensorSizeInBytes", total, "a multiple of 4"
        )
    if not _has_extent(tensor):
        return
    if count > UINT_MAX:
        elements = f"{digits(count)} elements"
        allowed = f"at most {UINT_MAX}"
        yield BrokenRule("DML-TENSOR-ELEMENT-COUNT", "Sizes", elements, allowed)
    if total < minimum:
        allowed = f"at least {digits(minimum)}"
        yield BrokenRule("DML-TENSOR-SIZE-SMALL", "TotalTensorSizeInBytes", total, allowed)
    if tensor.strides is not None and last > UINT_MAX:
        wrapped = f"DMLCalcBufferTensorSize wraps to {digits(tensor.wrapped_size_in_bytes)} bytes"
        reached = f"element {digits(last)} ({wrapped})"
        yield BrokenRule("DML-TENSOR-SIZE-WRAP", "Strides", reached, f"at most element {UINT_MAX}")


def _broken_alignment_rules(tensor: TensorDesc) -> Iterator[BrokenRule]:
    """The rule of GuaranteedBaseOffsetAlignment."""
    alignment = tensor.guaranteed_base_offset_alignment
    minimum = max(1, tensor.element_bytes)
    # Zero promises nothing; a negative value is reported by DML-UINT-RANGE.
    if alignment > 0 and (alignment < minimum or alignment & (alignment - 1)):
        allowed = f"0, or a power of two of at least {minimum}"
        yield BrokenRule(
            "DML-TENSOR-ALIGNMENT", "GuaranteedBaseOffsetAlignment", alignment, allowed
        )


def _broken_output_rules(tensor: TensorDesc) -> Iterator[BrokenRule]:
    """Rules of an output alone: DirectML writes it, and each element once."""
    sizes = tensor.sizes
    strides = tensor.strides
    if tensor.flags & TensorFlags.OWNED_BY_DML:
        yield BrokenRule("DML-TENSOR-OWNED-OUTPUT", "Flags", "OWNED_BY_DML", "NONE")
    if strides is not None and _has_extent(tensor) and may_overlap_itself(sizes, strides):
        allowed = f"a distinct address for each element of sizes {list(sizes)}"
        yield BrokenRule("DML-TENSOR-OUTPUT-OVERLAP", "Strides", list(strides), allowed)


def _broken_operator_rules(desc: SplitOperatorDesc) -> Iterator[BrokenRule]:
    """Rules of OutputCount and Axis."""
    rank = desc.input_tensor.dimension_count
    if not desc.output_tensors:
        yield BrokenRule("DML-SPLIT-OUTPUT-COUNT", "OutputCount", 0, "greater than 0")
    if not 0 <= desc.axis <= UINT_MAX:
        # Negative axes are a common cause.
        fix = f"{RULES['DML-UINT-RANGE'].hint}; count the axis from the front"
        yield BrokenRule("DML-UINT-RANGE", "Axis", desc.axis, f"from 0 to {UINT_MAX}", fix)
    elif desc.axis >= rank:
        allowed = f"below the input's DimensionCount, {rank}"
        yield BrokenRule("DML-SPLIT-AXIS-RANGE", "Axis", desc.axis, allowed)


def _broken_match_rules(tensor: TensorDesc, desc: SplitOperatorDesc) -> Iterator[BrokenRule]:
    """What an output must have in common with the input."""
    data_type = desc.input_tensor.data_type
    rank = desc.input_tensor.dimension_count
    if tensor.data_type is not data_type:
        allowed = f"{data_type.name}, as in InputTensor"
        yield BrokenRule("DML-SPLIT-DATA-TYPE-MATCH", "DataType", tensor.data_type.name, allowed)
    if tensor.dimension_count != rank:
        allowed = f"{rank}, as in InputTensor"
        yield BrokenRule(
            "DML-SPLIT-DIMENSION-COUNT-MATCH", "DimensionCount", tensor.dimension_count, allowed
        )
    elif 0 <= desc.axis < rank:  # otherwise any dimension could be the axis
        rows = zip(tensor.sizes, desc.input_tensor.sizes, strict=True)
        for index, (size, input_size) in enumerate(rows):
            if index != desc.axis and size != input_size:
                allowed = f"{digits(input_size)}, as in InputTensor"
                yield BrokenRule("DML-SPLIT-SIZE-MATCH", f"Sizes[{index}]", size, allowed)


def _broken_axis_sum_rules(desc: SplitOperatorDesc) -> Iterator[BrokenRule]:
    """The rule that outputs fill the axis; only if that can be computed."""
    axis = desc.axis
    shape = desc.input_tensor.sizes
    outputs = desc.output_tensors
    comparable = all(tensor.dimension_count == len(shape) for tensor in outputs)
    if not (outputs and comparable and 0 <= axis < len(shape)):
        return
    if (total := sum(desc.split_sizes)) != (axis_size := shape[axis]):
        allowed = f"{digits(axis_size)}, which is InputTensor.Sizes[{axis}]"
        yield BrokenRule("DML-SPLIT-AXIS-SUM", f"Sizes[{axis}]", total, allowed)


def _broken_level_rules(
    tensor: TensorDesc, support: LevelSupport, highest: LevelSupport
) -> Iterator[BrokenRule]:
    """Data types and numbers of dimensions that a level lacks; the `highest` may have them."""
    data_type = tensor.data_type
    rank = tensor.dimension_count
    level = support.level
    if data_type is not TensorDataType.UNKNOWN and data_type not in support.data_types:
        types = ", ".join(supported.name for supported in sorted(support.data_types))
        allowed = f"one of {types} at feature level {level}"
        fix = _level_fix("DML-LEVEL-DATA-TYPE", data_type in highest.data_types)
        yield BrokenRule("DML-LEVEL-DATA-TYPE", "DataType", data_type.name, allowed, fix)
    low = support.minimum_dimensions
    high = support.maximum_dimensions
    # A count that no level accepts is reported once, as DML-TENSOR-DIMENSION-COUNT.
    if 1 <= rank <= DIMENSION_COUNT_MAX and not low <= rank <= high:
        counts = f"{low}" if low == high else f"from {low} to {high}"
        allowed = f"{counts} at feature level {level}"
        is_accepted = highest.minimum_dimensions <= rank <= highest.maximum_dimensions
        fix = _level_fix("DML-LEVEL-DIMENSION-COUNT", is_accepted)
        yield BrokenRule("DML-LEVEL-DIMENSION-COUNT", "DimensionCount", rank, allowed, fix)


def _level_fix(rule_id: str, helps: bool) -> str:
    """The hint of a rule without the advice of a higher level, unless one helps."""
    return "" if helps else RULES[rule_id].hint.removeprefix(_RAISE)
