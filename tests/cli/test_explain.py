"""`explain`: geometry, bytes, time and the picture of a split."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from dmlsplit.cli import main
from tests.cli.command import FLAGS, save
from tests.models import every_verdict


def test_explain_shows_geometry_bytes_and_time(capsys: pytest.CaptureFixture[str]) -> None:
    line = "--data-type INT8 --sizes 640,480,3 --axis 2 --split 1,1,1 --card H200".split()
    assert main(["explain", *line]) == 0
    out = capsys.readouterr().out
    assert "geometry: 307200 x 3 bytes" in out
    assert "output 2: bytes 2 to 2 of every row" in out
    assert "bytes: 921600 read, 921600 written" in out
    assert "time: at least 384 ns on H200 (4800 GB/s)" in out
    assert max(map(len, out.splitlines())) <= 80


def test_explain_draws_a_picture(here: Path) -> None:
    assert main(["explain", *FLAGS, "--svg", "picture.svg"]) == 0
    assert ET.parse("picture.svg").getroot().tag.endswith("svg")


def test_explain_takes_models(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save("m.onnx", every_verdict())
    assert main(["explain", "m.onnx", "--format", "json"]) == 1
    captured = capsys.readouterr()
    places = [split["place"] for split in json.loads(captured.out)["splits"]]
    assert places[:3] == ["m.onnx:net/fits", "m.onnx:net/wide", "m.onnx:net/odd"]
    assert "net/wrong: refused" in captured.err
    assert "net/late: unknown" in captured.err
    assert main(["explain", "m.onnx", "--svg", "x.svg"]) == 2


@pytest.mark.parametrize("flag", ["--gpu", "--card"])
def test_an_unknown_gpu_is_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *FLAGS, flag, "Voodoo 2"]) == 2
    assert "GPU is 'Voodoo 2'; it must be one of H200" in capsys.readouterr().err
