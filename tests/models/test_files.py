"""Damaged, hostile and missing files: one clear error at once, whatever the format."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmlsplit as dml
from dmlsplit import InvalidArgumentError
from dmlsplit.frontends import Known, SplitSite, dxdispatch, onnx, openvino
from dmlsplit.models.onnx import model_scan
from tests.support import dxdispatch as dispatched
from tests.support import onnx_graphs, openvino_files
from tests.support.fixtures import Patch
from tests.support.hangs import no_hang
from tests.support.onnx_graphs import (
    branch,
    chained,
    field,
    halve,
    model,
    node,
    sizes,
    value,
    varint,
)
from tests.support.sites import why

Read = Callable[[Any], Any]
READERS = [onnx.scan, openvino.scan, dxdispatch.scan, dxdispatch.load, dxdispatch.run]


def refusal(read: Read, path: Path) -> str:
    """The message about a file that must be refused."""
    with no_hang(), pytest.raises(InvalidArgumentError) as error:
        read(path)
    message = error.value.message
    assert error.value.path == str(path)
    assert str(error.value) == f"{path}: {message}"
    assert str(path) not in message
    assert "\n" not in message
    assert len(message) < 500
    return message


def reader_name(read: Read) -> str:
    return f"{format_name(read)}.{read.__name__}"


def format_name(read: Read) -> str:
    return read.__module__.split(".")[2]


@pytest.mark.parametrize("read", READERS, ids=reader_name)
@pytest.mark.parametrize("kind", ["missing", "empty", "noise", "folder", "pipe", "zero", "NUL"])
def test_a_file_that_is_not_a_model_gives_one_clear_error(
    read: Read, kind: str, tmp_path: Path
) -> None:
    path = tmp_path / ("model\0" if kind == "NUL" else "model")
    if kind == "zero":
        path = Path("/dev/zero")
    if kind in ("empty", "noise"):
        path.write_bytes(b"\0no model" * (kind == "noise"))
    if kind == "folder":
        path.mkdir()
    if kind == "pipe":
        os.mkfifo(path)
    message = refusal(read, path)
    if kind == "missing":
        assert message == "cannot be read: No such file or directory"


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
MISTAKEN = [
    (POINTER, "is a Git LFS pointer. Fix: git lfs pull; in GitHub Actions, set lfs: true"),
    (b"PK\x03\x04" + bytes(60), "is a zip archive. Fix: unpack it"),
    (b"\x1f\x8b\x08" + bytes(60), "is gzip data. Fix: unpack it"),
    (b"\xef\xbb\xbf\n<!DOCTYPE html>\n<title>Sign in</title>", "is a web page. Fix: downl"),
]
TEXTS = ["ir_version: 8\ngraph {\n", '{"irVersion": 8}', "<net/>", "\ufeffimport torch", "é" * 3000]
HOSTILE: list[tuple[Read, bytes, str]] = [
    *((read, *file) for read in (onnx.scan, openvino.scan, dxdispatch.scan) for file in MISTAKEN),
    *((onnx.scan, text.encode(), "is text, not an ONNX model") for text in TEXTS),
    *((onnx.scan, content, message) for content, message in onnx_graphs.REFUSED.values()),
    *((openvino.scan, content, message) for content, message in openvino_files.HOSTILE),
    *((dxdispatch.run, text.encode(), message) for text, message in dispatched.NOT_MODELS),
]
HOSTILE_IDS = [f"{format_name(read)}: {message[:50]}" for read, _, message in HOSTILE]


@pytest.mark.parametrize(("read", "content", "message"), HOSTILE, ids=HOSTILE_IDS)
def test_a_hostile_file_gives_one_clear_error_at_once(
    read: Read, content: bytes, message: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    """ONNX's most fields take 10 s; here they are a sixteenth of it."""
    monkeypatch.setattr(model_scan, "MAX_FIELDS", model_scan.MAX_FIELDS // 16)
    path = tmp_path / "model"
    path.write_bytes(content)
    assert message in refusal(read, path)


MODELS = [
    onnx_graphs.GOOD,
    chained([("f0", ["f1"]), ("f1", [])]).SerializeToString(),
    model(
        [
            node("Constant", "", "s", value=sizes("", 2, 4)),
            node("Reshape", "x t", "y"),
            node("Split", "y s", "a b"),
            node("Halve", "a", "p q", domain="own", at=1),
            node("If", "c", "z", then_branch=branch("t", 2), else_branch=branch("e", 3)),
            node("SplitToSequence", "x", "l", keepdims=0),
        ],
        [value("x", [2, 6]), value("outer", ["n", 6])],
        initializers=(sizes("t", -1, 2),),
        functions=(halve(),),
    ).SerializeToString(),
]


@st.composite
def mutated(draw: st.DrawFn, valid: bytes, tokens: list[bytes]) -> bytes:
    """The content with one to four places replaced by noise or by one of the tokens."""
    content = valid
    new = st.binary(max_size=6) | st.sampled_from(tokens)
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(0, len(valid) - 1))
        content = content[:position] + draw(new) + content[position + draw(st.integers(0, 12)) :]
    return content


NUMBERS = [b"\xff" * 10, varint(2**63), b"\x80" * 9, *(m[:40] * 99 for m in MODELS)]
TAGS = [b"-1", b"9" * 25, b"<", b'"', b"</net>", b"<dim>", b"Split"]
TOKENS = [b"-1", b"9" * 25, b"{", b"]", b'"', b"null", b"1e5", b"//", b"[]"]
FILES: dict[str, st.SearchStrategy[bytes]] = {
    "model.onnx": st.sampled_from(MODELS).flatmap(lambda seed: mutated(seed, NUMBERS)),
    "noise.onnx": st.binary(min_size=1, max_size=200).map(
        lambda b: field(7, b) + field(8, b"\x10\x12")
    ),
    "model.xml": mutated(openvino_files.variadic().encode(), TAGS),
    "model.json": mutated(json.dumps(dispatched.model()).encode(), TOKENS),
}


@pytest.mark.parametrize("name", FILES)
@settings(settings.get_profile("many"))
@given(data=st.data(), weights=st.integers(0, 24))
def test_a_mutated_file_gives_sites_or_one_error(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject, weights: int
) -> None:
    path = tmp_path_factory.getbasetemp() / name
    path.unlink(missing_ok=True)  # faster than to empty it
    path.write_bytes(data.draw(FILES[name]))
    path.with_suffix(".bin").write_bytes(openvino_files.weights()[:weights])
    read = {".onnx": onnx.scan, ".xml": openvino.scan, ".json": dxdispatch.scan}[path.suffix]
    with no_hang():
        try:
            sites: list[SplitSite] = read(path)
        except InvalidArgumentError as error:
            message = str(error)
        else:
            message = "".join(map(why, sites))
            for site in sites:
                if isinstance(site.state, Known) and site.state.descriptor:
                    dml.validate(site.state.descriptor)
        assert "\n" not in message.replace(repr("\n"), "")
        if path.suffix == ".json":
            with suppress(InvalidArgumentError):
                dxdispatch.run(path, "cpu")
