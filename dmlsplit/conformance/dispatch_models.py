"""The cases as DxDispatch models, which dxdispatch.exe and dmlsplit's own front end run.

A case that every level accepts shares a model with the others of its kind. Every other case has
a model of its own, because one refused operator ends the whole model. All buffers are bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from dmlsplit.conformance.byte_cases import input_bytes, is_small
from dmlsplit.conformance.case import Case, Placed, Placement, by_level
from dmlsplit.conformance.desc_json import desc_json
from dmlsplit.directml.tensor import TensorFlags

SHARED = "accepted"
# What a buffer holds before a dispatch, and how many bytes of it lie behind each tensor.
POISON = 0xA5
GUARD = 64


def models(cases: Iterable[Case]) -> Iterator[tuple[str, dict[str, Any], list[Case]]]:
    """Yield the name of each model, the model, and its cases."""
    shared = []
    for case in cases:
        if not is_small(case.desc):
            continue
        if case.placement is None and all(now.accepted for _, now in by_level(case)):
            shared.append(case)
        else:
            yield case.id, _model([case]), [case]
    if shared:
        yield SHARED, _model(shared), shared


def output_file(case: Case, index: int) -> str:
    """Return where a model writes the whole buffer of an output, from the model's folder."""
    return f"outputs/{case.id}-{index}.bin"


def placement_of(case: Case) -> Placement:
    """Return where the tensors of a case are: each in a buffer of its own, unless it says where."""
    if case.placement is not None:
        return case.placement
    tensors = (case.desc.input_tensor, *case.desc.output_tensors)
    sizes = tuple((t.total_tensor_size_in_bytes + GUARD + 3) // 4 * 4 for t in tensors)
    return Placement(sizes, Placed(0), tuple(Placed(i) for i in range(1, len(tensors))))


def _model(cases: list[Case]) -> dict[str, Any]:
    resources: dict[str, Any] = {}
    dispatchables: dict[str, Any] = {}
    dispatches, writes = [], []
    for case in cases:
        placement = placement_of(case)
        for index, size in enumerate(placement.buffers):
            resources[_buffer(case, index)] = _resource(case, placement, index, size)
        source = _binding(case, placement, placement.input_tensor)
        outputs = [_binding(case, placement, each) for each in placement.output_tensors]
        bindings: dict[str, Any] = {"OutputTensors": outputs}
        dispatchables[case.id] = {"type": "DML_OPERATOR_SPLIT", "desc": desc_json(case.desc)}
        if case.desc.input_tensor.flags & TensorFlags.OWNED_BY_DML:
            dispatchables[case.id]["bindings"] = {"InputTensor": source}
        else:
            bindings = {"InputTensor": source, **bindings}
        dispatches.append({"type": "dispatch", "dispatchable": case.id, "bindings": bindings})
        writes += [
            {
                "type": "writeFile",
                "resource": _buffer(case, each.buffer),
                "targetPath": output_file(case, index),
            }
            for index, each in enumerate(placement.output_tensors)
        ]
    return {"resources": resources, "dispatchables": dispatchables, "commands": dispatches + writes}


def _buffer(case: Case, index: int) -> str:
    return f"{case.id}.{index}"


def _resource(case: Case, placement: Placement, index: int, size: int) -> dict[str, Any]:
    """Fill a buffer with poison, and with the input if it is there, as far as it fits."""
    values: Any = {"valueCount": size, "value": POISON}
    if placement.input_tensor.buffer == index:
        offset = placement.input_tensor.offset
        held = bytearray([POISON] * size)
        given = input_bytes(case)[: size - offset]
        held[offset : offset + len(given)] = given
        values = list(held)
    return {"initialValuesDataType": "UINT8", "initialValues": values, "sizeInBytes": size}


def _binding(case: Case, placement: Placement, placed: Placed) -> dict[str, Any]:
    return {
        "name": _buffer(case, placed.buffer),
        "elementCount": placement.buffers[placed.buffer] - placed.offset,
        "elementSizeInBytes": 1,
        "elementOffset": placed.offset,
    }
