"""DxDispatch models as values: resources, dispatchables and commands."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.dxdispatch import (
    F32,
    dispatch,
    model,
    prints,
    ramp,
    split_desc,
    values,
    writes,
    zeros,
)


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        ({"initialValuesDataType": F32}, "lacks 'initialValues'"),
        ({"initialValues": [1, 2]}, "needs an initialValuesDataType"),
        (values("FLOAT16", ramp(3, 0, 1)), "counts in FLOAT16, which is not supported"),
        (values(F32, []), "initialValues is empty"),
        (values("float32", [1]), "is 'float32'; it must be one of"),
        (values(1, [1]), "is 1; it must be a string"),
        (values("UINT4", [1]), "has the type UINT4, which resources cannot have"),
        (values("INT8", [128]), "initialValues[0] is 128; it must be an integer from -128 to 127"),
        (values("INT8", [1.0]), "is 1.0; it must be an integer"),
        (values("UINT8", [0, True]), "initialValues[1] is true"),
        (values(F32, ["one"]), "is 'one'; it must be a number, 'nan'"),
        (values(F32, [None]), "is null"),
        (values(F32, [1e39]), "is 1e+39; it must be a number that fits FLOAT32"),
        (values("FLOAT16", [0, 70000]), "[1] is 70000; it must be a number that fits FLOAT16"),
        (values(F32, 3), "is 3; it must be an object"),
        (values(F32, "deferred"), "is 'deferred', which is for ONNX"),
        (values(F32, {}), "must be an array, or have one of"),
        (values(F32, {"value": 1, "valueStart": 1, "valueCount": 1}), "one of"),
        (values(F32, {"value": 1}), "lacks 'valueCount'"),
        (values(F32, {"value": 1, "valueCount": 0}), "is 0; it must be an integer from 1"),
        (values(F32, {"value": 1, "valueCount": 2**32}), "valueCount"),
        (values(F32, {"valueStart": 1, "valueCount": 2}), "lacks 'valueDelta'"),
        ({"initialValues": {"value": 1, "valueCount": 2}}, "needs an initialValuesDataType"),
        (
            {**zeros(4), "sizeInBytes": 15},
            "has 16 bytes of initial values at offset 0; its size is",
        ),
        ({**zeros(4), "initialValuesOffsetInBytes": 4}, "at offset 4; its size is 16"),
        ({**zeros(4), "sizeInBytes": 10**12}, "is a buffer of 1000000000000 bytes; at most 429"),
        (zeros(2**32 - 1, "FLOAT64"), "is a buffer of"),
        ({**zeros(4), "sizeInBytes": -4}, "sizeInBytes is -4"),
    ],
)
def test_invalid_resources_are_refused(
    refused: Callable[[Any], str], resource: dict[str, Any], message: str
) -> None:
    said = refused(model(resources={"X": resource}))
    assert message in said
    assert "resources.X" in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"type": None}, "type is null"),
        ({"bindings": {"InputTensor": "A"}}, "its InputTensor is not OWNED_BY_DML"),
    ],
)
def test_invalid_dispatchables_are_refused(
    refused: Callable[[Any], str], changes: dict[str, Any], message: str
) -> None:
    entry = {"type": "SPLIT", "desc": split_desc(), **changes}
    said = refused(model(dispatchables={"cut": entry}))
    assert message in said
    assert "dispatchables.cut" in said
    assert "with or without " not in said or "with or without DML_" in said


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ({"type": "sleep"}, "commands[0].type is 'sleep'; it must be 'dispatch', 'print'"),
        ({}, "commands[0] lacks 'type'"),
        ({"type": "print"}, "lacks 'resource'"),
        (prints("Z"), "commands[0] names the resource 'Z', which does not exist"),
        (dispatch("x"), "names the dispatchable 'x', which does not exist"),
        ({"type": "dispatch", "dispatchable": "cut"}, "lacks 'bindings'"),
        ({**dispatch(), "bindings": []}, "bindings is an array"),
        ({"type": "writeFile", "resource": "A"}, "lacks 'targetPath'"),
        (writes("A", "a.png"), "images are not supported"),
        (writes("A", "model.json"), "model.json is the input"),
        (writes("A", "a.npy", dimensions=[7]), "[7] of 7 elements; the resource has 6"),
        (writes("A", "a.npy", dimensions=[1] * 65), "at most 64"),
        (writes("A", "a.npy", dimensions=[-1]), "is -1"),
        (writes("A", "folder"), "cannot be written"),
    ],
)
def test_invalid_commands_are_refused(
    refused: Callable[[Any], str], tmp_path: Path, command: dict[str, Any], message: str
) -> None:
    (tmp_path / "folder").mkdir()
    said = refused(model(commands=[command]))
    assert message in said
    assert "\n" not in said
    assert not list(tmp_path.glob(".*"))
