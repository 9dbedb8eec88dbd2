"""The output that a model prints, and the files that it writes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.cli import main
from dmlsplit.frontends.dxdispatch import run
from tests.support.dxdispatch import BOUND, F32, Run, dispatch, model, prints, values, writes, zeros
from tests.support.fixtures import Capsys

WRITE = writes("D", "d.npy")
COMMANDS = [dispatch(**BOUND), WRITE]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "m.json").write_text(json.dumps(model(commands=COMMANDS)))
    return tmp_path / "m.json"


def test_files_are_replaced_only_when_asked(file: Path, capsys: Capsys) -> None:
    target = file.with_name("d.npy")
    target.write_text("precious")
    assert main(["run", str(file)]) == 2
    said = f"commands[1]: {target} exists; it is not replaced. Fix: add --overwrite\n"
    assert capsys.readouterr().err.endswith(said)
    assert target.read_text() == "precious"
    assert main(["run", str(file), "--overwrite"]) == 0
    assert np.load(target).tolist() == [4, 5, 6]


def test_a_run_may_write_a_file_twice(file: Path) -> None:
    file.write_text(json.dumps(model(commands=[*COMMANDS, WRITE])))
    run(file)
    assert np.load(file.with_name("d.npy")).tolist() == [4, 5, 6]


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_a_file_that_the_model_reads_is_never_replaced(link: Any, file: Path) -> None:
    target, source = file.with_name("d.npy"), file.with_name("read.npy")
    np.save(source, np.zeros(3, "f4"))
    read = {"R": values(F32, {"sourcePath": "read.npy"})}
    file.write_text(json.dumps(model(commands=COMMANDS, resources=read)))
    for name in (source, file):
        link(target, name)
        with pytest.raises(dml.InvalidArgumentError, match=r"d.npy is the input "):
            run(file, overwrite=True)
        target.unlink()
    assert np.load(source).tolist() == [0, 0, 0]


def test_names_reach_the_terminal_without_control_characters(ran: Run) -> None:
    name = "\x1b[2J\n"
    (line,) = ran(model(resources={name: zeros(1)}, commands=[prints(name)]))
    assert line.startswith(r"Resource '\x1b[2J\n': ")
