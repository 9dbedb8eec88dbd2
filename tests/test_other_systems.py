"""The commands do not need functions and modules that Windows and macOS lack.

They run in a child process from which `other_systems` has removed these.
"""

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

from tests.support.command import FLAGS, ROOT, ran, save
from tests.support.models import every_verdict, nested, one_split

# Commands and their exit statuses.
LINES = {
    "levels": "0",
    "validate m.onnx --windows 19041": "1",
    "validate m.onnx --windows 19041 --format sarif -o out.sarif": "1",
    "validate dynamic.onnx --dim n=2 -o report": "0",
    "validate nested.onnx --feature-level 2_0 --write-fixed fixed.onnx": "0",
    f"explain {' '.join(FLAGS)} --gpu H200": "0",
    "run dispatch.json": "0",
}


@pytest.fixture
def here(here: Path) -> Path:
    """A folder with the files that the commands read."""
    save("m.onnx", every_verdict())
    save("nested.onnx", nested())
    save("dynamic.onnx", one_split(TensorProto.FLOAT, ("n", 6), sizes=(2, 4), axis=1))
    shutil.copy(ROOT / "tests/data/dispatch.json", here)
    np.save("x.npy", np.arange(12).reshape(3, 4))
    return here


@pytest.mark.skipif(sys.platform != "linux", reason="removes functions of Linux")
@pytest.mark.parametrize("system", ["win32", "darwin"])
@pytest.mark.parametrize(
    "lines", [LINES, {"run x.npy --axis 1 --count 2": "0"}], ids=["validator", "storage"]
)
def test_commands_run_without_the_functions_that_windows_and_macos_lack(
    system: str, lines: dict[str, str], here: Path
) -> None:
    program = [sys.executable, str(ROOT / "tests" / "support" / "other_systems.py"), system]
    process = ran(*program, *lines)
    assert process.returncode == 0, process.stderr
    assert re.findall(r"^status (\d+)$", process.stderr, re.MULTILINE) == list(lines.values())
    assert not list(here.glob(".*")), "a draft or a workspace is left"
    if "levels" in lines:
        assert json.loads(Path("out.sarif").read_text("utf-8"))["version"] == "2.1.0"
        assert Path("fixed.onnx").exists()
