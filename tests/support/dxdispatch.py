"""DxDispatch models in JSON, and texts that are not models."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

F32 = "FLOAT32"


def tensor(sizes: list[Any], kind: str = F32, **more: Any) -> dict[str, Any]:
    return {"DataType": kind, "Sizes": sizes, **more}


def split_desc(kind: str = F32, **more: Any) -> dict[str, Any]:
    """A descriptor that splits [6] into [2], [1] and [3]."""
    return {
        "Axis": 0,
        "InputTensor": tensor([6], kind),
        "OutputCount": 3,
        "OutputTensors": [tensor([n], kind) for n in (2, 1, 3)],
        **more,
    }


def zeros(count: int, kind: str = F32) -> dict[str, Any]:
    return values(kind, {"valueCount": count, "value": 0})


def values(kind: Any, initial: Any, **more: Any) -> dict[str, Any]:
    return {"initialValuesDataType": kind, "initialValues": initial, **more}


def counting(count: int, start: float, delta: float) -> dict[str, Any]:
    """Initial values that DxDispatch computes: start, start + delta and so on."""
    return {"valueCount": count, "valueStart": start, "valueDelta": delta}


def model(**changes: Any) -> dict[str, Any]:
    """Splits A, which has 1 to 6, into B, C and D of 2, 1 and 3 values, and prints them."""
    content = {
        "resources": {
            "A": values(F32, [1, 2, 3, 4, 5, 6]),
            **{name: zeros(size) for name, size in zip("BCD", (2, 1, 3), strict=True)},
        },
        "dispatchables": {"cut": {"type": "DML_OPERATOR_SPLIT", "desc": split_desc()}},
        "commands": [dispatch(**A_INTO_B_C_D), *(prints(name) for name in "BCD")],
    }
    for key, value in changes.items():
        if isinstance(value, dict):
            content[key] = {**content[key], **value}  # type: ignore[dict-item]
        else:
            content[key] = value
    return content


def dispatch(name: str = "cut", **bindings: Any) -> dict[str, Any]:
    return {"type": "dispatch", "dispatchable": name, "bindings": bindings}


def prints(resource: str, **more: Any) -> dict[str, Any]:
    return {"type": "print", "resource": resource, **more}


def writes(resource: str, path: str, **more: Any) -> dict[str, Any]:
    return {"type": "writeFile", "resource": resource, "targetPath": path, **more}


A_INTO_B_C_D = {"InputTensor": "A", "OutputTensors": ["B", "C", "D"]}


Run = Callable[..., list[str]]


def printed_values(ran: Run, resource: dict[str, Any]) -> str:
    (line,) = ran(model(resources={"X": resource}, commands=[prints("X")]))
    return line.removeprefix("Resource 'X': ")


# DxDispatch's own example of a Split: [6] into three pieces of [2].
EXAMPLE = Path(__file__).parents[1].joinpath("data", "dml_split.json").read_text("utf-8")
DEEP = "[" * 100_000


NOT_MODELS: list[tuple[str, str]] = [
    ("", "is not JSON"),
    (EXAMPLE[:300], "is not JSON"),
    ('{"a": 1, "a": 2}', "has the key 'a' twice"),
    ('{"a": NaN}', "contains NaN, which is not JSON; write it as a string, 'nan'"),
    ('{"a": Infinity}', "contains Infinity, which is not JSON; write it as a string, 'inf'"),
    ('{"a": -Infinity}', "contains -Infinity, which is not JSON; write it as a string, '-inf'"),
    ('{"a": 1e999}', "does not fit 64 bits"),
    (
        '{"a": ' + "9" * 5000 + "}",
        f"the number {'9' * 10}...{'9' * 11}, which does not fit 64 bits",
    ),
    ('{"a": -9223372036854775809}', "does not fit 64 bits"),
    (DEEP, "too deeply"),
    ('{"a":' * 100_000, "too deeply"),
    ("[1]", "is an array; it must be an object"),
    ("3", "is 3; it must be an object"),
    ("{}", "lacks 'resources'"),
    ('{"resources": []}', "resources is an array; it must be an object"),
    ('{"resources": {}, "dispatchables": {}}', "lacks 'commands'"),
    ("{} trailing", "is not JSON"),
    ("/* open", "a comment does not end"),
    ("/*/", "a comment does not end"),
    ('{"a": "open', "is not JSON"),
    ('"\\"' + '\\"' * 200_000, "is not JSON"),
    ("/*" * 200_000, "a comment does not end"),
    ("," * 200_000, "is not JSON"),
    ('{"x' + '": 1, "x' * 100_000, "is not JSON"),
    ("{" + ",".join(f'"{i}": 1' for i in range(100_000)) + ', "7": 2}', "key '7' twice"),
    ('{"\\ud800": 1, "resources": 2}', "resources is 2"),
]
