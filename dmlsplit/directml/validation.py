"""Holds a descriptor against every rule, and against a feature level.

Each check yields the violations it finds and never raises: a report lists all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from dmlsplit.directml.level_table import capability_table
from dmlsplit.directml.levels import FeatureLevel, Level, LevelSupport, TensorSupport
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.overlap import may_overlap_itself
from dmlsplit.directml.rules import ValidationReport, Violation, report, violation
from dmlsplit.directml.tensor import (
    DIMENSION_COUNT_MAX,
    UINT64_MAX,
    UINT_MAX,
    TensorDataType,
    TensorDesc,
    TensorFlags,
    last_element_index,
    wrapped_buffer_tensor_size,
)


def validate(desc: SplitOperatorDesc, feature_level: Level = "6_4") -> ValidationReport:
    """Report every rule that a descriptor breaks at a feature level.

    Parameters
    ----------
    desc
        The descriptor; it may be as bad as can be, this never raises for it.
    feature_level
        Anything that `FeatureLevel.parse` reads.

    Raises
    ------
    ValueError
        If there is no such level.
    """
    level = FeatureLevel.parse(feature_level)
    found = [*_descriptor(desc), *_level(desc, capability_table()[level])]
    return report(desc, level, found)


def minimum_feature_level(desc: SplitOperatorDesc) -> FeatureLevel | None:
    """Return the lowest level that accepts a descriptor, or None if none does."""
    if next(_descriptor(desc), None) is not None:
        return None
    for level, support in capability_table().items():
        if next(_level(desc, support), None) is None:
            return level
    return None


def _tensors(desc: SplitOperatorDesc) -> Iterator[tuple[str, TensorDesc]]:
    yield "InputTensor", desc.input_tensor
    for index, tensor in enumerate(desc.output_tensors):
        yield f"OutputTensors[{index}]", tensor


def _descriptor(desc: SplitOperatorDesc) -> Iterator[Violation]:
    for name, tensor in _tensors(desc):
        yield from _tensor(name, tensor)
        if name != "InputTensor":
            yield from _output(name, tensor)
    yield from _split(desc)


def _tensor(name: str, tensor: TensorDesc) -> Iterator[Violation]:
    if tensor.data_type is TensorDataType.UNKNOWN:
        yield violation("DML-TENSOR-DATA-TYPE", name, "DataType", "UNKNOWN", "a known type")
    if not 1 <= tensor.dimension_count <= DIMENSION_COUNT_MAX:
        yield violation(
            "DML-TENSOR-DIMENSION-COUNT",
            name,
            "DimensionCount",
            tensor.dimension_count,
            f"1 to {DIMENSION_COUNT_MAX}",
        )
    for index, size in enumerate(tensor.sizes):
        if size == 0:
            yield violation("DML-TENSOR-ZERO-SIZE", name, f"Sizes[{index}]", 0, "at least 1")
    if tensor.strides is not None and len(tensor.strides) != tensor.dimension_count:
        yield violation(
            "DML-TENSOR-STRIDE-COUNT",
            name,
            "Strides",
            f"{len(tensor.strides)} entries",
            f"{tensor.dimension_count} entries, one per dimension",
        )
    yield from _unsigned(name, tensor)
    yield from _extent(name, tensor)
    yield from _alignment(name, tensor)


def _unsigned(name: str, tensor: TensorDesc) -> Iterator[Violation]:
    fields = [(f"Sizes[{i}]", size, UINT_MAX) for i, size in enumerate(tensor.sizes)]
    fields += [(f"Strides[{i}]", step, UINT_MAX) for i, step in enumerate(tensor.strides or ())]
    fields += [
        ("TotalTensorSizeInBytes", tensor.total_tensor_size_in_bytes, UINT64_MAX),
        ("GuaranteedBaseOffsetAlignment", tensor.guaranteed_base_offset_alignment, UINT_MAX),
    ]
    for field, value, most in fields:
        if not 0 <= value <= most:
            yield violation("DML-UINT-RANGE", name, field, value, f"0 to {most}")


def _has_extent(tensor: TensorDesc) -> bool:
    """Whether sizes and strides are sound enough to do arithmetic on them."""
    strides = tensor.strides or ()
    return (
        all(0 < size <= UINT_MAX for size in tensor.sizes)
        and all(0 <= stride <= UINT_MAX for stride in strides)
        and len(strides) in (0, tensor.dimension_count)
    )


def _extent(name: str, tensor: TensorDesc) -> Iterator[Violation]:
    total = tensor.total_tensor_size_in_bytes
    if total % 4:
        yield violation(
            "DML-TENSOR-SIZE-DWORD", name, "TotalTensorSizeInBytes", total, "a multiple of 4"
        )
    if not _has_extent(tensor):
        return
    if tensor.element_count > UINT_MAX:
        yield violation(
            "DML-TENSOR-ELEMENT-COUNT",
            name,
            "Sizes",
            f"{tensor.element_count} elements",
            f"at most {UINT_MAX}",
        )
    if total < tensor.minimum_size_in_bytes:
        yield violation(
            "DML-TENSOR-SIZE-SMALL",
            name,
            "TotalTensorSizeInBytes",
            total,
            f"at least {tensor.minimum_size_in_bytes}",
        )
    if tensor.strides is not None:
        last = last_element_index(tensor.sizes, tensor.strides)
        if last > UINT_MAX:
            wrapped = wrapped_buffer_tensor_size(tensor.data_type, tensor.sizes, tensor.strides)
            yield violation(
                "DML-TENSOR-SIZE-WRAP",
                name,
                "Strides",
                f"reaching element {last} (DMLCalcBufferTensorSize wraps to {wrapped} bytes)",
                f"at most element {UINT_MAX}",
            )


def _alignment(name: str, tensor: TensorDesc) -> Iterator[Violation]:
    alignment = tensor.guaranteed_base_offset_alignment
    power_of_two = alignment > 0 and alignment & (alignment - 1) == 0
    if alignment > 0 and not (power_of_two and alignment * 8 >= tensor.data_type.bits):
        yield violation(
            "DML-TENSOR-ALIGNMENT",
            name,
            "GuaranteedBaseOffsetAlignment",
            alignment,
            f"0, or a power of two of at least {max(1, tensor.element_bytes)}",
        )


def _output(name: str, tensor: TensorDesc) -> Iterator[Violation]:
    if tensor.flags & TensorFlags.OWNED_BY_DML:
        yield violation("DML-TENSOR-OWNED-OUTPUT", name, "Flags", "OWNED_BY_DML", "NONE")
    if (
        tensor.strides is not None
        and _has_extent(tensor)
        and may_overlap_itself(tensor.sizes, tensor.strides)
    ):
        yield violation(
            "DML-TENSOR-OUTPUT-OVERLAP",
            name,
            "Strides",
            list(tensor.strides),
            f"strides that keep the elements of sizes {list(tensor.sizes)} apart",
        )


def _split(desc: SplitOperatorDesc) -> Iterator[Violation]:
    source = desc.input_tensor
    if not desc.output_tensors:
        yield violation("DML-SPLIT-OUTPUT-COUNT", "", "OutputCount", 0, "greater than 0")
    in_range = 0 <= desc.axis < source.dimension_count
    if not 0 <= desc.axis <= UINT_MAX:
        yield violation("DML-UINT-RANGE", "", "Axis", desc.axis, f"0 to {UINT_MAX}")
    elif not in_range:
        allowed = f"below the input's DimensionCount, {source.dimension_count}"
        yield violation("DML-SPLIT-AXIS-RANGE", "", "Axis", desc.axis, allowed)
    for index, tensor in enumerate(desc.output_tensors):
        yield from _matches_input(f"OutputTensors[{index}]", tensor, desc)
    comparable = all(t.dimension_count == source.dimension_count for t in desc.output_tensors)
    if in_range and comparable and desc.output_tensors:
        whole = source.sizes[desc.axis]
        total = sum(desc.split_sizes)
        if total != whole:
            yield violation(
                "DML-SPLIT-AXIS-SUM",
                "OutputTensors",
                f"Sizes[{desc.axis}]",
                f"{total} in sum",
                f"{whole}, the input's Sizes[{desc.axis}]",
            )


def _matches_input(name: str, tensor: TensorDesc, desc: SplitOperatorDesc) -> Iterator[Violation]:
    source = desc.input_tensor
    if tensor.data_type is not source.data_type:
        yield violation(
            "DML-SPLIT-DATA-TYPE-MATCH",
            name,
            "DataType",
            tensor.data_type.name,
            f"{source.data_type.name}, as in InputTensor",
        )
    if tensor.dimension_count != source.dimension_count:
        yield violation(
            "DML-SPLIT-DIMENSION-COUNT-MATCH",
            name,
            "DimensionCount",
            tensor.dimension_count,
            f"{source.dimension_count}, as in InputTensor",
        )
        return
    if not 0 <= desc.axis < source.dimension_count:
        return  # any dimension could be the one that may differ
    for index, (found, wanted) in enumerate(zip(tensor.sizes, source.sizes, strict=True)):
        if index != desc.axis and found != wanted:
            allowed = f"{wanted}, as in InputTensor"
            yield violation("DML-SPLIT-SIZE-MATCH", name, f"Sizes[{index}]", found, allowed)


def _level(desc: SplitOperatorDesc, support: LevelSupport) -> Iterator[Violation]:
    for name, tensor in _tensors(desc):
        row = support.input_tensor if name == "InputTensor" else support.output_tensors
        yield from _level_tensor(name, tensor, row, support.level)


def _level_tensor(
    name: str, tensor: TensorDesc, row: TensorSupport, level: FeatureLevel
) -> Iterator[Violation]:
    known = tensor.data_type is not TensorDataType.UNKNOWN
    if known and tensor.data_type not in row.data_types:
        types = ", ".join(kind.name for kind in sorted(row.data_types))
        allowed = f"one of {types} at {level}"
        yield violation("DML-LEVEL-DATA-TYPE", name, "DataType", tensor.data_type.name, allowed)
    least, most = row.minimum_dimensions, row.maximum_dimensions
    # A count that no level accepts is reported once, as DML-TENSOR-DIMENSION-COUNT.
    if 1 <= tensor.dimension_count <= DIMENSION_COUNT_MAX and not (
        least <= tensor.dimension_count <= most
    ):
        allowed = f"{least} at {level}" if least == most else f"{least} to {most} at {level}"
        yield violation(
            "DML-LEVEL-DIMENSION-COUNT", name, "DimensionCount", tensor.dimension_count, allowed
        )
