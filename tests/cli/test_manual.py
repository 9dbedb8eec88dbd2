"""What the manual says of the command line is what it does."""

import re
from pathlib import Path

import pytest
import yaml
from onnx import TensorProto

from dmlsplit.cli import main
from tests.cli.command import ROOT, save
from tests.models import single

PAGE = (ROOT / "docs" / "validate.md").read_text("utf-8")


def test_the_output_in_the_manual_is_real(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line, shown = re.findall(r"```console\n\$ dmlsplit (.*?)\n(.*?)```", PAGE, re.DOTALL)[0]
    save("model.onnx", single(TensorProto.INT64, (6,), (2, 4), 0))
    assert main(line.split()) == 1
    assert capsys.readouterr().out == shown


def test_the_steps_and_hooks_in_the_manual_run(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save("models/m.onnx", single(TensorProto.FLOAT, (6,), (2, 4), 0))
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
    annotations, scanning, hooks = blocks
    lines = [step["run"] for step in annotations + scanning if "validate" in step.get("run", "")]
    lines += [f"{hook['entry']} models/m.onnx" for hook in hooks["repos"][0]["hooks"]]
    published = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    lines += [f"{hook['entry']} models/m.onnx" for hook in published]
    assert len(lines) == 4
    for line in lines:
        assert main(line.split()[1:]) == 0, line
    assert Path(scanning[-1]["with"]["sarif_file"]).exists()
