"""What the manual says of the command line is what it does."""

import re
from pathlib import Path

import pytest
from onnx import TensorProto

from dmlsplit.cli import main
from tests.support.command import ROOT, save
from tests.support.models import single

PAGE = (ROOT / "docs" / "validate.md").read_text("utf-8")


def test_the_output_in_the_manual_is_real(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line, shown = re.findall(r"```console\n\$ dmlsplit (.*?)\n(.*?)```", PAGE, re.DOTALL)[0]
    save("model.onnx", single(TensorProto.INT64, (6,), (2, 4), 0))
    assert main(line.split()) == 1
    assert capsys.readouterr().out == shown
