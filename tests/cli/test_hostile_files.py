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

CASES = [(f"onnx {name}", "m.onnx", content) for name, (content, _) in HOSTILE_ONNX.items()]
CASES += [("xml", "m.xml", content) for content, _ in openvino_files.HOSTILE]
CASES += [
    ("json", "m.json", text.encode("utf-8", "surrogatepass"))
    for text, message in dxdispatch_models.NOT_MODELS
    if message != "lacks 'commands'"  # A scan does not need commands.
]


def heaviest(content: bytes) -> tuple[pytest.MarkDecorator, ...]:
    """Marks for files that take a second each; the front ends' own tests always read them."""
    return (pytest.mark.slow,) if len(content) > 500_000 else ()


@pytest.mark.parametrize(
    ("name", "content"),
    [pytest.param(*case, id=what, marks=heaviest(case[1])) for what, *case in CASES],
)
def test_a_hostile_file_is_one_line(
    name: str, content: bytes, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(name).write_bytes(content)
    start = time.process_time()
    assert main(["validate", name, "--format", "json"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"dmlsplit: error: {name}: ")
    assert captured.err.count("\n") == 1
    assert json.loads(captured.out)["unreadable"][0]["file"] == name
    assert time.process_time() - start < 10


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
