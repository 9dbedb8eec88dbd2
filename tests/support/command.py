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
from dmlsplit.cli.terminal import STOP_SIGNALS
from tests.support.models import one_split
from tests.support.onnx_graphs import field, varint

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
    inherited = {
        number: signal.signal(number, signal.default_int_handler) for number in STOP_SIGNALS
    }
    try:
        return subprocess.Popen(line, cwd=folder, **{"stdout": pipe, "stderr": pipe, **more})
    finally:
        for number, before in inherited.items():
            signal.signal(number, before)


def every_parser(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and those of its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from every_parser(command)


def ran(*line: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end; Python in it imports our package."""
    options["env"] = ours() | options.pop("env", {})
    pipe = subprocess.PIPE
    return subprocess.run(
        line, **{"stdout": pipe, "stderr": pipe, "text": True, "check": False, **options}
    )


# A file of settings could ask for signatures, or rename branches.
NO_SETTINGS = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}


def git(folder: Path, *words: str) -> str:
    """The output of git in a folder."""
    author = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    process = ran("git", *author, *words, cwd=folder, env=NO_SETTINGS)
    assert process.returncode == 0, process.stderr
    return str(process.stdout.strip())


def shell(line: str) -> "subprocess.CompletedProcess[str]":
    """Run a line of bash in the current folder; `dmlsplit` in it is ours."""
    return ran(
        "bash", "-c", line.replace("dmlsplit ", f"{shlex.quote(sys.executable)} -m dmlsplit ")
    )


def program(path: Path, *words: str) -> Path:
    """Write a program that runs Python with these words, because `#!` takes no path with spaces."""
    line = shlex.join((sys.executable, *words))
    path.write_text(f'#!/bin/sh\nexec {line} "$@"\n', "utf-8")
    path.chmod(0o755)
    return path


def refused(capsys: pytest.CaptureFixture[str], line: str, lines: int | None = 1) -> str:
    """The error message of a command that fails, which has `lines` lines."""
    capsys.readouterr()
    assert main(shlex.split(line)) == 2
    message = capsys.readouterr().err
    assert message.startswith("dmlsplit: error: ")
    assert lines is None or message.count("\n") == lines
    return message


def save(name: str, content: onnx.ModelProto) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    onnx.save(content, name)


def status_and_verdicts(
    capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, dict[str, str]]:
    """Exit status, and verdicts by file, graph and node."""
    capsys.readouterr()
    status = main(["validate", *arguments, "--format", "json"])
    splits = json.loads(capsys.readouterr().out)["splits"]
    return status, {f"{s['file']}:{s['graph']}/{s['node']}": s["verdict"] for s in splits}


def sparse_model(path: Path, weights: int, copies: int = 1) -> None:
    """Write a model with a split and `weights` bytes of initializers, as holes in the file."""

    def begun(number: int, size: int) -> bytes:
        """The beginning of a field whose content follows."""
        return varint(number << 3 | 2) + varint(size)

    graph = one_split(TensorProto.FLOAT, (6, 4), sizes=(2, 4), axis=0).graph
    nodes = graph.SerializeToString()
    nodes += field(1, graph.node[1].SerializeToString()) * (copies - 1)
    dims, kind, name = field(1, 1) + field(1, weights // 4), field(2, 1), field(8, b"w")
    head = dims + kind + name + begun(9, weights)  # raw_data
    tensor = begun(5, len(head) + weights) + head
    front = field(1, 10) + field(8, field(2, 18))  # ir_version, opset
    front += begun(7, len(nodes) + len(tensor) + weights) + nodes + tensor
    with path.open("wb") as file:
        file.write(front)
        file.truncate(len(front) + weights)
