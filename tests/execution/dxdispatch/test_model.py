"""DxDispatch models with one mistake, and the messages about it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.dxdispatch import (
    A_INTO_B_C_D,
    F32,
    counting,
    dispatch,
    model,
    prints,
    split_desc,
    values,
    writes,
    zeros,
)

Rows = list[tuple[dict[str, Any], str]]
RESOURCES: Rows = [
    ({"initialValuesDataType": F32}, "lacks 'initialValues'"),
    ({"initialValues": [1, 2]}, "needs an initialValuesDataType"),
    (values("FLOAT16", counting(3, 0, 1)), "counts in FLOAT16, which is not supported"),
    (values(F32, []), "initialValues is empty"),
    (values("float32", [1]), "is 'float32'; it must be one of"),
    (values(1, [1]), "is 1; it must be a string"),
    (values("UINT4", [1]), "has the type UINT4; it must be one of FLOAT32"),
    (values("INT8", [128]), "initialValues[0] is 128; it must be an integer from -128 to 127"),
    (values("INT8", [1.0]), "is 1.0; it must be an integer"),
    (values("UINT8", [0, True]), "initialValues[1] is true"),
    (values(F32, ["one"]), "is 'one'; it must be a number, 'nan'"),
    (values(F32, [None]), "is null"),
    (values(F32, [1e39]), "is 1e+39; it must be a number that fits FLOAT32"),
    (values("FLOAT16", [0, 70000]), "[1] is 70000; it must be a number that fits FLOAT16"),
    (values(F32, 3), "is 3; it must be an object"),
    (values(F32, "deferred"), "is 'deferred'; it must be an object"),
    (values(F32, {}), "must be an array, or have one of"),
    (values(F32, {"value": 1, "valueStart": 1, "valueCount": 1}), "one of"),
    (values(F32, {"value": 1}), "lacks 'valueCount'"),
    (values(F32, {"value": 1, "valueCount": 0}), "is 0; it must be an integer from 1"),
    (values(F32, {"value": 1, "valueCount": 2**32}), "valueCount"),
    (values(F32, {"valueStart": 1, "valueCount": 2}), "lacks 'valueDelta'"),
    ({"initialValues": {"value": 1, "valueCount": 2}}, "needs an initialValuesDataType"),
    ({**zeros(4), "sizeInBytes": 15}, "has 16 bytes of initial values at offset 0; its size is"),
    (
        {**zeros(4), "initialValuesOffsetInBytes": 4},
        "at offset 4; its size is 16, and must be at least 20",
    ),
    ({**zeros(4), "sizeInBytes": 10**12}, "is a buffer of 1000000000000 bytes; at most 429"),
    (zeros(2**32 - 1, "FLOAT64"), "is a buffer of"),
    ({**zeros(4), "sizeInBytes": -4}, "sizeInBytes is -4"),
]
# Changes of a dispatchable.
DISPATCHABLES: Rows = [
    ({"type": None}, "type is null"),
    ({"bindings": {"InputTensor": "A"}}, "its InputTensor is not OWNED_BY_DML"),
]
COMMANDS: Rows = [
    ({"type": "sleep"}, "commands[0].type is 'sleep'; it must be 'dispatch', 'print'"),
    ({}, "commands[0] lacks 'type'"),
    ({"type": "print"}, "lacks 'resource'"),
    (prints("Z"), "commands[0] names the resource 'Z', which does not exist; it must be one of ["),
    (dispatch("x"), "names the dispatchable 'x', which does not exist"),
    (dispatch("x" * 100), f"names the dispatchable '{'x' * 38}...{'x' * 39}', which"),
    ({"type": "dispatch", "dispatchable": "cut"}, "lacks 'bindings'"),
    ({**dispatch(), "bindings": []}, "bindings is an array"),
    ({"type": "writeFile", "resource": "A"}, "lacks 'targetPath'"),
    (writes("A", "a.png"), "images are not supported"),
    (writes("A", "model.json"), "model.json is the input"),
    (writes("A", "a.npy", dimensions=[7]), "[7] of 7 elements; the resource has 6"),
    (writes("A", "a.npy", dimensions=[1] * 65), "at most 64"),
    (writes("A", "a.npy", dimensions=[-1]), "is -1"),
    (writes("A", "folder"), "cannot be written: it is a folder"),
    (writes("A", "a" * 300), "aaa cannot be written: File name too long"),
]
BINDINGS: Rows = [
    ({"InputTensor": "A"}, "lacks 'OutputTensors'; it must bind InputTensor and OutputTensors"),
    ({**A_INTO_B_C_D, "Input": "A"}, "binds 'Input'"),
    ({**A_INTO_B_C_D, "InputTensor": ["A", "A"]}, "InputTensor binds 2 resources; it must bind 1"),
    ({**A_INTO_B_C_D, "InputTensor": "Z"}, "names the resource 'Z', which does not exist"),
    ({**A_INTO_B_C_D, "InputTensor": {}}, "lacks 'name'"),
    ({**A_INTO_B_C_D, "InputTensor": 3}, "is 3; it must be an object"),
    ({**A_INTO_B_C_D, "OutputTensors": ["B", "C"]}, "DML-BIND-COUNT"),
    (
        {**A_INTO_B_C_D, "InputTensor": {"name": "A", "elementOffset": 2**40}},
        "has elementOffset 1099511627776, which is byte 4398046511104 of 'A'",
    ),
    ({**A_INTO_B_C_D, "InputTensor": {"name": "A", "elementOffset": -1}}, "elementOffset is -1"),
]
SPLIT = {"type": "SPLIT", "desc": split_desc()}
# By the place that the message names: models with a mistake, and a part of the message.
MISTAKES = [
    *(("resources.X", {"resources": {"X": row}}, text) for row, text in RESOURCES),
    *(("dispatchables.cut", {"dispatchables": {"cut": SPLIT | row}}, text)
      for row, text in DISPATCHABLES),
    *(("", {"commands": [row]}, text) for row, text in COMMANDS),
    *(("commands[0]", {"commands": [dispatch(**row)]}, text) for row, text in BINDINGS),
]  # fmt: skip


@pytest.mark.parametrize(("place", "changes", "message"), MISTAKES)
def test_an_invalid_model_is_refused_with_the_place_of_the_mistake(
    refused: Callable[[Any], str], tmp_path: Path, place: str, changes: Any, message: str
) -> None:
    (tmp_path / "folder").mkdir()
    error_text = refused(model(**changes))
    assert message in error_text
    assert place in error_text
    assert "\n" not in error_text or "DML-BIND-COUNT" in error_text
    assert not list(tmp_path.glob(".*"))
