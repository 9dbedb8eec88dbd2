"""`validate` on hostile files: one clear line each, and exit status 2."""

import json
import time
from pathlib import Path

import pytest
from onnx import TensorProto

from dmlsplit.cli import main
from tests.support import dxdispatch_models, openvino_files
from tests.support.command import save
from tests.support.models import single
from tests.support.onnx_graphs import REFUSED as HOSTILE_ONNX

HOSTILE_XML = [content for content, _ in openvino_files.HOSTILE]
HOSTILE_JSON = [
    text
    for text, message in dxdispatch_models.NOT_MODELS
    if message != "lacks 'commands'"  # A scan needs none.
]


def assert_one_line_and_2(capsys: pytest.CaptureFixture[str], name: str) -> None:
    start = time.process_time()
    assert main(["validate", name, "--format", "json"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"dmlsplit: error: {name}: ")
    assert captured.err.count("\n") == 1
    assert json.loads(captured.out)["unreadable"][0]["file"] == name
    assert time.process_time() - start < 10


def heaviest(content: bytes) -> tuple[pytest.MarkDecorator, ...]:
    """Files that take a second each; the front ends' own tests always read them."""
    return (pytest.mark.slow,) if len(content) > 500_000 else ()


@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=heaviest(HOSTILE_ONNX[name][0])) for name in HOSTILE_ONNX]
)
def test_hostile_onnx(case: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.onnx").write_bytes(HOSTILE_ONNX[case][0])
    assert_one_line_and_2(capsys, "m.onnx")


@pytest.mark.parametrize(
    "content",
    [pytest.param(content, marks=heaviest(content)) for content in HOSTILE_XML],
    ids=range(len(HOSTILE_XML)),
)
def test_hostile_xml(content: bytes, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.xml").write_bytes(content)
    assert_one_line_and_2(capsys, "m.xml")


@pytest.mark.parametrize("content", HOSTILE_JSON, ids=range(len(HOSTILE_JSON)))
def test_hostile_json(content: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.json").write_text(content)
    assert_one_line_and_2(capsys, "m.json")


def test_names_from_a_model_cannot_drive_the_terminal(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = single(TensorProto.FLOAT, (6,), (2, 5), 0)
    content.graph.node[1].name = "\x1b]0;owned\x07"
    content.graph.name = "\x1b[2J"
    save("m.onnx", content)
    main(["validate", "m.onnx", "bad\x1b[2J.onnx"])
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err
    assert "\\x1b" in captured.out
