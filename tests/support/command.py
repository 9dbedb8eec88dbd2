"""The command line in a child process, the verdicts that it prints, and models to give it."""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto

from dmlsplit.cli import main
from dmlsplit.cli.terminal import STOPS
from tests.support.models import single

ROOT = Path(__file__).parents[2]
FLAGS = "--data-type FLOAT32 --sizes 1,1,6,2 --axis 2 --split 2,1,3".split()


def ours() -> dict[str, str]:
    """The environment of a process that imports this tree."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def started(
    *arguments: str, folder: Path | None = None, program: str | None = None, **more: object
) -> "subprocess.Popen[bytes]":
    """Start a command with pipes; signals end it even if the tests' own process ignores them.

    If `program` is given, it runs instead of the module, with the same arguments.
    """
    more.setdefault("env", ours())
    line = [sys.executable, *(["-c", program] if program else ["-m", "dmlsplit"]), *arguments]
    pipe = subprocess.PIPE
    # A child does not inherit Python's handlers, but it does inherit ignored signals.
    inherited = {number: signal.signal(number, signal.default_int_handler) for number in STOPS}
    try:
        return subprocess.Popen(line, cwd=folder, **{"stdout": pipe, "stderr": pipe, **more})
    finally:
        for number, before in inherited.items():
            signal.signal(number, before)


def ran(*line: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end; Python in it imports our package."""
    options["env"] = ours() | options.pop("env", {})
    pipe = subprocess.PIPE
    return subprocess.run(
        line, **{"stdout": pipe, "stderr": pipe, "text": True, "check": False, **options}
    )


def shell(line: str) -> "subprocess.CompletedProcess[str]":
    """Run a line of bash in the current folder; `dmlsplit` in it is ours."""
    return ran("bash", "-c", line.replace("dmlsplit ", f"{sys.executable} -m dmlsplit "))


def refused(capsys: pytest.CaptureFixture[str], line: str, lines: int | None = 1) -> str:
    """The error message of a command that fails, which has `lines` lines."""
    capsys.readouterr()
    assert main(shlex.split(line)) == 2
    said = capsys.readouterr().err
    assert said.startswith("dmlsplit: error: ")
    assert lines is None or said.count("\n") == lines
    return said


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of commands without subcommands."""
    inner = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not inner:
        yield parser
    for action in inner:
        for below in action.choices.values():
            yield from leaves(below)


def save(name: str, content: onnx.ModelProto) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    onnx.save(content, name)


def judged(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, str]]:
    """Exit status, and verdicts by file, place and node."""
    capsys.readouterr()
    status = main(["validate", *arguments, "--format", "json"])
    splits = json.loads(capsys.readouterr().out)["splits"]
    return status, {f"{s['file']}:{s['place']}/{s['node']}": s["verdict"] for s in splits}


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def length_delimited(number: int, size: int) -> bytes:
    return varint(number << 3 | 2) + varint(size)


def sparse_model(path: Path, weights: int, copies: int = 1) -> None:
    """Write a model with a split and `weights` bytes of initializers, as holes in the file."""
    graph = single(TensorProto.FLOAT, (6, 4), (2, 4), 0).graph
    nodes = graph.SerializeToString() + b"".join(
        length_delimited(1, len(node)) + node
        for node in [graph.node[1].SerializeToString()] * (copies - 1)
    )
    head = b"".join(
        [
            b"\x08\x01\x08" + varint(weights // 4),  # dims: 1, elements
            b"\x10\x01" + length_delimited(8, 1) + b"w",  # data_type FLOAT, name
            length_delimited(9, weights),  # raw_data
        ]
    )
    tensor = length_delimited(5, len(head) + weights) + head
    opset = length_delimited(8, 2) + b"\x10\x12"
    front = b"\x08\x0a" + opset
    front += length_delimited(7, len(nodes) + len(tensor) + weights) + nodes + tensor
    with path.open("wb") as file:
        file.write(front)
        file.truncate(len(front) + weights)
