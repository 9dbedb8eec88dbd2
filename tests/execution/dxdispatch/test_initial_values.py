"""Initial values of resources."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlsplit import InvalidArgumentError
from dmlsplit.files.npy_header import npy_header
from dmlsplit.frontends.dxdispatch import run
from tests.support.dxdispatch import (
    F32,
    Run,
    counting,
    model,
    printed_values,
    values,
    writes,
    zeros,
)

Contents = Callable[[dict[str, Any]], np.ndarray]


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
        (values(F32, counting(4, 1, 2.5)), "1, 3.5, 6, 8.5"),
        (values("UINT8", counting(4, 250, 3)), "250, 253, 0, 3"),
        (values(F32, [7], sizeInBytes=12, initialValuesOffsetInBytes=4), "0"),
    ],
)
def test_initial_values_are_those_of_dxdispatch(
    ran: Run, resource: dict[str, Any], text: str
) -> None:
    assert printed_values(ran, resource) == text


def test_float_sequences_add_up_in_their_own_precision(contents: Contents) -> None:
    value, expected = np.float32(0), []
    for _ in range(1000):
        expected.append(value)
        value = np.float32(value + np.float32(0.1))
    resource_values = contents(values(F32, counting(1000, 0, 0.1)))
    assert resource_values.tobytes() == np.array(expected).tobytes()


def test_float16_values_are_rounded_toward_zero_as_in_dxdispatch(contents: Contents) -> None:
    numbers = [0.1, -0.1, 65504, 65530, 1e-8, 0.3333333, 1]
    bits = contents(values("FLOAT16", numbers)).view("u2").tolist()
    assert bits[:7] == [0x2E66, 0xAE66, 0x7BFF, 0x7BFF, 0x0000, 0x3555, 0x3C00]


# Source files beside a model, and paths that leave its folder.


@pytest.mark.parametrize(
    "kind", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]
)
def test_npy_sources_have_the_type_of_their_file_except_that_bools_become_bytes(
    contents: Contents, tmp_path: Path, kind: str
) -> None:
    data = np.array([[0, 1, 1, 0], [1, 0, 1, 1]], kind)
    np.save(tmp_path / "in.npy", data)
    resource_values = contents({"initialValues": {"sourcePath": "in.npy"}})
    assert resource_values.tolist() == data.ravel().astype("i8").tolist()
    assert resource_values.dtype == (
        np.dtype("u1") if kind == "?" else data.dtype.newbyteorder("<")
    )


def test_paths_of_raw_sources_may_have_either_slash(ran: Run, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    np.arange(3, dtype="<i2").tofile(tmp_path / "sub" / "in.dat")
    for name in ("sub/in.dat", "sub\\in.dat"):
        resource = values("INT16", {"sourcePath": name})
        assert printed_values(ran, resource) == "0, 1, 2"


def npy(kind: str, *shape: int, data: bytes = b"12345678", fortran: bool = False) -> bytes:
    return npy_header(shape, fortran, np.dtype(kind)) + data


# tests/storage has more about headers.
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("in.npy", b"", "is not a .npy file"),
        ("in.npy", npy("<f4", 2, data=b"1234"), "has 4 bytes of data; its header says 8"),
        ("in.npy", npy("<f4", 1), "has 8 bytes"),
        ("in.npy", npy("<f4", 9999999999999, data=b""), "says 39999999999996"),
        ("in.npy", npy("<f4", 2, 1, fortran=True), "Fortran order"),
        ("in.npy", npy("<c8", 1), "complex64, which DirectML lacks"),
        ("in.npy", npy(">f4", 2), ">f4, which DirectML lacks"),
        ("in.npy", npy("<U2", 1), "which DirectML lacks"),
        ("in.npy", npy("<f4", 0, data=b""), "is empty"),
        (
            "f4.npy",
            npy("<f8", 1),
            "has elements of FLOAT64; initialValuesDataType is FLOAT32, and must",
        ),
        ("none.dat", None, "a file that exists"),
        ("a" * 300, None, "a file that can be read (File name too long)"),
        ("in.png", b"1234", "is an image"),
        ("in.dat", b"1234", "needs an"),
    ],
)
def test_unusable_sources_are_refused(
    refused: Callable[[Any], str], tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    kind = {"initialValuesDataType": F32} if name == "f4.npy" else {}
    error_text = refused(model(resources={"X": {"initialValues": {"sourcePath": name}, **kind}}))
    assert message in error_text
    assert "\n" not in error_text


OUTSIDE = ["", ".", "a\0b", "/etc/passwd", "../in.dat", "a/../../in.dat", "..\\in.dat"]
OUTSIDE += ["C:\\in.dat", "C:in.dat", "\\\\host\\in.dat"]
OUTSIDE += ["out/secret", "link.dat", "loop"]  # links out of the folder, and a circular one


@pytest.mark.parametrize("name", OUTSIDE)
def test_paths_that_lead_out_of_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "in.dat").write_bytes(b"1234")
    (tmp_path / "secret").write_bytes(b"1234")
    (home / "out").symlink_to(tmp_path)
    (home / "link.dat").symlink_to("../in.dat")
    (home / "loop").symlink_to("loop")
    source = values(F32, {"sourcePath": name})
    for content in (model(resources={"X": source}), model(commands=[writes("A", name)])):
        (home / "model.json").write_text(json.dumps(content))
        with pytest.raises(InvalidArgumentError, match=r"sourcePath|targetPath"):
            run(home / "model.json", "cpu")
    assert (tmp_path / "secret").read_bytes() == b"1234"
    assert (tmp_path / "in.dat").read_bytes() == b"1234"
