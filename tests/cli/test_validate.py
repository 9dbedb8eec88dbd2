"""`validate`: files, folders, formats and targets. Most refusals are in tests/golden/cli."""

from pathlib import Path

import pytest
from onnx import TensorProto

from dmlsplit.cli import main
from tests.support.command import judged, save
from tests.support.fixtures import Capsys
from tests.support.models import parsed, single

# Files.


def test_a_file_name_may_look_like_a_pattern(here: Path, capsys: Capsys) -> None:
    save("m[1].onnx", single(TensorProto.FLOAT, (6,), (2, 4), 0))
    assert judged(capsys, "m[1].onnx") == (0, {"m[1].onnx:net/cut": "ok"})


# Dynamic models and targets.


def test_dim_gives_sizes(here: Path, capsys: Capsys) -> None:
    save("m.onnx", single(TensorProto.INT64, ("batch", 6), (2, 4), 1))
    for dim in ("batch=3", "cut=3"):
        status = main(["validate", "m.onnx", "--dim", dim])
        assert status == (0 if dim == "batch=3" else 2)
    assert "no .onnx model here has a dynamic dimension" in capsys.readouterr().err
    # Where there are several models, it may be for others.
    save("static.onnx", single(TensorProto.INT64, (3, 6), (2, 4), 1))
    for paths, status in (["m.onnx", "static.onnx"], 0), (["."], 0), (["static.onnx"], 2):
        capsys.readouterr()
        assert main(["validate", *paths, "--dim", "batch=3", "--dim", "cut=3"]) == status
        said = capsys.readouterr().err
        note = "note: --dim cut: none of these models has a dynamic dimension of that name"
        assert (said == f"dmlsplit: {note}\n") == (status == 0), said
    # What is refused for every size may have an equivalent for some.
    assert main(["validate", "m.onnx", "--feature-level", "1_0", "--allow", "equivalent"]) == 0


@pytest.mark.parametrize("text", ["batch", "=1", "batch=", "batch=-1", "batch=x", "batch=\u0661"])
def test_dim_is_read_strictly(text: str, capsys: Capsys) -> None:
    with pytest.raises(SystemExit):
        main(["validate", "m.onnx", "--dim", text])
    assert "it must be NAME=N or VALUE.AXIS=N" in " ".join(capsys.readouterr().err.split())


def test_a_known_defect_fails_only_when_asked(here: Path, capsys: Capsys) -> None:
    text = """(float[1,4,5] x) => (float[] y) {
        a, b = Split <axis = 1, num_outputs = 2> (x)
        g = Sigmoid (b)
        y = Mul (a, g)
    }"""
    save("glu.onnx", parsed(text))
    for via in ("directml", "ort"):
        assert main(["validate", "glu.onnx", "--via", via]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert "known defect of DirectML (SPLIT-DEFECT-RECOMBINED), may affect 1 split:" in text
        assert main(["validate", "glu.onnx", "--via", via, "--fail-on", "defect"]) == 1


def test_names_from_a_model_cannot_drive_the_terminal(here: Path, capsys: Capsys) -> None:
    content = single(TensorProto.FLOAT, (6,), (2, 5), 0)
    content.graph.node[1].name = "\x1b]0;owned\x07"
    save("m.onnx", content)
    main(["validate", "m.onnx", "bad\x1b[2J.onnx"])
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err
    assert "\\x1b" in captured.out
