"""A case as a DxDispatch model, which dxdispatch.exe and dmlsplit's own front end run.

Each case has a model of its own, because one refused operator ends the whole model. All buffers
are bytes.
"""

from typing import Any

from dmlsplit.conformance.byte_cases import input_bytes
from dmlsplit.conformance.case import Case, Placed, Placement
from dmlsplit.conformance.probe import POISON
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.tensor import TensorDesc, TensorFlags

# How many bytes of poison lie behind each tensor, unless a case says where its tensors are.
_GUARD = 64


def desc_json(desc: SplitOperatorDesc) -> dict[str, Any]:
    """Return the contents of ``desc`` as `read_descriptor` reads them, every field given."""
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


def model(case: Case) -> dict[str, Any]:
    """Return a model that dispatches a case, and writes the whole buffer of each output."""
    place = case.placement or _apart(case.desc)
    bound = {
        "InputTensor": _binding(place, place.input_tensor),
        "OutputTensors": [_binding(place, each) for each in place.output_tensors],
    }
    dispatchable = {"type": "DML_OPERATOR_SPLIT", "desc": desc_json(case.desc)}
    if case.desc.input_tensor.flags & TensorFlags.OWNED_BY_DML:
        dispatchable["bindings"] = {"InputTensor": bound.pop("InputTensor")}
    dispatch = {"type": "dispatch", "dispatchable": case.id, "bindings": bound}
    writes = [
        {
            "type": "writeFile",
            "resource": str(each.buffer),
            "targetPath": f"outputs/{case.id}-{index}.bin",
        }
        for index, each in enumerate(place.output_tensors)
    ]
    buffers = range(len(place.buffers))
    return {
        "resources": {str(index): _resource(case, place, index) for index in buffers},
        "dispatchables": {case.id: dispatchable},
        "commands": [dispatch, *writes],
    }


def _apart(desc: SplitOperatorDesc) -> Placement:
    """Place each tensor in a buffer of its own."""
    tensors = (desc.input_tensor, *desc.output_tensors)
    sizes = tuple((t.total_tensor_size_in_bytes + _GUARD + 3) // 4 * 4 for t in tensors)
    return Placement(sizes, Placed(0), tuple(Placed(i) for i in range(1, len(tensors))))


def _resource(case: Case, place: Placement, index: int) -> dict[str, Any]:
    """Fill a buffer with poison, and with the input if it is there, as far as it fits."""
    size = place.buffers[index]
    values: Any = {"valueCount": size, "value": POISON}
    if place.input_tensor.buffer == index:
        before = bytes([POISON] * place.input_tensor.offset)
        values = list((before + input_bytes(case)).ljust(size, bytes([POISON]))[:size])
    return {"initialValuesDataType": "UINT8", "initialValues": values, "sizeInBytes": size}


def _binding(place: Placement, placed: Placed) -> dict[str, Any]:
    return {
        "name": str(placed.buffer),
        "elementCount": place.buffers[placed.buffer] - placed.offset,
        "elementSizeInBytes": 1,
        "elementOffset": placed.offset,
    }
