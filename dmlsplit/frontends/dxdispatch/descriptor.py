"""DML_SPLIT_OPERATOR_DESC as DxDispatch writes it in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.tensor import UINT64_MAX, UINT_MAX, TensorDesc, TensorFlags
from dmlsplit.frontends.dxdispatch.strict_json import Field
from dmlsplit.frontends.dxdispatch.values import data_type_of

SPLIT_NAMES = {"SPLIT", "DML_OPERATOR_SPLIT"}


def read_descriptor(mapping: Mapping[str, Any]) -> SplitOperatorDesc:
    """Read a descriptor in the form of DxDispatch.

    Parameters
    ----------
    mapping
        ``{"type": "DML_OPERATOR_SPLIT", "desc": {...}}``, or the contents of ``desc`` alone:
        ``InputTensor``, ``OutputTensors``, ``Axis`` and perhaps ``OutputCount``. Names of
        enums may leave out their prefix; tensors may be wrapped in ``Type`` and ``Desc``.

    Raises
    ------
    InvalidArgumentError
        If a field is missing or has the wrong kind of value, or OutputCount or DimensionCount
        contradict the arrays beside them. DirectML's rules are left to `validate`.
    """
    return read_split(Field(mapping, ""))


def read_split(field: Field) -> SplitOperatorDesc:
    """Read a descriptor from a field; see `read_descriptor`."""
    kind = field.find("Type", "type")
    if kind is not None and kind.text() not in SPLIT_NAMES:
        raise kind.error("DML_OPERATOR_SPLIT")
    desc = field.find("Desc", "desc") or field
    input_tensor = _tensor(desc.get("InputTensor"))
    outputs = [_tensor(entry) for entry in desc.get("OutputTensors").items()]
    count = desc.find("OutputCount")
    if count is not None and count.integer(0, UINT_MAX) != len(outputs):
        raise count.error(f"{len(outputs)}, the number of OutputTensors")
    return SplitOperatorDesc(input_tensor, outputs, desc.get("Axis").integer())


def _tensor(field: Field) -> TensorDesc:
    kind = field.find("Type")
    if kind is not None:
        kind.one_of({"BUFFER": None}, "DML_TENSOR_TYPE_")
    field = field.find("Desc") or field
    sizes = [entry.integer() for entry in field.get("Sizes").items()]
    dimensions = field.find("DimensionCount")
    if dimensions is not None and dimensions.integer(0, UINT_MAX) != len(sizes):
        raise dimensions.error(f"{len(sizes)}, the number of Sizes")
    strides = field.find("Strides")
    total = field.optional("TotalTensorSizeInBytes", UINT64_MAX)
    return TensorDesc(
        data_type_of(field.get("DataType")),
        sizes,
        # As in DxDispatch, an empty list of strides and a size of 0 mean those of a packed tensor.
        strides=([entry.integer() for entry in strides.items()] or None) if strides else None,
        flags=_flags(field.find("Flags")),
        total_tensor_size_in_bytes=total or None,
        guaranteed_base_offset_alignment=field.optional("GuaranteedBaseOffsetAlignment", UINT_MAX),
    )


def _flags(field: Field | None) -> TensorFlags:
    flags = TensorFlags.NONE
    names = {"NONE": TensorFlags.NONE, "OWNED_BY_DML": TensorFlags.OWNED_BY_DML}
    for entry in field.one_or_many() if field else []:
        flags |= entry.one_of(names, "DML_TENSOR_FLAG_")
    return flags
