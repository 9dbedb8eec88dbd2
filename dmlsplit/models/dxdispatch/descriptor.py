"""DML_SPLIT_OPERATOR_DESC in the JSON of DxDispatch."""

from collections.abc import Mapping
from typing import Any

from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.tensor import (
    DIMENSION_COUNT_MAX,
    UINT64_MAX,
    UINT_MAX,
    TensorDataType,
    TensorDesc,
    TensorFlags,
)
from dmlsplit.files.fields import Field
from dmlsplit.models.limits import MAX_RANK

SPLIT_NAMES = {"SPLIT", "DML_OPERATOR_SPLIT"}


def read_descriptor(mapping: Mapping[str, Any]) -> SplitOperatorDesc:
    """Read a descriptor in the form of DxDispatch.

    Parameters
    ----------
    mapping : mapping of str to object
        ``{"type": "DML_OPERATOR_SPLIT", "desc": {...}}``, or the contents of ``desc`` alone:
        ``InputTensor``, ``OutputTensors``, ``Axis`` and optionally ``OutputCount``. Enum names
        may omit their prefix, and tensors may be wrapped in ``Type`` and ``Desc``.

    Returns
    -------
    SplitOperatorDesc
        The descriptor, which may break DirectML's rules.

    Raises
    ------
    InvalidArgumentError
        If a field is missing or has the wrong kind of value, or if OutputCount or DimensionCount
        contradicts the array that it counts. DirectML's rules are left to `dmlsplit.validate`.

    See Also
    --------
    scan : Finds the descriptors in a file.

    Examples
    --------
    >>> x = {"DataType": "FLOAT32", "Sizes": [6]}
    >>> half = {"DataType": "FLOAT32", "Sizes": [3]}
    >>> desc = {"InputTensor": x, "OutputTensors": [half, half], "Axis": 0}
    >>> print(read_descriptor(desc))
    SPLIT axis 0: FLOAT32[6] -> FLOAT32[3], FLOAT32[3]
    """
    return read_split(Field(mapping))


def read_split(field: Field) -> SplitOperatorDesc:
    """Read a descriptor from a field; see `read_descriptor`."""
    operator = field.optional("Type", "type", default="SPLIT")
    if operator.text() not in SPLIT_NAMES:
        raise operator.error("DML_OPERATOR_SPLIT")
    desc = field.find("Desc", "desc") or field
    input_tensor = _tensor(desc.get("InputTensor"))
    outputs = [_tensor(entry) for entry in desc.get("OutputTensors").items()]
    _check_count(desc, "OutputCount", len(outputs), "OutputTensors")
    return SplitOperatorDesc(input_tensor, outputs, desc.get("Axis").integer())


def data_type_of(field: Field) -> TensorDataType:
    """Read a DML_TENSOR_DATA_TYPE."""
    data_type: TensorDataType = field.one_of(TensorDataType.__members__, "DML_TENSOR_DATA_TYPE_")
    return data_type


def _tensor(field: Field) -> TensorDesc:
    """Read a DML_TENSOR_DESC."""
    field.optional("Type", default="BUFFER").one_of({"BUFFER": None}, "DML_TENSOR_TYPE_")
    field = field.find("Desc") or field
    sizes = _numbers(field.get("Sizes"))
    _check_count(field, "DimensionCount", len(sizes), "Sizes")
    total = field.optional("TotalTensorSizeInBytes", default=0).integer(0, UINT64_MAX)
    data_type = data_type_of(field.get("DataType"))
    strides = _numbers(field.optional("Strides", default=[]))
    flags = TensorFlags.NONE
    for entry in field.optional("Flags", default=[]).one_or_many():
        flags |= entry.one_of(TensorFlags.__members__, "DML_TENSOR_FLAG_")
    alignment = field.optional("GuaranteedBaseOffsetAlignment", default=0).integer(0, UINT_MAX)
    # To DxDispatch, an empty list of strides and a size of 0 mean a packed tensor.
    return TensorDesc(
        data_type,
        sizes,
        strides=strides or None,
        flags=flags,
        total_tensor_size_in_bytes=total or None,
        guaranteed_base_offset_alignment=alignment,
    )


def _numbers(field: Field) -> list[int]:
    """The sizes or strides."""
    entries = field.items()
    if len(entries) > MAX_RANK:
        allowed = f"DirectML takes at most {DIMENSION_COUNT_MAX} dimensions"
        raise field.invalid(f"has {len(entries)} entries; {allowed}")
    return [entry.integer() for entry in entries]


def _check_count(field: Field, name: str, count: int, counted: str) -> None:
    """Refuse a count that contradicts the array that it counts."""
    declared = field.optional(name, default=count)
    if declared.integer(0, UINT_MAX) != count:
        raise declared.error(f"{count}, the number of {counted}")
