"""A descriptor in the form of DxDispatch: what its `read_descriptor` reads, every field given."""

from __future__ import annotations

from typing import Any

from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.tensor import TensorDesc


def desc_json(desc: SplitOperatorDesc) -> dict[str, Any]:
    """Return the contents of ``desc``."""
    return {
        "InputTensor": _tensor(desc.input_tensor),
        "OutputCount": desc.output_count,
        "OutputTensors": [_tensor(tensor) for tensor in desc.output_tensors],
        "Axis": desc.axis,
    }


def _tensor(tensor: TensorDesc) -> dict[str, Any]:
    strides = {} if tensor.strides is None else {"Strides": list(tensor.strides)}
    return {
        "DataType": tensor.data_type.name,
        "Flags": tensor.flags.name,
        "DimensionCount": tensor.dimension_count,
        "Sizes": list(tensor.sizes),
        **strides,
        "TotalTensorSizeInBytes": tensor.total_tensor_size_in_bytes,
        "GuaranteedBaseOffsetAlignment": tensor.guaranteed_base_offset_alignment,
    }
