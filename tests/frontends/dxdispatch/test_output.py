"""The output that a model prints, and the files that it writes."""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.cli import main
from dmlsplit.frontends.dxdispatch import run
from tests.support.dxdispatch_models import (
    BOUND,
    F32,
    Run,
    dispatch,
    model,
    printed_values,
    prints,
    values,
    writes,
    zeros,
)

WRITE = writes("D", "d.npy")
COMMANDS = [dispatch(**BOUND), WRITE]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "m.json").write_text(json.dumps(model(commands=COMMANDS)))
    return tmp_path / "m.json"


def test_files_are_replaced_only_when_asked(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = file.with_name("d.npy")
    target.write_text("precious")
    assert main(["run", str(file)]) == 2
    said = capsys.readouterr().err
    assert said.endswith(
        f"commands[1]: {target} exists; it is not replaced. Fix: add --overwrite\n"
    )
    assert target.read_text() == "precious"
    assert main(["run", str(file), "--overwrite"]) == 0
    assert np.load(target).tolist() == [4, 5, 6]


def test_a_run_may_write_a_file_twice(file: Path) -> None:
    file.write_text(json.dumps(model(commands=[*COMMANDS, WRITE])))
    run(file)
    assert np.load(file.with_name("d.npy")).tolist() == [4, 5, 6]


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_a_file_that_the_model_reads_is_never_replaced(link: Any, file: Path) -> None:
    np.save(file.with_name("read.npy"), np.zeros(3, "f4"))
    link(file.with_name("d.npy"), file.with_name("read.npy"))
    read = {"R": values(F32, {"sourcePath": "read.npy"})}
    file.write_text(json.dumps(model(commands=COMMANDS, resources=read)))
    with pytest.raises(dml.InvalidArgumentError, match=r"d.npy is the input "):
        run(file, overwrite=True)
    assert np.load(file.with_name("read.npy")).tolist() == [0, 0, 0]
    file.with_name("d.npy").unlink()
    file.with_name("d.npy").hardlink_to(file)
    with pytest.raises(dml.InvalidArgumentError, match=r"d.npy is the input "):
        run(file, overwrite=True)


def test_files_that_do_not_fit_on_the_disk_are_refused_before_anything_runs(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimpleNamespace(f_bavail=1, f_bfree=1, f_frsize=11, f_blocks=100)
    monkeypatch.setattr(os, "statvfs", lambda folder: disk)
    message = r"d.npy cannot be written: does not fit: 12 bytes are needed, 11 are free"
    with pytest.raises(dml.InvalidArgumentError, match=message):
        run(file)


def test_resources_that_exceed_the_free_memory_are_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_text = Path.read_text

    def little(path: Path, *rest: Any) -> str:
        found = {"/proc/meminfo": "MemTotal: 99999999 kB\nMemAvailable:    16 kB\n"}
        return found.get(str(path)) or read_text(path, *rest)

    file.write_text(json.dumps(model(resources={"X": zeros(2**20)})))
    monkeypatch.setattr(Path, "read_text", little)
    with pytest.raises(dml.OutOfMemoryError, match="this machine has 16384 free"):
        run(file)


def test_names_reach_the_terminal_without_control_characters(ran: Run) -> None:
    name = "\x1b[2J\n"
    (line,) = ran(model(resources={name: zeros(1)}, commands=[prints(name)]))
    assert line.startswith(r"Resource '\x1b[2J\n': ")


def test_verbose_print_shows_bits(ran: Run) -> None:
    resource = values(F32, [1, -2.5, 0] + [0] * 7)
    line = printed_values(ran, resource, verbose=True)
    assert line.startswith(
        "Resource 'X':\n[ 0] 1 (0x3F800000)\n[ 1] -2.5 (0xC0200000)\n[ 2] 0 (0x       0)\n"
    )
    line = printed_values(ran, values("INT16", [-1]), True)
    assert line == "Resource 'X':\n[0] -1 (0xFFFF)\n"
