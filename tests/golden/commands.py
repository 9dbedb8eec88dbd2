"""Transcripts of commands, which tests/golden/cli holds, and the files that the commands read.

A transcript is what a shell shows: ``$`` marks the command, ``>`` a line of standard output, ``!``
one of standard error, ``=`` the exit status. To add a command, write its line with ``$`` into a
file, and run `python -m tests.golden.make`.
"""

import contextlib
import io
import json
import os
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from tests.support import models as m
from tests.support import networks
from tests.support.dxdispatch import split_desc, tensor
from tests.support.models import one_split, one_split_to_sequence

DATA = Path(__file__).parents[1] / "data"
FOLDER = Path(__file__).parent / "cli"
ENVIRONMENT = {"COLUMNS": "80", "NO_COLOR": "1", "DMLSPLIT_NATIVE": "0"}


_HALVES = """<ir_version: 9, opset_import: ["" : 18]>
net (float[1,8] x) => (float[1,4] a, float[1,4] b) {
    [cut] a, b = Split <axis = 1, num_outputs = 2> (x)
}"""
_SHAPE = """(float[2,6] x) => (int64[1] a, int64[1] b) {
    shape = Shape (x)
    [cut] a, b = Split <num_outputs = 2> (shape)
}"""
_SIX = """(float[6] x) => (float[] a, float[] b, float[] c, float[] d) {
    [cut] a, b, c, d = Split <num_outputs = 4> (x)
}"""


def descriptor(split: tuple[int, ...], strides: list[int] | None = None) -> str:
    """A descriptor file that splits INT64[6, 2] along axis 0."""
    x = tensor([6, 2], "INT64", **({"Strides": strides} if strides else {}))
    outputs = [tensor([size, 2], "INT64") for size in split]
    return json.dumps(split_desc(InputTensor=x, OutputCount=len(split), OutputTensors=outputs))


def write_inputs(folder: Path) -> None:
    """Write every file that the commands read."""
    models = {
        "verdicts.onnx": m.every_verdict(),
        "nested.onnx": m.nested(),
        "function.onnx": m.in_function(),
        "sequence.onnx": one_split_to_sequence(TensorProto.FLOAT, (2, 3)),
        "empty.onnx": one_split(TensorProto.FLOAT, (6,), sizes=(2, 0, 4), axis=0),
        "text.onnx": one_split(TensorProto.STRING, (6,), sizes=(2, 4), axis=0),
        "complex.onnx": one_split(TensorProto.COMPLEX64, (6,), sizes=(2, 4), axis=0),
        "wide.onnx": one_split(TensorProto.DOUBLE, (2,) * 9, sizes=(1, 1), axis=4),
        "dynamic.onnx": one_split(TensorProto.FLOAT, ("n", 2), sizes=(2, 2), axis=0),
        "old.onnx": m.split_with_sizes_as_an_attribute(opset=1, axis=0, shape=(6,)),
        "qkv.onnx": networks.layers(24),
        "glu.onnx": networks.glu(),
        "lstm.onnx": networks.lstm(1),
        "silero.onnx": networks.lstm("batch"),
        "super_resolution.onnx": networks.super_resolution(),
        "int64.onnx": one_split(TensorProto.INT64, (1, 6, 4), sizes=(2, 4), axis=1),
        "batch.onnx": one_split(TensorProto.INT8, ("batch", 3, 4, 4), sizes=(1, 2), axis=1),
        "halves.onnx": onnx.parser.parse_model(_HALVES),
        "opset26.onnx": onnx.parser.parse_model(_HALVES.replace("18", "26")),
        "opset13.onnx": m.parsed_at(13, 7, "a, b = Split <axis = 1> (x)"),
        "opset9.onnx": m.parsed_at(9, 4, "a, b = Split <axis = 1> (x)"),
        "bool.onnx": one_split(TensorProto.BOOL, (1, 6, 4), sizes=(2, 4), axis=1),
        "image.onnx": one_split(TensorProto.UINT8, (1, 480, 640, 3), sizes=(1, 1, 1), axis=3),
        "shape.onnx": m.parsed(_SHAPE),
        "frozen.onnx": one_split(TensorProto.FLOAT, ("batch", 4), sizes=(1, 1), axis=0),
        "six_into_four.onnx": m.parsed(_SIX),
        "models/a.onnx": one_split(TensorProto.FLOAT, (6,), sizes=(2, 4), axis=0),
        **{
            f"many/{number}.onnx": one_split(TensorProto.FLOAT, (6,), sizes=(2, 4), axis=0)
            for number in range(9)
        },
        "models/deep/b.ONNX": one_split(TensorProto.INT8, (6, 4), sizes=(1, 3), axis=1),
    }
    texts = {
        "models/settings.xml": "<settings/>",
        "nothing/settings.json": "{}",
        "descriptor.json": descriptor((2, 4)),
        "broken.json": descriptor((2, 5)),
        "strided.json": descriptor((2, 4), [1, 6]),
        "bad.onnx": "\x7f" * 100,
        "bad.xml": "<!DOCTYPE net><net/>",
        "bad.json": '{"InputTensor": ]}',
        "deep.json": "[" * 100_000,
    }
    contents = {name: model.SerializeToString() for name, model in models.items()}
    for name, content in (contents | {name: text.encode() for name, text in texts.items()}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    os.mkfifo(folder / "pipe.onnx")
    for name in ("picture.npy", "dispatch.json", "cut.xml", "cut.bin"):
        shutil.copy(DATA / name, folder)
    np.save(folder / "numbers.npy", np.arange(24, dtype=np.int16).reshape(4, 6))


def stable(text: str) -> str:
    """The text without what depends on the version of Python or of this package."""
    text = re.sub(r"^dmlsplit \d\S*$", "dmlsplit VERSION", text, flags=re.MULTILINE)
    text = re.sub(r'"version": "(?!2\.1\.0")[^"]*"', '"version": "VERSION"', text)
    # JSON puts each size of a tensor in a line of its own.
    text = re.sub(r"\[\s+(\d+(?:,\s+\d+)*)\s+\]", _in_one_line, text)
    # Before Python 3.13, argparse repeats the metavar for each name.
    return re.sub(r"(-[\w-]+) ([A-Z]+), (--[\w-]+ \2)", r"\1, \3", text)


def _in_one_line(array: re.Match[str]) -> str:
    return f"[{' '.join(array[1].split())}]"


def transcript(line: str, main: Callable[[list[str]], int]) -> str:
    """Run a command in the current folder and return what a shell would show."""
    command, _, shown_file = line.partition(" && cat ")
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(shlex.split(command))
        except SystemExit as exit_:
            status = int(exit_.code or 0)
    output = out.getvalue() + (Path(shown_file).read_text("utf-8") if shown_file else "")
    lines = [f"$ dmlsplit {line}".rstrip()]
    lines += [f"> {output_line}".rstrip() for output_line in stable(output).splitlines()]
    lines += [f"! {output_line}".rstrip() for output_line in stable(err.getvalue()).splitlines()]
    return "\n".join([*lines, f"= {status}"])


def write(folder: Path, main: Callable[[list[str]], int]) -> None:
    """Write the golden files; `folder` is empty, and each command runs in a folder of its own."""
    for path in FOLDER.glob("*.txt"):
        page_parts = []
        for number, line in enumerate(transcripts(path)):
            own_folder = folder / f"{path.stem}-{number}"
            write_inputs(own_folder)
            with contextlib.chdir(own_folder):
                page_parts.append(transcript(line, main))
        path.write_text("\n\n".join(page_parts) + "\n", encoding="utf-8")


def transcripts(path: Path) -> dict[str, str]:
    """The transcripts of a golden file by their command lines."""
    texts = re.findall(r"^\$ dmlsplit.*\n(?:[>!=].*\n)*", path.read_text("utf-8"), re.MULTILINE)
    return {text.partition("\n")[0].removeprefix("$ dmlsplit").strip(): text for text in texts}


def golden() -> dict[str, str]:
    """Every transcript by its command line."""
    return {line: text for path in FOLDER.glob("*.txt") for line, text in transcripts(path).items()}
