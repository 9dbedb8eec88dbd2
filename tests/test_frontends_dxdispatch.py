"""DxDispatch models: what runs on Windows runs here, and prints the same."""

from __future__ import annotations

import json
import re
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlsplit as dml
from dmlsplit import InvalidArgumentError, OutOfMemoryError
from dmlsplit.frontends.dxdispatch import load, read_descriptor, run, scan

F32 = "FLOAT32"


def tensor(sizes: list[int], kind: str = F32, **more: Any) -> dict[str, Any]:
    return {"DataType": kind, "Sizes": sizes, **more}


def split_desc(kind: str = F32, **more: Any) -> dict[str, Any]:
    """[6] into [2], [1], [3]."""
    return {
        "Axis": 0,
        "InputTensor": tensor([6], kind),
        "OutputCount": 3,
        "OutputTensors": [tensor([n], kind) for n in (2, 1, 3)],
        **more,
    }


def zeros(count: int, kind: str = F32) -> dict[str, Any]:
    return {
        "initialValuesDataType": kind,
        "initialValues": {"valueCount": count, "value": 0},
    }


def values(kind: Any, initial: Any, **more: Any) -> dict[str, Any]:
    return {"initialValuesDataType": kind, "initialValues": initial, **more}


def ramp(count: int, start: float, delta: float) -> dict[str, Any]:
    return {"valueCount": count, "valueStart": start, "valueDelta": delta}


def model(**changes: Any) -> dict[str, Any]:
    built = {
        "resources": {
            "A": {"initialValuesDataType": F32, "initialValues": [1, 2, 3, 4, 5, 6]},
            "B": zeros(2),
            "C": zeros(1),
            "D": zeros(3),
        },
        "dispatchables": {"cut": {"type": "DML_OPERATOR_SPLIT", "desc": split_desc()}},
        "commands": [
            {
                "type": "dispatch",
                "dispatchable": "cut",
                "bindings": {"InputTensor": "A", "OutputTensors": ["B", "C", "D"]},
            },
            *({"type": "print", "resource": name} for name in "BCD"),
        ],
    }
    for key, value in changes.items():
        if isinstance(value, dict):
            built[key] = {**built[key], **value}  # type: ignore[dict-item]
        else:
            built[key] = value
    return built


def dispatch(**bindings: Any) -> dict[str, Any]:
    return {"type": "dispatch", "dispatchable": "cut", "bindings": bindings}


BOUND = {"InputTensor": "A", "OutputTensors": ["B", "C", "D"]}
Run = Callable[..., list[str]]


@pytest.fixture
def ran(tmp_path: Path) -> Run:
    """Write a model and run it on the CPU; gives the printed lines."""

    def write_and_run(content: Any, level: str = "6_4") -> list[str]:
        path = tmp_path / "model.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return list(run(path, dml.Device("cpu", level)).lines)

    return write_and_run


@pytest.fixture
def refused(ran: Run) -> Callable[[Any], str]:
    """Run a model that must be refused; gives the message."""

    def refusal(content: Any) -> str:
        with pytest.raises(InvalidArgumentError) as error:
            ran(content)
        assert "model.json: " in str(error.value)
        return str(error.value)

    return refusal


def printed_values(ran: Run, resource: dict[str, Any], verbose: bool = False) -> str:
    commands = [{"type": "print", "resource": "X", "verbose": verbose}]
    (line,) = ran(model(resources={"X": resource}, commands=commands))
    return line.removeprefix("Resource 'X': ")


# Published vectors.

# DxDispatch's own example of a Split: [6] into three times [2].
EXAMPLE = """{
    "$schema": "./_schema.json",
    "resources": {
        "A": { "initialValuesDataType": "FLOAT32", "initialValues": [1,2,3,4,5,6] },
        "Out1": {
            "initialValuesDataType": "FLOAT32",
            "initialValues": { "valueCount": 2, "value": 0 }
        },
        "Out2": {
            "initialValuesDataType": "FLOAT32",
            "initialValues": { "valueCount": 2, "value": 0 }
        },
        "Out3": {
            "initialValuesDataType": "FLOAT32",
            "initialValues": { "valueCount": 2, "value": 0 }
        }
    },
    "dispatchables": {
        "split": {
            "type": "DML_OPERATOR_SPLIT",
            "desc": {
                "Axis": 0,
                "InputTensor": { "DataType": "FLOAT32", "Sizes": [6] },
                "OutputCount": 3,
                "OutputTensors": [
                    { "DataType": "FLOAT32", "Sizes": [2] },
                    { "DataType": "FLOAT32", "Sizes": [2] },
                    { "DataType": "FLOAT32", "Sizes": [2] }
                ]
            }
        }
    },
    "commands": [
        {
            "type": "dispatch",
            "dispatchable": "split",
            "bindings": { "InputTensor": "A", "OutputTensors": ["Out1", "Out2", "Out3"] }
        },
        { "type": "print", "resource": "Out1" },
        { "type": "print", "resource": "Out2" },
        { "type": "print", "resource": "Out3" }
    ]
}"""


def test_the_example_of_dxdispatch_prints_what_it_prints_on_windows(ran: Run) -> None:
    assert ran(EXAMPLE) == [
        "Resource 'Out1': 1, 2",
        "Resource 'Out2': 3, 4",
        "Resource 'Out3': 5, 6",
    ]


def test_the_example_needs_level_3_0_for_its_single_dimension(ran: Run) -> None:
    assert ran(EXAMPLE, "3_0")
    with pytest.raises(InvalidArgumentError, match="DML-LEVEL-DIMENSION-COUNT") as error:
        ran(EXAMPLE, "2_1")
    assert error.value.report is not None


VECTORS = [
    ([24], 0, [8, 8, 8]),
    ([8, 3], 0, [4, 4]),
    ([4, 3, 2], 0, [2, 2]),
    ([12, 1, 1, 2], 0, [3, 3, 3, 3]),
    ([12, 1, 1, 2], 0, [4, 4, 4]),
    ([6], 0, [2, 4]),
    ([2, 6], 0, [2]),
    ([2, 6], 1, [1, 2, 3]),
    ([1, 1, 6, 2], 2, [2, 1, 3]),
    ([1, 1, 6, 2], 3, [1, 1]),
    ([2, 1, 3, 4], 0, [1, 1]),
    ([1, 2, 3, 4], 1, [1, 1]),
    ([2, 1, 3, 4], 2, [1, 2]),
    ([2, 1, 3, 4], 3, [2, 2]),
    ([2, 5], 1, [2, 3]),
    ([6, 1, 1, 2, 2], 0, [2, 4]),
    ([1, 1, 6, 2, 2], 2, [3, 3]),
    ([2, 6], 1, [3, 3]),
    ([2, 6], 1, [2, 4]),
    ([1, 1, 2, 3], 3, [1, 2]),
]


@pytest.mark.parametrize(("shape", "axis", "sizes"), VECTORS)
def test_published_shapes(ran: Run, shape: list[int], axis: int, sizes: list[int]) -> None:
    pieces = np.split(np.arange(1, np.prod(shape) + 1).reshape(shape), np.cumsum(sizes)[:-1], axis)
    names = [f"Out{i}" for i in range(len(sizes))]
    content = {
        "resources": {
            "A": values(F32, ramp(int(np.prod(shape)), 1, 1)),
            **{name: zeros(piece.size) for name, piece in zip(names, pieces, strict=True)},
        },
        "dispatchables": {
            "cut": {
                "type": "SPLIT",
                "desc": {
                    "Axis": axis,
                    "InputTensor": tensor(shape),
                    "OutputCount": len(sizes),
                    "OutputTensors": [tensor(list(piece.shape)) for piece in pieces],
                },
            }
        },
        "commands": [
            dispatch(InputTensor="A", OutputTensors=names),
            *({"type": "print", "resource": name} for name in names),
        ],
    }
    expected = [
        f"Resource '{name}': {', '.join(map(str, piece.ravel()))}"
        for name, piece in zip(names, pieces, strict=True)
    ]
    assert ran(content) == expected


# The file.


def test_comments_and_trailing_commas_are_read_as_dxdispatch_does(ran: Run) -> None:
    text = json.dumps(model(), indent=1).replace(
        '"Axis": 0,', '// the axis, "Axis": 1,\n"Axis": 0,'
    )
    text = text.replace("]", ", /* end, ] of\n list */ ]").replace('"A"', '"A//b/*,]"')
    assert ran(text) == ["Resource 'B': 1, 2", "Resource 'C': 3", "Resource 'D': 4, 5, 6"]


def test_a_byte_order_mark_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(b"\xef\xbb\xbf" + EXAMPLE.encode())
    assert len(load(path).resources) == 4


def test_a_model_is_a_value(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(EXAMPLE)
    loaded = load(path)
    assert loaded == load(path)
    assert hash(loaded) == hash(load(path))
    assert [entry.size_in_bytes for entry in loaded.resources] == [24, 8, 8, 8]
    assert loaded.dispatchables[0].desc == read_descriptor(
        json.loads(EXAMPLE)["dispatchables"]["split"]
    )


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        (EXAMPLE[:300], "is not JSON"),
        ('{"a": 1, "a": 2}', "has the key 'a' twice"),
        ('{"a": NaN}', "holds NaN"),
        ('{"a": Infinity}', "holds Infinity"),
        ('{"a": 1e999}', "does not fit 64 bits"),
        ('{"a": ' + "9" * 5000 + "}", "does not fit 64 bits"),
        ('{"a": -9223372036854775809}', "does not fit 64 bits"),
        (DEEP, "too deeply"),
        ('{"a":' * 100_000, "too deeply"),
        ("[1]", "is an array; it must be an object"),
        ("3", "is 3; it must be an object"),
        ("{}", "lacks 'resources'"),
        ('{"resources": []}', "resources: is an array; it must be an object"),
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
        ('{"\\ud800": 1, "resources": 2}', "resources: is 2"),
    ],
)
def test_a_file_that_is_none_is_one_clear_error(
    refused: Callable[[Any], str], text: str, message: str
) -> None:
    start = time.process_time()
    said = refused(text)
    assert message in said
    assert "\n" not in said
    assert time.process_time() - start < 1


def test_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.json").write_bytes(b'{"\xff": 1}')
    for path, message in [
        (tmp_path, "is not a file"),
        (tmp_path / "none.json", "is not a file"),
        (Path("/dev/zero"), "is not a file"),
        (tmp_path / "latin.json", "UTF-8"),
    ]:
        for read in (load, scan, run):
            with pytest.raises(InvalidArgumentError, match=message):
                read(path)
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(InvalidArgumentError, match="larger than 16 MiB"):
        load(huge)


# Resources.


@pytest.mark.parametrize(
    ("resource", "text"),
    [
        (values(F32, [1, 2.5, -3]), "1, 2.5, -3"),
        (values(F32, ["nan", "INF", "-inf"]), "nan, inf, -inf"),
        (values(F32, [0.1, 1e10, 123456789]), "0.1, 1e+10, 1.23457e+08"),
        (values("FLOAT64", [0.1, 1e-300]), "0.1, 1e-300"),
        (values("DML_TENSOR_DATA_TYPE_INT8", [-128, 127]), "-128, 127"),
        (values("UINT64", [2**64 - 1]), str(2**64 - 1)),
        (zeros(3, "INT16"), "0, 0, 0"),
        (
            values(F32, ramp(4, 1, 2.5)),
            "1, 3.5, 6, 8.5",
        ),
        (
            values("UINT8", ramp(4, 250, 3)),
            "250, 253, 0, 3",
        ),
        (
            values("FLOAT16", ramp(3, 2048, 1)),
            "2048, 2048, 2048",
        ),
        (
            values("FLOAT16", ramp(3, -1, 0.5)),
            "-1, -0.5, 0",
        ),
        (
            values(F32, [7], sizeInBytes=12, initialValuesOffsetInBytes=4),
            "0",
        ),
    ],
)
def test_initial_values(ran: Run, resource: dict[str, Any], text: str) -> None:
    assert printed_values(ran, resource) == text


def test_float_sequences_add_up_in_their_own_precision(ran: Run, tmp_path: Path) -> None:
    resource = values(F32, ramp(1000, 0, 0.1))
    ran(model(resources={"X": resource}))
    found = run(tmp_path / "model.json", "cpu").resources["X"]
    value, expected = np.float32(0), []
    for _ in range(1000):
        expected.append(value)
        value = np.float32(value + np.float32(0.1))
    assert found.tobytes() == np.array(expected).tobytes()


def test_halves_are_rounded_toward_zero_as_dxdispatch_rounds_them(tmp_path: Path, ran: Run) -> None:
    numbers = [0.1, -0.1, 65504, 65530, 1e-8, 0.3333333, 1]
    ran(model(resources={"X": {"initialValuesDataType": "FLOAT16", "initialValues": numbers}}))
    bits = run(tmp_path / "model.json", "cpu").resources["X"].view("u2").tolist()
    assert bits == [0x2E66, 0xAE66, 0x7BFF, 0x7BFF, 0x0000, 0x3555, 0x3C00]


def test_a_list_of_types_is_bytes(ran: Run, tmp_path: Path) -> None:
    values = [
        {"name": "count", "type": "UINT32", "value": 6},
        {"type": "FLOAT32", "value": 2.5},
        {"type": "INT8", "value": -1},
    ]
    for resource in (
        {"initialValues": values},
        {"initialValuesDataType": "UNKNOWN", "initialValues": values},
    ):
        ran(model(resources={"X": resource}))
        found = run(tmp_path / "model.json", "cpu").resources["X"]
        assert found.tobytes() == struct.pack("<Ifb", 6, 2.5, -1)


@pytest.mark.parametrize(
    "kind", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", ">f4", ">i8"]
)
def test_npy_sources_bring_their_type(ran: Run, tmp_path: Path, kind: str) -> None:
    data = np.array([[0, 1, 1], [1, 0, 1]], kind)
    np.save(tmp_path / "in.npy", data)
    ran(model(resources={"X": {"initialValues": {"sourcePath": "in.npy"}}}))
    found = run(tmp_path / "model.json", "cpu").resources["X"]
    assert found.tolist() == data.ravel().astype("i8").tolist()
    assert found.dtype == (np.dtype("u1") if kind == "?" else data.dtype.newbyteorder("<"))


def test_raw_sources_lie_in_folders_named_either_way(ran: Run, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    np.arange(3, dtype="<i2").tofile(tmp_path / "sub" / "in.dat")
    for name in ("sub/in.dat", "sub\\in.dat"):
        resource = values("INT16", {"sourcePath": name})
        assert printed_values(ran, resource) == "0, 1, 2"


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        ({"initialValuesDataType": F32}, "lacks 'initialValues'"),
        ({"initialValues": [1, 2]}, "initialValues[0]: is 1; it must be an object"),
        (values(F32, []), "initialValues: is empty"),
        (values("float32", [1]), "is 'float32'; it must be one of"),
        (values(1, [1]), "is 1; it must be a string"),
        (values("UINT4", [1]), "has the type UINT4, which resources cannot hold"),
        (values("INT8", [128]), "initialValues[0]: is 128; it must be an integer from -128 to 127"),
        (values("INT8", [1.0]), "is 1.0; it must be an integer"),
        (values("UINT8", [0, True]), "initialValues[1]: is True"),
        (values(F32, ["one"]), "is 'one'; it must be a number, 'nan'"),
        (values(F32, [None]), "is None"),
        (values(F32, [1e39]), "is 1e+39; it must be a number that fits FLOAT32"),
        (values("FLOAT16", [0, 70000]), "[1]: is 70000; it must be a number that fits FLOAT16"),
        (values(F32, 3), "is 3; it must be an object"),
        (values(F32, "deferred"), "is 'deferred', which is for ONNX"),
        (values(F32, {}), "must be an array or have one of"),
        (values(F32, {"value": 1, "valueStart": 1, "valueCount": 1}), "one of"),
        (values(F32, {"value": 1}), "lacks 'valueCount'"),
        (values(F32, {"value": 1, "valueCount": 0}), "is 0; it must be an integer from 1"),
        (values(F32, {"value": 1, "valueCount": 2**32}), "valueCount"),
        (values(F32, {"valueStart": 1, "valueCount": 2}), "lacks 'valueDelta'"),
        ({"initialValues": {"value": 1, "valueCount": 2}}, "needs an initialValuesDataType"),
        (
            {**zeros(4), "sizeInBytes": 15},
            "has 16 bytes of initial values at offset 0; its size is 15",
        ),
        ({**zeros(4), "initialValuesOffsetInBytes": 4}, "at offset 4; its size is 16"),
        (
            {**zeros(4), "sizeInBytes": 10**12},
            "is a buffer of 1000000000000 bytes; at most 4294967296",
        ),
        (zeros(2**32 - 1, "FLOAT64"), "is a buffer of"),
        ({**zeros(4), "sizeInBytes": -4}, "sizeInBytes: is -4"),
    ],
)
def test_resources_that_are_none(
    refused: Callable[[Any], str], resource: dict[str, Any], message: str
) -> None:
    said = refused(model(resources={"X": resource}))
    assert message in said
    assert "resources.X" in said
    assert "\n" not in said


def test_many_large_resources_are_refused_before_they_are_allocated(
    refused: Callable[[Any], str], ran: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = {name: {**zeros(4), "sizeInBytes": 2**32} for name in "XYZ"}
    assert "at most 8589934592 are allowed" in refused(model(resources=large))
    monkeypatch.setattr("os.sysconf", lambda name: 2**12)
    with pytest.raises(OutOfMemoryError, match="this machine has 16777216"):
        ran(model(resources={"X": {**zeros(4), "sizeInBytes": 2**25}}))


def npy(header: bytes, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    size = struct.pack("<H" if version[0] == 1 else "<I", len(header))
    return b"\x93NUMPY" + version + size + header + data


HEADER = b"{'descr': '%s', 'fortran_order': %s, 'shape': %s, }\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a .npy file"),
        (b"\x93NUMPY\x09\x00", "version is (9, 0)"),
        (npy(b"junk\n"), "is not a .npy file"),
        (npy(b"(" * 9000 + b"\n"), "is not a .npy file"),
        (
            npy(HEADER % (b"<f4", b"False", b"(2,)"), b"1234"),
            "has 4 bytes of data; its header says 8",
        ),
        (npy(HEADER % (b"<f4", b"False", b"(1,)"), b"12345678"), "has 8 bytes"),
        (npy(HEADER % (b"<f4", b"False", b"(9999999999999,)")), "says 39999999999996"),
        (npy(HEADER % (b"<f4", b"False", b"(-1,)"), b"1234"), "shape"),
        (npy(HEADER % (b"<f4", b"True", b"(2, 1)"), b"12345678"), "Fortran order"),
        (
            npy(HEADER % (b"<c8", b"False", b"(1,)"), b"12345678"),
            "complex64, which DirectML has not",
        ),
        (npy(HEADER % (b"|O", b"False", b"(1,)"), b"12345678"), "object, which DirectML has not"),
        (npy(HEADER % (b"<U2", b"False", b"(1,)"), b"12345678"), "which DirectML has not"),
        (npy(HEADER % (b"<f4", b"False", b"(0,)")), "is empty"),
        (
            npy(HEADER % (b"<f8", b"False", b"(1,)"), b"12345678"),
            "holds FLOAT64; initialValuesDataType is FLOAT32",
        ),
    ],
)
def test_npy_files_that_are_none(
    refused: Callable[[Any], str], tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "in.npy").write_bytes(content)
    resource = values(F32, {"sourcePath": "in.npy"})
    said = refused(model(resources={"X": resource}))
    assert message in said
    assert "\n" not in said


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../in.dat",
        "a/../../in.dat",
        "..\\in.dat",
        "C:\\in.dat",
        "C:in.dat",
        "\\\\host\\in.dat",
        "",
        ".",
        "a\0b",
        "out/secret",
        "link.dat",
        "loop",
    ],
)
def test_no_path_leaves_the_folder(tmp_path: Path, name: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "in.dat").write_bytes(b"1234")
    (tmp_path / "secret").write_bytes(b"1234")
    (home / "out").symlink_to(tmp_path)
    (home / "link.dat").symlink_to("../in.dat")
    (home / "loop").symlink_to("loop")
    source = values(F32, {"sourcePath": name})
    write = {"type": "writeFile", "resource": "A", "targetPath": name}
    for content in (model(resources={"X": source}), model(commands=[write])):
        (home / "model.json").write_text(json.dumps(content))
        with pytest.raises(InvalidArgumentError, match=r"sourcePath|targetPath"):
            run(home / "model.json", "cpu")
    assert (tmp_path / "secret").read_bytes() == b"1234"
    assert (tmp_path / "in.dat").read_bytes() == b"1234"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.dat", "a file that exists"),
        (".", ""),
        ("in.png", "is an image"),
        ("in.dat", "needs an"),
    ],
)
def test_sources_that_cannot_be_used(
    refused: Callable[[Any], str], tmp_path: Path, name: str, message: str
) -> None:
    (tmp_path / "in.png").write_bytes(b"1234")
    (tmp_path / "in.dat").write_bytes(b"1234")
    assert message in refused(model(resources={"X": {"initialValues": {"sourcePath": name}}}))


# Dispatchables.


def test_forms_of_a_descriptor_are_one() -> None:
    plain = split_desc()
    expected = read_descriptor(plain)
    wrapped = {
        **plain,
        "InputTensor": {"Type": "DML_TENSOR_TYPE_BUFFER", "Desc": plain["InputTensor"]},
        "OutputTensors": [
            {
                "Type": "BUFFER",
                "Desc": {
                    **entry,
                    "DataType": "DML_TENSOR_DATA_TYPE_FLOAT32",
                    "Flags": "DML_TENSOR_FLAG_NONE",
                    "DimensionCount": 1,
                    "Strides": [],
                    "TotalTensorSizeInBytes": 0,
                    "GuaranteedBaseOffsetAlignment": 0,
                },
            }
            for entry in plain["OutputTensors"]
        ],
    }
    without_count = {key: value for key, value in plain.items() if key != "OutputCount"}
    for form in (
        wrapped,
        without_count,
        {"type": "DML_OPERATOR_SPLIT", "desc": plain},
        {"Type": "SPLIT", "Desc": wrapped},
        {"type": "SPLIT", **plain},
    ):
        assert read_descriptor(form) == expected
    assert str(expected) == "SPLIT axis 0: FLOAT32[6] -> FLOAT32[2], FLOAT32[1], FLOAT32[3]"


def test_every_tensor_field_is_read() -> None:
    entry = tensor(
        [2, 3],
        "INT64",
        Strides=[4, 1],
        Flags=["OWNED_BY_DML", "NONE"],
        TotalTensorSizeInBytes=80,
        GuaranteedBaseOffsetAlignment=32,
    )
    desc = read_descriptor(
        {"InputTensor": entry, "OutputTensors": [tensor([2, 3], "INT64")], "Axis": 1}
    )
    assert desc.input_tensor == dml.TensorDesc(
        "INT64",
        (2, 3),
        strides=(4, 1),
        flags="OWNED_BY_DML",
        total_tensor_size_in_bytes=80,
        guaranteed_base_offset_alignment=32,
    )


def test_bad_descriptors_are_left_to_validation() -> None:
    desc = read_descriptor(
        {
            "InputTensor": tensor([0, -3], "UNKNOWN", Strides=[1]),
            "OutputTensors": [tensor([2**40])],
            "Axis": -1,
        }
    )
    broken = dml.validate(desc).rule_ids
    assert {"DML-TENSOR-ZERO-SIZE", "DML-UINT-RANGE", "DML-TENSOR-STRIDE-COUNT"} <= set(broken)
    empty = read_descriptor({"InputTensor": tensor([6]), "OutputTensors": [], "Axis": 0})
    assert "DML-SPLIT-OUTPUT-COUNT" in dml.validate(empty).rule_ids


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"OutputCount": 2}, "OutputCount: is 2; it must be 3, the number of OutputTensors"),
        ({"OutputCount": "3"}, "OutputCount: is '3'; it must be an integer"),
        ({"Axis": 0.0}, "Axis: is 0.0; it must be an integer"),
        ({"Axis": False}, "Axis: is False"),
        ({"Axis": None}, "Axis: is None"),
        ({"InputTensor": None}, "InputTensor: is None; it must be an object"),
        ({"InputTensor": {}}, "InputTensor: lacks 'Sizes'"),
        ({"InputTensor": {"Sizes": [6]}}, "InputTensor: lacks 'DataType'"),
        (
            {"InputTensor": tensor([6], "float")},
            "DataType: is 'float'; it must be one of UNKNOWN, FLOAT32",
        ),
        (
            {"InputTensor": tensor([6], DimensionCount=4)},
            "DimensionCount: is 4; it must be 1, the number of Sizes",
        ),
        ({"InputTensor": tensor([6.0])}, "InputTensor.Sizes[0]: is 6.0"),
        ({"InputTensor": {"DataType": F32, "Sizes": 6}}, "Sizes: is 6; it must be an array"),
        ({"InputTensor": tensor([6], Strides="1")}, "Strides: is '1'; it must be an array"),
        (
            {"InputTensor": tensor([6], Flags=["OWNED"])},
            "Flags[0]: is 'OWNED'; it must be one of NONE, OWNED_BY_DML",
        ),
        (
            {"InputTensor": tensor([6], Type="TEXTURE")},
            "Type: is 'TEXTURE'; it must be one of BUFFER",
        ),
        ({"InputTensor": tensor([6], TotalTensorSizeInBytes=-4)}, "TotalTensorSizeInBytes: is -4"),
        ({"OutputTensors": {}}, "OutputTensors: is an object; it must be an array"),
        ({"Type": "JOIN"}, "Type: is 'JOIN'; it must be DML_OPERATOR_SPLIT"),
    ],
)
def test_descriptors_that_are_none(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(message)) as error:
        read_descriptor(split_desc(**changes))
    assert "\n" not in str(error.value)


def test_other_operators_may_stand_beside_a_split_but_not_be_dispatched(
    ran: Run, refused: Callable[[Any], str]
) -> None:
    join = {"join": {"type": "DML_OPERATOR_JOIN", "desc": {}}}
    assert len(ran(model(dispatchables=join))) == 3
    commands = [{"type": "dispatch", "dispatchable": "join", "bindings": {}}]
    said = refused(model(dispatchables=join, commands=commands))
    assert "dispatchables.join: is a 'DML_OPERATOR_JOIN'; only DML_OPERATOR_SPLIT runs here" in said


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"executionFlags": "FAST"}, "executionFlags: is 'FAST'; it must be one of NONE"),
        ({"executionFlags": ["NONE", 1]}, "executionFlags[1]: is 1"),
        ({"dmlCompileType": "Op"}, "dmlCompileType: is 'Op'; it must be one of DmlCompileOp"),
        ({"type": None}, "type: is None"),
        ({"bindings": {"InputTensor": "A"}}, "only an InputTensor with the flag OWNED_BY_DML"),
        ({"bindings": {"InputTensor": "Z"}}, "there is no resource 'Z'"),
    ],
)
def test_dispatchables_that_are_none(
    refused: Callable[[Any], str], changes: dict[str, Any], message: str
) -> None:
    entry = {"type": "SPLIT", "desc": split_desc(), **changes}
    said = refused(model(dispatchables={"cut": entry}))
    assert message in said
    assert "dispatchables.cut" in said


def test_execution_flags_and_compile_types_change_nothing(ran: Run) -> None:
    entry = {
        "type": "SPLIT",
        "desc": split_desc(),
        "executionFlags": ["DISABLE_META_COMMANDS", "DML_EXECUTION_FLAG_NONE"],
        "dmlCompileType": "DmlCompileGraph",
    }
    assert ran(model(dispatchables={"cut": entry})) == ran(model())


def test_an_input_owned_by_dml_keeps_what_it_was_at_initialization(ran: Run, refused: Any) -> None:
    desc = split_desc(InputTensor=tensor([6], Flags="OWNED_BY_DML"))
    owned = {"type": "SPLIT", "desc": desc, "bindings": {"InputTensor": "A"}}
    copy = {
        "type": "SPLIT",
        "desc": {"Axis": 0, "InputTensor": tensor([6]), "OutputTensors": [tensor([6])]},
    }
    outputs = {"OutputTensors": ["B", "C", "D"]}
    overwrite = {
        "type": "dispatch",
        "dispatchable": "copy",
        "bindings": {"InputTensor": "Z", "OutputTensors": ["A"]},
    }
    commands = [overwrite, dispatch(**outputs), {"type": "print", "resource": "B"}]
    resources = {"Z": zeros(6)}
    built = model(
        dispatchables={"cut": owned, "copy": copy}, commands=commands, resources=resources
    )
    assert ran(built) == ["Resource 'B': 1, 2"]
    both = model(dispatchables={"cut": owned}, commands=[dispatch(InputTensor="A", **outputs)])
    assert "binds 'InputTensor'; it must bind OutputTensors" in refused(both)
    unbound = model(dispatchables={"cut": {"type": "SPLIT", "desc": desc}})
    assert "dispatchables.cut.bindings: lacks 'InputTensor'" in refused(unbound)


# Commands.

WRITE = {"type": "writeFile", "resource": "A"}


def test_bindings_may_share_a_resource_at_aligned_offsets(ran: Run) -> None:
    bindings = {
        "InputTensor": {"name": "A", "elementCount": 6},
        "OutputTensors": [
            "Out",
            {"name": "Out", "elementCount": 1, "elementOffset": 4},
            {"name": "Out", "elementSizeInBytes": 8, "elementOffset": 4},
        ],
    }
    commands = [dispatch(**bindings), {"type": "print", "resource": "Out"}]
    (line,) = ran(model(resources={"Out": zeros(11)}, commands=commands))
    assert line == "Resource 'Out': 1, 2, 0, 0, 3, 0, 0, 0, 4, 5, 6"


@pytest.mark.parametrize(
    ("bindings", "message"),
    [
        ({"InputTensor": "A"}, "lacks 'OutputTensors'; it must bind InputTensor and OutputTensors"),
        ({**BOUND, "Input": "A"}, "binds 'Input'"),
        ({**BOUND, "InputTensor": ["A", "A"]}, "InputTensor: binds 2 resources; it must bind 1"),
        ({**BOUND, "InputTensor": "Z"}, "there is no resource 'Z'"),
        ({**BOUND, "InputTensor": {}}, "lacks 'name'"),
        ({**BOUND, "InputTensor": 3}, "is 3; it must be an object"),
        ({**BOUND, "OutputTensors": ["B", "C"]}, "DML-BIND-COUNT"),
        ({**BOUND, "OutputTensors": ["B", "C", "C"]}, "DML-BIND-SIZE"),
        ({**BOUND, "OutputTensors": ["B", "C", "A"]}, "DML-BIND-IN-PLACE"),
        ({**BOUND, "OutputTensors": ["B", "D", "D"]}, "DML-BIND-OUTPUT-OVERLAP"),
        (
            {**BOUND, "OutputTensors": ["B", {"name": "D", "elementOffset": 1}, "D"]},
            "DML-BIND-OFFSET-ALIGNMENT",
        ),
        (
            {**BOUND, "InputTensor": {"name": "A", "elementOffset": 2**40}},
            "elementOffset 1099511627776 of 'A' is byte",
        ),
        ({**BOUND, "InputTensor": {"name": "A", "elementOffset": -1}}, "elementOffset: is -1"),
    ],
)
def test_bindings_are_held_to_every_rule(
    refused: Callable[[Any], str], bindings: dict[str, Any], message: str
) -> None:
    said = refused(model(commands=[dispatch(**bindings)]))
    assert message in said
    assert "commands[0]" in said


def test_verbose_print_shows_bits(ran: Run) -> None:
    resource = {"initialValuesDataType": F32, "initialValues": [1, -2.5, 0] + [0] * 7}
    line = printed_values(ran, resource, verbose=True)
    assert line.startswith(
        "Resource 'X':\n[ 0] 1 (0x3F800000)\n[ 1] -2.5 (0xC0200000)\n[ 2] 0 (0x       0)\n"
    )
    line = printed_values(ran, values("INT16", [-1]), True)
    assert line == "Resource 'X':\n[0] -1 (0xFFFF)\n"


def test_lines_are_given_out_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(EXAMPLE)
    heard: list[str] = []
    result = run(path, "cpu", output=heard.append)
    assert tuple(heard) == result.lines
    assert result.resources["Out3"].tolist() == [5, 6]


def test_files_are_written_beside_the_model(ran: Run, tmp_path: Path) -> None:
    commands = [
        dispatch(**BOUND),
        {"type": "writeFile", "resource": "D", "targetPath": "out.npy"},
        {"type": "WriteFile", "resource": "A", "targetPath": "sub\\A.npy", "dimensions": [2, 3]},
        {"type": "writeFile", "resource": "B", "targetPath": "out.dat"},
        {"type": "writeFile", "resource": "H", "targetPath": "h.npy"},
    ]
    halves = values("FLOAT16", [1, 2, 3])
    lines = ran(model(commands=commands, resources={"H": halves}))
    assert lines[0] == f"Resource 'D' written to '{tmp_path / 'out.npy'}'"
    assert np.load(tmp_path / "out.npy").tolist() == [4, 5, 6]
    assert np.load(tmp_path / "sub" / "A.npy").tolist() == [[1, 2, 3], [4, 5, 6]]
    assert (tmp_path / "out.dat").read_bytes() == np.array([1, 2], "<f4").tobytes()
    # As on Windows, the whole buffer is written, with what rounds it up to 4 bytes.
    assert np.load(tmp_path / "h.npy").tolist() == [1, 2, 3, 0]
    assert not list(tmp_path.glob("*.part"))


def test_what_is_written_can_be_read_back(ran: Run, tmp_path: Path) -> None:
    commands = [dispatch(**BOUND), {"type": "writeFile", "resource": "D", "targetPath": "d.npy"}]
    ran(model(commands=commands))
    assert printed_values(ran, {"initialValues": {"sourcePath": "d.npy"}}) == "4, 5, 6"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ({"type": "sleep"}, "commands[0].type: is 'sleep'; it must be 'dispatch', 'print'"),
        ({}, "commands[0]: lacks 'type'"),
        ({"type": "print"}, "lacks 'resource'"),
        ({"type": "print", "resource": "Z"}, "commands[0]: there is no resource 'Z'"),
        (
            {"type": "print", "resource": "A", "verbose": 1},
            "verbose: is 1; it must be true or false",
        ),
        ({"type": "dispatch", "dispatchable": "x", "bindings": {}}, "there is no dispatchable 'x'"),
        ({"type": "dispatch", "dispatchable": "cut"}, "lacks 'bindings'"),
        ({"type": "dispatch", "dispatchable": "cut", "bindings": []}, "bindings: is an array"),
        ({**WRITE}, "lacks 'targetPath'"),
        ({**WRITE, "targetPath": "a.png"}, "images are not written"),
        ({**WRITE, "targetPath": "model.json"}, "write over the model itself"),
        (
            {**WRITE, "targetPath": "a.npy", "dimensions": [7]},
            "[7] have 7 elements; the resource has 6",
        ),
        ({**WRITE, "targetPath": "a.npy", "dimensions": [1] * 65}, "at most 64"),
        ({**WRITE, "targetPath": "a.npy", "dimensions": [-1]}, "is -1"),
        ({**WRITE, "targetPath": "folder"}, "cannot be written"),
        ({"type": "print", "resource": "U"}, "resource 'U' has no data type"),
    ],
)
def test_commands_that_are_none(
    refused: Callable[[Any], str], tmp_path: Path, command: dict[str, Any], message: str
) -> None:
    (tmp_path / "folder").mkdir()
    untyped = {"U": {"initialValues": [{"type": "INT8", "value": 1}]}}
    said = refused(model(commands=[command], resources=untyped))
    assert message in said
    assert "\n" not in said
    assert not list(tmp_path.glob("*.part"))


def test_no_more_is_printed_than_anyone_reads(refused: Callable[[Any], str]) -> None:
    large = {"X": zeros(2**23)}
    prints = [{"type": "print", "resource": "X"}] * 3
    said = refused(model(resources=large, commands=prints))
    assert "commands[2]: more than 64 MiB would be printed. Fix: use writeFile" in said


def test_nothing_is_written_when_a_later_command_is_refused(
    refused: Callable[[Any], str], tmp_path: Path
) -> None:
    write = {"type": "writeFile", "resource": "A", "targetPath": "a.npy"}
    refused(model(commands=[write, {"type": "print", "resource": "Z"}]))
    refused(model(commands=[write, {**write, "dimensions": [100]}]))
    refused(
        model(
            commands=[write], dispatchables={"cut": {"type": "SPLIT", "desc": split_desc(Axis=4)}}
        )
    )
    assert not (tmp_path / "a.npy").exists()


# Scan.


def test_scan_finds_every_split_and_its_problems(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    others = {
        "join": {"type": "DML_OPERATOR_JOIN"},
        "bad": {"type": "SPLIT", "desc": split_desc(OutputCount=2)},
        "silent": {
            "type": "SPLIT",
            "desc": {"InputTensor": tensor([2]), "OutputTensors": [tensor([2])], "Axis": 0},
        },
    }
    path.write_text(json.dumps(model(dispatchables=others)))
    cut, bad, silent = scan(path)
    assert (cut.file, cut.place, cut.node, cut.index) == (str(path), "dispatchables", "cut", 0)
    assert cut.operator == "DML_OPERATOR_SPLIT"
    assert cut.descriptors == (read_descriptor(split_desc()),)
    assert (bad.node, bad.index, bad.descriptors) == ("bad", 2, ())
    assert "OutputCount: is 2; it must be 3" in bad.problem
    assert silent.warnings == ("OutputCount is missing; dxdispatch.exe requires it",)


def test_scan_reads_a_descriptor_alone(tmp_path: Path) -> None:
    path = tmp_path / "descriptor.json"
    for content in (split_desc(), {"type": "DML_OPERATOR_SPLIT", "desc": split_desc()}):
        path.write_text(json.dumps(content))
        (found,) = scan(path)
        assert found.descriptors == (read_descriptor(split_desc()),)
    path.write_text('{"type": "JOIN", "desc": {}}')
    assert "is 'JOIN'" in scan(path)[0].problem
    path.write_text('{"some": "thing"}')
    with pytest.raises(InvalidArgumentError, match="is neither a DxDispatch model"):
        scan(path)


# Noise.

VALID = json.dumps(model()).encode()


@settings(max_examples=300, deadline=None)
@given(
    edits=st.lists(
        st.tuples(
            st.integers(0, len(VALID) - 1),
            st.integers(0, 12),
            st.one_of(
                st.binary(max_size=4),
                st.sampled_from(
                    [b"-1", b"9" * 25, b"{", b"]", b'"', b"null", b"1e5", b"//", b"[]"]
                ),
            ),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_a_mutated_model_runs_or_is_one_error(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, int, bytes]]
) -> None:
    content = VALID
    for at, length, new in edits:
        content = content[:at] + new + content[at + length :]
    path = tmp_path_factory.getbasetemp() / "fuzz.json"
    path.write_bytes(content)
    for read in (scan, lambda file: run(file, "cpu")):
        try:
            read(path)
        except InvalidArgumentError as error:
            message = str(error)
            assert message


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["SPLIT", F32]),
)
keys = st.sampled_from(
    [
        "type",
        "desc",
        "Axis",
        "InputTensor",
        "OutputTensors",
        "OutputCount",
        "DataType",
        "Sizes",
        "Strides",
        "Flags",
    ]
)
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=6)),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(mapping=st.dictionaries(keys, trees, max_size=6))
def test_any_mapping_is_a_descriptor_or_one_error(mapping: dict[str, Any]) -> None:
    try:
        desc = read_descriptor(mapping)
    except InvalidArgumentError:
        return
    dml.validate(desc)
