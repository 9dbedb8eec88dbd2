"""Source files beside a model, and paths that leave its folder."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlsplit import InvalidArgumentError
from dmlsplit.frontends.dxdispatch import run
from tests.support.dxdispatch_models import F32, Run, model, printed_values, values


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


def test_raw_sources_are_in_folders_named_either_way(ran: Run, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    np.arange(3, dtype="<i2").tofile(tmp_path / "sub" / "in.dat")
    for name in ("sub/in.dat", "sub\\in.dat"):
        resource = values("INT16", {"sourcePath": name})
        assert printed_values(ran, resource) == "0, 1, 2"


def npy(header: bytes, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    size = struct.pack("<H" if version[0] == 1 else "<I", len(header))
    return b"\x93NUMPY" + version + size + header + data


HEADER = b"{'descr': '%s', 'fortran_order': %s, 'shape': %s, }\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a .npy file"),
        (b"\x93NUMPY\x09\x00", "version is (9, 0)"),
        (npy(b"junk\n"), "is a damaged .npy file"),
        (npy(b"(" * 9000 + b"\n"), "is a damaged .npy file"),
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
            "complex64, which DirectML does not have",
        ),
        (
            npy(HEADER % (b"|O", b"False", b"(1,)"), b"12345678"),
            "has data type object; Python objects are never loaded",
        ),
        (npy(HEADER % (b"<U2", b"False", b"(1,)"), b"12345678"), "which DirectML does not have"),
        (npy(HEADER % (b"<f4", b"False", b"(0,)")), "is empty"),
        (
            npy(HEADER % (b"<f8", b"False", b"(1,)"), b"12345678"),
            "has FLOAT64; initialValuesDataType is FLOAT32",
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
