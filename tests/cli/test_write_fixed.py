"""`validate --write-fixed`: a model that the target accepts, or the reason why there is none."""

from pathlib import Path

import pytest
from onnx import TensorProto

from dmlsplit.cli import main
from tests.cli.command import judged, save
from tests.models import nested, sequence, single


def test_write_fixed_writes_what_the_target_accepts(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save("m.onnx", nested())
    line = ["m.onnx", "--windows", "19041"]
    assert main(["validate", *line, "--write-fixed", "fixed.onnx"]) == 0
    assert "fixed.onnx: written with 2 splits replaced" in capsys.readouterr().err
    assert judged(capsys, "fixed.onnx", "--windows", "19041")[0] == 0


def test_write_fixed_says_what_it_leaves(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save("m.onnx", single(TensorProto.INT64, (6,), (2, 4), 0))
    line = ["validate", "m.onnx", "--feature-level", "2_0", "--write-fixed", "fixed.onnx"]
    assert main(line) == 1
    assert "net/cut: left as it is: standard ONNX cannot show INT64" in capsys.readouterr().err
    assert not Path("fixed.onnx").exists()


def test_write_fixed_helps_through_onnx_runtime(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save("m.onnx", sequence(TensorProto.FLOAT, (2, 3)))
    line = ["validate", "m.onnx", "--via", "ort", "--write-fixed", "fixed.onnx"]
    assert main(line) == 0
    assert judged(capsys, "fixed.onnx", "--via", "ort")[0] == 0
