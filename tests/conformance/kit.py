"""The kit: a folder with the cases, DxDispatch models of them, and the probe.

Both dxdispatch.exe and dmlsplit's front end can run the models. Each case has its own model,
because a refused operator ends the run of the whole model. All buffers are bytes.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dmlsplit.directml.levels import FeatureLevel
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.tensor import TensorDesc, TensorFlags
from tests.conformance.case import Case, Placed, Placement, input_bytes, is_small, output_hashes
from tests.conformance.cases import all_cases
from tests.conformance.probe import POISON, SCHEMA, json_lines

# Operators with tensors of this size are created but not compiled, because DirectML might allocate
# the tensors.
_HUGE_BYTES = 1 << 30
_GUARD = 64  # the bytes of poison after each tensor, unless the case has a placement


def write_kit(folder: Path) -> int:
    """Write the kit to a new folder; return the number of files."""
    texts = kit()
    folder.mkdir()
    (folder / "dxdispatch").mkdir()
    for path, text in texts.items():
        (folder / path).write_text(text, encoding="utf-8", newline="\n")
    return len(texts)


def kit() -> dict[str, str]:
    """The texts of the kit's files by path; always the same."""
    models = {case.id: _model(case) for case in all_cases() if is_small(case.desc)}
    return {
        "cases.json": _cases_text(),
        **{f"dxdispatch/{name}.json": json.dumps(each) + "\n" for name, each in models.items()},
        "probe.py": Path(__file__).with_name("probe.py").read_text("utf-8"),
    }


def _cases_text() -> str:
    levels = {str(level): int(level) for level in FeatureLevel}
    cases = [_record(case) for case in all_cases()]
    return json_lines({"schema": SCHEMA, "levels": levels, "cases": cases})


def _record(case: Case) -> dict[str, Any]:
    placement = {} if case.placement is None else {"placement": asdict(case.placement)}
    hashes = {"output_sha256": output_hashes(case)} if case.id.startswith("bytes-") else {}
    return {
        "id": case.id,
        "about": case.about,
        "values": case.values,
        **placement,
        "last_stage": _last_stage(case),
        "desc": write_descriptor(case.desc),
        **hashes,
    }


def write_descriptor(desc: SplitOperatorDesc) -> dict[str, Any]:
    """The contents of ``desc`` in the form of `read_descriptor`, with every field."""
    return {
        "InputTensor": _tensor_json(desc.input_tensor),
        "OutputCount": desc.output_count,
        "OutputTensors": list(map(_tensor_json, desc.output_tensors)),
        "Axis": desc.axis,
    }


def _tensor_json(tensor: TensorDesc) -> dict[str, Any]:
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


def _last_stage(case: Case) -> str:
    if case.placement is not None:
        return "bind"
    tensors = (case.desc.input_tensor, *case.desc.output_tensors)
    largest = max(max(t.total_tensor_size_in_bytes, t.minimum_size_in_bytes) for t in tensors)
    return "create" if largest >= _HUGE_BYTES else "compile"


def _model(case: Case) -> dict[str, Any]:
    """A model that dispatches a case and writes the whole buffer of each output."""
    place = case.placement or _apart(case.desc)
    bound = {
        "InputTensor": _binding(place, place.input_tensor),
        "OutputTensors": [_binding(place, each) for each in place.output_tensors],
    }
    dispatchable = {"type": "DML_OPERATOR_SPLIT", "desc": write_descriptor(case.desc)}
    if case.desc.input_tensor.flags & TensorFlags.OWNED_BY_DML:
        dispatchable["bindings"] = {"InputTensor": bound.pop("InputTensor")}
    dispatch = {"type": "dispatch", "dispatchable": case.id, "bindings": bound}
    path = f"outputs/{case.id}"
    writes = [
        {"type": "writeFile", "resource": str(each.buffer), "targetPath": f"{path}-{index}.bin"}
        for index, each in enumerate(place.output_tensors)
    ]
    return {
        "resources": {str(n): _resource(case, place, n) for n in range(len(place.buffers))},
        "dispatchables": {case.id: dispatchable},
        "commands": [dispatch, *writes],
    }


def _apart(desc: SplitOperatorDesc) -> Placement:
    """A placement with each tensor in its own buffer."""
    tensors = (desc.input_tensor, *desc.output_tensors)
    sizes = tuple((t.total_tensor_size_in_bytes + _GUARD + 3) // 4 * 4 for t in tensors)
    return Placement(sizes, Placed(0), tuple(Placed(i) for i in range(1, len(tensors))))


def _resource(case: Case, place: Placement, index: int) -> dict[str, Any]:
    """A buffer of poison; if the input is placed in it, with as much of the input as fits."""
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
