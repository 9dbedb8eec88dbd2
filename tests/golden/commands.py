"""The command lines whose complete output is stored, and the files that they read.

A transcript is what a shell shows: ``$`` marks the command, ``>`` a line of standard output, ``!``
one of standard error, ``=`` the exit status.
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
import zarr
from onnx import TensorProto

from dmlsplit.cli.validate import FORMATS
from tests.support.models import (
    attribute_split,
    every_verdict,
    in_function,
    nested,
    sequence,
    single,
)

DATA = Path(__file__).parents[1] / "data"
FOLDER = Path(__file__).parent / "cli"
ENVIRONMENT = {"COLUMNS": "80", "NO_COLOR": "1"}
FLAGS = "--data-type FLOAT32 --sizes 1,1,6,2 --axis 2 --split 2,1,3"
INT64 = "--data-type INT64 --sizes 6 --axis 0 --split 2,4"

# Each of these is one file of transcripts.
COMMANDS = {
    "help": ["--help", "--version"]
    + [f"{name} --help" for name in "validate explain levels run devices completion".split()]
    + [f"conformance {step} --help".replace("  ", " ") for step in ("", "write", "probe", "check")],
    "levels": ["levels", "levels --format json"],
    "devices": ["devices", "devices --format json"],
    "conformance": [
        "conformance write kit",
        "conformance write models",
        "conformance probe --directml bad.onnx -o observed.json",
        "conformance probe --directml missing.dll -o observed.json",
        "conformance probe --directml missing.dll -o cut.xml",
        "conformance probe --directml missing.dll -o no/observed.json",
        "conformance check missing.json",
        "conformance check nothing/settings.json",
    ],
    "completion": ["completion bash", "completion zsh", "completion fish"],
    "validate": [
        *(f"validate verdicts.onnx --windows 19041 --format {form}" for form in FORMATS),
        *(f"validate {FLAGS} --feature-level 3_0 --format {form}" for form in FORMATS),
        *(f"validate bad.onnx verdicts.onnx --via ort --format {form}" for form in FORMATS),
        "validate verdicts.onnx",
        "validate verdicts.onnx --feature-level 1_0",
        "validate verdicts.onnx --directml 1.7.0 --allow equivalent",
        "validate verdicts.onnx --fail-on unknown --format github",
        "validate nested.onnx function.onnx --feature-level 3_0",
        "validate nested.onnx function.onnx --feature-level 2_0",
        "validate sequence.onnx",
        "validate sequence.onnx empty.onnx text.onnx wide.onnx old.onnx --via ort",
        "validate sequence.onnx --via ort --feature-level 4_1",
        "validate models --via ort --ort-version 1.15.1",
        "validate empty.onnx text.onnx complex.onnx --feature-level 5_0",
        "validate dynamic.onnx",
        "validate dynamic.onnx --fail-on unknown",
        "validate descriptor.json broken.json",
        "validate descriptor.json --feature-level 2_0",
        "validate dispatch.json --feature-level 1_0",
        "validate cut.xml",
        "validate cut.xml --feature-level 2_0 --format json",
        "validate models",
        "validate many verdicts.onnx --directml 1.7.0",
        "validate many verdicts.onnx --directml 1.7.0 --quiet",
        "validate many --quiet",
        "validate many --verbose",
        "validate models '*.onnx' --format github --feature-level 2_0",
        "validate 'models/**/*.onnx' models/deep/b.ONNX",
        f"validate {INT64}",
        f"validate {INT64} --windows 22000",
        f"validate {INT64} --windows 22000 --allow equivalent",
        f"validate {INT64} --windows 10.0.22621.1848",
        f"validate {INT64} --directml 9.9.9",
        f"validate {FLAGS} -o report && cat report",
        "validate --data-type FLOAT32 --sizes 6 --axis -1 --split 2,4",
        "validate --data-type FLOAT32 --sizes 6 --axis 0 --split 2,5",
        "validate --data-type FLOAT32 --sizes 6 --axis 0 --split 2,5 --allow equivalent",
        "validate --data-type FLOAT32 --sizes 6 --axis 0 --split=-1,7",
        "validate --data-type FLOAT32 --sizes 99999999999999999999 --axis 0 --split 1",
        "validate --data-type UINT8 --sizes 1,1,5,3 --axis 3 --split 1,2 --feature-level 2_0",
    ],
    "write-fixed": [
        "validate nested.onnx --windows 19041 --write-fixed fixed.onnx",
        "validate sequence.onnx --via ort --write-fixed fixed.onnx --format github",
        "validate function.onnx --feature-level 2_0 --write-fixed fixed.onnx --format github",
        "validate wide.onnx --feature-level 2_0 --write-fixed fixed.onnx --format github",
        "validate verdicts.onnx --windows 19041 --write-fixed fixed.onnx -o report",
        "validate nested.onnx --write-fixed fixed.onnx --format github",
        "validate nested.onnx --windows 19041 --write-fixed nested.onnx --format github",
        "validate bad.onnx --write-fixed fixed.onnx --format github",
    ],
    "explain": [
        f"explain {FLAGS}",
        f"explain {FLAGS} --gpu 'RTX 4090' --format json",
        f"explain {FLAGS} --gpu H100 --svg picture.svg && cat picture.svg",
        "explain --data-type INT8 --sizes 640,480,3 --axis 2 --split 1,1,1 --gpu H200",
        "explain --data-type UINT8 --sizes 1000,85 --axis 1 --split 4,1,80 --gpu T4",
        "explain --data-type UINT8 --sizes 4,12 --axis 1 --split 1,1,1,1,1,1,1,1,1,1,1,1",
        "explain --data-type FLOAT32 --sizes 6 --axis 0 --split 2,5",
        "explain verdicts.onnx --gpu L4",
        "explain verdicts.onnx --node fits --gpu H200 --svg picture.svg",
        "explain verdicts.onnx --node net/fits --gpu H200",
        f"explain {INT64} --windows 19041 --gpu H200",
        f"explain {INT64} --directml 9.9.9 --gpu H200",
        "explain dynamic.onnx --dim n=4 --via ort --gpu H200",
        "explain dynamic.onnx --feature-level 1_0",
        "explain strided.json descriptor.json broken.json",
        "explain strided.json --format json",
        "explain cut.xml",
        "explain models",
        "explain DML-LEVEL-DATA-TYPE",
        "explain ORT-EMPTY-PIECE DML-BIND-SIZE",
    ],
    "run": [
        "run picture.npy --axis -1 --split 1,1,1",
        "run picture.npy --axis 0 --count 4 -o rows",
        "run picture.npy --axis 0 --count 1",
        "run picture.npy --axis 2 --count 3 --format zarr -o colours",
        "run numbers.zarr --axis 1 --split 2,3,1 --block-bytes 64",
        "run numbers.zarr --axis 0 --count 2 --format npy",
        "run dispatch.json",
    ],
    "wrong": [
        "",
        "unknown",
        "validat model.onnx",
        "levels --format jsn",
        "devices --format xml",
        "completion",
        "completion powershell",
        "conformance",
        "conformance prob",
        "conformance write",
        "conformance probe --directml bad.onnx",
        "conformance check bad.json --format sarif",
        "validate",
        "validate --data-type FLOAT32",
        f"validate verdicts.onnx {FLAGS}",
        "validate --sizes 1,x",
        "validate --axis one",
        "validate verdicts.onnx --feature-level 2_0 --windows 22621",
        "validate verdicts.onnx --dim n=1 --dim n=2",
        "validate verdicts.onnx -q -v",
        "validate verdicts.onnx --format xml",
        "validate verdicts.onnx --via tensorrt",
        "validate verdicts.onnx --fail-on everything",
        "validate verdicts.onnx --allow everything",
        "validate verdicts.onnx --feature-level 9_9",
        "validate verdicts.onnx --windows 7601",
        "validate verdicts.onnx --windows 22H2",
        "validate verdicts.onnx --directml x",
        f"validate {FLAGS} --via ort",
        "validate --data-type FLOAT31 --sizes 6 --axis 0 --split 6",
        "validate missing.onnx",
        "validate model.pb",
        "validate cut.xml --via ort",
        "validate '*.model'",
        "validate nothing",
        "validate pipe.onnx - /dev/null",
        "validate bad.onnx bad.xml bad.json deep.json",
        "validate bad.onnx bad.xml bad.json deep.json --format json",
        f"validate {FLAGS} -o no/such/report",
        f"validate {FLAGS} --write-fixed fixed.onnx",
        "validate nested.onnx -o ./fixed.onnx --write-fixed fixed.onnx",
        "validate nested.onnx --input feed.npz",
        "validate nested.onnx function.onnx --write-fixed fixed.onnx",
        f"explain {FLAGS} --gpu 'Voodoo 2'",
        "explain models --gpu L4 --svg picture.svg",
        "explain verdicts.onnx --node none",
        "explain bad.onnx",
        "explain DML-SPLIT-AXIS-RANG",
        "explain DML-SPLIT-AXIS-RANGE bad.onnx",
        "explain DML-SPLIT-AXIS-RANGE --feature-level 2_0",
        "run",
        "run missing.npy --axis 0 --count 2",
        "run missing.json",
        "run nothing --axis 0 --count 2",
        "run /dev/null --axis 0 --count 2",
        "run bad.json",
        "run picture.npy --axis 2",
        "run picture.npy --count 2",
        "run picture.npy --axis 2 --split 1,x",
        "run picture.npy --axis 2 --split 1 --count 1",
        "run picture.npy --axis 3 --count 2",
        "run picture.npy --axis 2 --split 1,1",
        "run picture.npy --axis 2 --count 2",
        "run picture.npy --axis 2 --count 3 --device tpu",
        "run picture.npy --axis 2 --count 3 --block-bytes 8",
        "run picture.npy --axis 2 --count 3 --scheduler tcp://host:1",
        "run descriptor.json --axis 2",
        "run dispatch.json --format npy",
        "run verdicts.onnx --axis 0 --count 2",
        "run s3://bucket/numbers.zarr --axis 0 --count 2",
        "run numbers.zarr --axis 0 --count 2 --scheduler localhost",
    ],
}


def descriptor(split: tuple[int, ...], strides: list[int] | None = None) -> str:
    """A descriptor file that splits INT64[6, 2] along axis 0."""
    outputs = [{"DataType": "INT64", "Sizes": [size, 2]} for size in split]
    given = {"DataType": "INT64", "Sizes": [6, 2]} | ({"Strides": strides} if strides else {})
    return json.dumps(
        {"InputTensor": given, "OutputCount": len(split), "OutputTensors": outputs, "Axis": 0}
    )


def write_inputs(folder: Path) -> None:
    """Write every file that the commands read."""
    models = {
        "verdicts.onnx": every_verdict(),
        "nested.onnx": nested(),
        "function.onnx": in_function(),
        "sequence.onnx": sequence(TensorProto.FLOAT, (2, 3)),
        "empty.onnx": single(TensorProto.FLOAT, (6,), (2, 0, 4), 0),
        "text.onnx": single(TensorProto.STRING, (6,), (2, 4), 0),
        "complex.onnx": single(TensorProto.COMPLEX64, (6,), (2, 4), 0),
        "wide.onnx": single(TensorProto.DOUBLE, (2,) * 9, (1, 1), 4),
        "dynamic.onnx": single(TensorProto.FLOAT, ("n", 2), (2, 2), 0),
        "old.onnx": attribute_split(1, 0, (6,)),
        "models/a.onnx": single(TensorProto.FLOAT, (6,), (2, 4), 0),
        **{f"many/{at}.onnx": single(TensorProto.FLOAT, (6,), (2, 4), 0) for at in range(9)},
        "models/deep/b.ONNX": single(TensorProto.INT8, (6, 4), (1, 3), 1),
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
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name, content in models.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        onnx.save(content, folder / name)
    (folder / "cut.bin").write_bytes(bytes(8))
    os.mkfifo(folder / "pipe.onnx")
    for name in ("picture.npy", "dispatch.json", "cut.xml"):
        shutil.copy(DATA / name, folder)
    numbers = np.arange(24, dtype=np.int16).reshape(4, 6)
    zarr.create_array(str(folder / "numbers.zarr"), data=numbers, chunks=(2, 3))


def stable(text: str) -> str:
    """The text without parts that depend on the version of Python or of this package."""
    text = re.sub(r"^dmlsplit \d\S*$", "dmlsplit VERSION", text, flags=re.MULTILINE)
    text = re.sub(r'"version": "(?!2\.1\.0")[^"]*"', '"version": "VERSION"', text)
    # Before Python 3.12 choices are quoted; before 3.13 the metavar is repeated for each name.
    text = re.sub(r"\(choose from .*\)", lambda found: found[0].replace("'", ""), text)
    return re.sub(r"(-[\w-]+) ([A-Z]+), (--[\w-]+ \2)", r"\1, \3", text)


def options(script: str) -> str:
    """The words that a completion script offers, because the rest depends on shtab's version."""
    return "\n".join(sorted(set(re.findall(r"--[a-z][a-z-]+", script))))


def transcript(line: str, main: Callable[[list[str]], int]) -> str:
    """Run a command in the current folder and return what a shell would show."""
    given, _, then = line.partition(" && cat ")
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(shlex.split(given))
        except SystemExit as exit_:
            status = int(exit_.code or 0)
    shown = out.getvalue() + (Path(then).read_text("utf-8") if then else "")
    if given.startswith("completion"):
        shown = options(shown)
    lines = [f"$ dmlsplit {line}".rstrip()]
    lines += [f"> {each}".rstrip() for each in stable(shown).splitlines()]
    lines += [f"! {each}".rstrip() for each in stable(err.getvalue()).splitlines()]
    return "\n".join([*lines, f"= {status}"])


def write(folder: Path, main: Callable[[list[str]], int]) -> None:
    """Write the golden files; `folder` is empty, and each command runs in a folder of its own."""
    FOLDER.mkdir(exist_ok=True)
    for name, lines in COMMANDS.items():
        found = []
        for number, line in enumerate(lines):
            own = folder / f"{name}-{number}"
            write_inputs(own)
            with contextlib.chdir(own):
                found.append(transcript(line, main))
        (FOLDER / f"{name}.txt").write_text("\n\n".join(found) + "\n", encoding="utf-8")


def golden() -> dict[str, str]:
    """The transcripts of the golden files by their command lines."""
    texts = "\n".join(path.read_text("utf-8") for path in FOLDER.glob("*.txt"))
    found = [f"$ dmlsplit{text}".strip() for text in texts.split("$ dmlsplit")[1:]]
    return {text.partition("\n")[0].removeprefix("$ dmlsplit").strip(): text for text in found}
