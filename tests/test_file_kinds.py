"""Files that are not models: the error names the kind of file and the fix."""

from pathlib import Path

import pytest

import dmlsplit as dml
from dmlsplit.frontends import dxdispatch, onnx, openvino

SCANNERS = {"onnx": onnx.scan, "xml": openvino.scan, "json": dxdispatch.scan}
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
MISTAKEN = {
    "pointer": (POINTER, r"is a Git LFS pointer. .*git lfs pull; .* lfs: true"),
    "zip": (b"PK\x03\x04" + bytes(60), "is a zip archive. Fix: unpack it"),
    "gzip": (b"\x1f\x8b\x08" + bytes(60), "is gzip data. Fix: unpack it"),
    "page": (b"\xef\xbb\xbf\n<!DOCTYPE html>\n<title>Sign in</title>", "is a web page. Fix: downl"),
}


@pytest.mark.parametrize("ending", SCANNERS)
@pytest.mark.parametrize("what", MISTAKEN)
def test_an_error_names_the_kind_of_file(tmp_path: Path, ending: str, what: str) -> None:
    content, message = MISTAKEN[what]
    path = tmp_path / f"model.{ending}"
    path.write_bytes(content)
    with pytest.raises(dml.InvalidArgumentError, match=message) as error:
        SCANNERS[ending](path)
    assert error.value.path == str(path)


@pytest.mark.parametrize(
    "text",
    ["ir_version: 8\ngraph {\n", '{"irVersion": 8}', "<net/>", "\ufeffimport torch", "éa" * 3000],
)
def test_text_is_not_an_onnx_model(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.onnx").write_text(text, encoding="utf-8")
    with pytest.raises(dml.InvalidArgumentError, match="is text, not an ONNX model"):
        onnx.scan(tmp_path / "m.onnx")


def test_other_damage_is_reported_as_damage(tmp_path: Path) -> None:
    for content in (b"\xff" * 100, bytes(100), b"\x08\x0a\x3a\xff\x01\x02"):
        (tmp_path / "m.onnx").write_bytes(content)
        with pytest.raises(dml.InvalidArgumentError, match="cannot be read as an ONNX model"):
            onnx.scan(tmp_path / "m.onnx")
