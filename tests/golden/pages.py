"""The commands of README and of the site's pages, with the output that the pages show."""

import contextlib
import io
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from dmlsplit.cli.levels import level_table
from tests.support.command import ROOT
from tests.support.models import one_split

# The models on the start page; it builds the second.
GLU = """
<ir_version: 10, opset_import: ["" : 18]>
net (float[batch,77,4096] x) => (float[batch,77,2048] y) {
  [glu_split] a, b = Split <axis = 2, num_outputs = 2> (x)
  [glu_gate] s = Sigmoid (b)
  [glu_mul] y = Mul (a, s)
}"""
PLANES = """
<ir_version: 10, opset_import: ["" : 18]>
net (uint8[1,480,640,3] x)
    => (uint8[1,480,640,1] r, uint8[1,480,640,1] g, uint8[1,480,640,1] b) {
  [rgb] r, g, b = Split <axis = 3, num_outputs = 3> (x)
}"""
Run = Callable[[list[str]], object]
# In docs/levels.md: the first table that `dmlsplit levels` prints.
LEVEL_TABLE = re.compile(r"(?<=^```text\n)level  DirectML .*?\n(?=```$)", re.DOTALL | re.MULTILINE)


def paths() -> Iterator[Path]:
    """The pages, without those that are generated when the site is built."""
    for pattern in ("*.md", "docs/**/*.md"):
        yield from (path for path in sorted(ROOT.glob(pattern)) if path.parent.name != "rules")


def write_inputs(folder: Path) -> None:
    """Write every file that the commands read."""
    shutil.copytree(ROOT / "tests" / "data", folder / "tests/data")
    onnx.save(one_split(TensorProto.INT64, (6,), sizes=(2, 4), axis=0), folder / "model.onnx")
    onnx.save(onnx.parser.parse_model(GLU), folder / "glu.onnx")
    onnx.save(onnx.parser.parse_model(PLANES), folder / "rgb.onnx")
    (folder / "models/heads").mkdir(parents=True)
    for name in ("rgb.onnx", "heads/glu.onnx", "model.onnx"):
        shutil.copy(folder / Path(name).name, folder / "models" / name)
    np.save(folder / "IN.npy", np.arange(48).reshape(16, 3))


def blocks(text: str) -> list[str]:
    """The blocks of commands that a page shows, without those that set up an environment."""
    return re.findall(r"```console\n(\$ dmlsplit .*?)```", text, re.DOTALL)


def with_output(block: str, main: Run) -> str:
    """A block, with what its last command prints now; only if it shows output at all."""
    head, mark, command_text = block.rpartition("$ dmlsplit ")
    for line in re.findall(r"^\$ dmlsplit (.*)$", block, re.MULTILINE):
        stdout = io.StringIO()
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(io.StringIO()):
            assert main(shlex.split(line)) in (0, 1), line
    command, end, output = command_text.partition("\n")
    return head + mark + command + end + (stdout.getvalue() if output else "")


def write(folder: Path, main: Run) -> None:
    """Run the commands of each page in a folder of its own, and show what they print."""
    for number, path in enumerate(paths()):
        text = path.read_text("utf-8")
        if not blocks(text):
            continue
        (here := folder / str(number)).mkdir()
        write_inputs(here)
        with contextlib.chdir(here):
            for block in blocks(text):
                text = text.replace(block, with_output(block, main))
        path.write_text(text, encoding="utf-8", newline="\n")


def write_level_table() -> None:
    """Show the levels on their page, without the runtimes that the command prints too."""
    path = ROOT / "docs" / "levels.md"
    text = LEVEL_TABLE.sub(level_table() + "\n", path.read_text("utf-8"))
    path.write_text(text, encoding="utf-8", newline="\n")
