"""`explain`: targets, nodes and pictures. Its whole output is in tests/golden/cli."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from onnx import TensorProto

from dmlsplit.cli import main
from tests.support.command import save
from tests.support.models import every_verdict, single


def test_explain_takes_the_targets_of_validate(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "--data-type INT64 --sizes 6 --axis 0 --split 2,4 --gpu H200".split()
    assert main(["explain", *line, "--windows", "19041"]) == 0
    assert "SPLIT axis 3: UINT32[1,1,1,12]" in capsys.readouterr().out
    assert main(["explain", *line]) == 0
    assert "SPLIT axis 0: INT64[6]" in capsys.readouterr().out
    save("m.onnx", single(TensorProto.FLOAT, ("n", 6), (2, 4), 1))
    assert main(["explain", "m.onnx", "--dim", "n=3", "--via", "ort", "--gpu", "H200"]) == 0
    assert "SPLIT axis 3: FLOAT32[1,1,3,6]" in capsys.readouterr().out
    assert main(["explain", "m.onnx", "--feature-level", "1_0"]) == 1
    assert "refused for every size" in capsys.readouterr().err


def test_one_node_is_explained_and_drawn(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save("m.onnx", every_verdict())
    for name in ("fits", "net/fits"):
        assert main(["explain", "m.onnx", "--node", name, "--gpu", "H200", "--svg", "x.svg"]) == 0
        assert capsys.readouterr().out.startswith("m.onnx:net/fits: SPLIT axis 2")
    assert ET.parse("x.svg").getroot().tag.endswith("svg")
    assert main(["explain", "m.onnx", "--node", "none"]) == 2
    assert "--node is 'none'; it must be one of [fits, wide" in capsys.readouterr().err
