"""How `run` on arrays ends: with signals, closed streams, a full disk, hostile files."""

import re
import shlex
import signal
from pathlib import Path

import numpy as np
import pytest

from dmlsplit.backends.find import find_backend
from dmlsplit.cli import main
from dmlsplit.cli.terminal import STOP_SIGNALS
from tests.support.command import refused, shell, started
from tests.support.fixtures import Capsys

INPUT = np.arange(24, dtype="f4").reshape(6, 4)
HALVES = ["--axis", "0", "--count", "2"]
TIME_LIMIT_S = 120


@pytest.fixture
def npy(here: Path) -> Path:
    """A file with `INPUT`."""
    np.save("a.npy", INPUT)
    return here / "a.npy"


# Signals.

# Each block takes a while, and is announced on stdout.
SLOW = """
import os, sys, time
from dmlsplit.backends.find import find_backend
from dmlsplit.cli import main
from dmlsplit.storage import npy
npy.BLOCK_BYTES = 16
read_into = npy.read_into
def slow(*arguments):
    os.write(1, b".")
    time.sleep(0.05)
    return read_into(*arguments)
npy.read_into = slow
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_run_in_one_line_and_the_same_command_starts_over(
    number: signal.Signals, npy: Path
) -> None:
    line = ["run", "a.npy", *HALVES, "-o", "out"]
    child = started(*line, folder=npy.parent, program=SLOW)
    assert child.stdout
    child.stdout.read(2)
    child.send_signal(number)
    try:
        _, err = child.communicate(timeout=TIME_LIMIT_S)
    finally:
        child.kill()
    assert child.returncode == 128 + number
    assert err.decode() == "dmlsplit: interrupted: the same command starts over\n"
    assert list(Path("out").iterdir()) == []
    assert main(line) == 0
    assert sorted(entry.name for entry in Path("out").iterdir()) == ["a_0.npy", "a_1.npy"]


def test_main_restores_the_signal_handlers_of_its_caller(npy: Path) -> None:
    before = list(map(signal.getsignal, STOP_SIGNALS))
    assert main(["run", "a.npy", *HALVES]) == 0
    assert list(map(signal.getsignal, STOP_SIGNALS)) == before


# Streams. test_exits has the messages of each command.


def test_with_closed_streams_pieces_receive_no_text(npy: Path) -> None:
    for closed in (">&-", ">&- 2>&- <&-"):
        line = f"dmlsplit run a.npy --axis 0 --count 2 --overwrite {closed}"
        assert shell(line).returncode == 2
    np.testing.assert_array_equal(np.load("a_0.npy"), INPUT[:3])


# Names, files and settings that are hostile.


def test_control_characters_do_not_reach_the_terminal(npy: Path, capsys: Capsys) -> None:
    name = "\x1b[31mred\n.npy"
    np.save(name, np.zeros((4, 2), [("\x1b[2J", "f4")]))
    assert main(["run", name, *HALVES]) == 0
    output = capsys.readouterr().out
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", output)
    assert output.count("\n") == 3
    message = refused(capsys, f"run {shlex.quote(name)} --axis 0 --count 2")
    assert r"\x1b[31mred _0.npy exists" in message


# The device.


@pytest.mark.parametrize(("device", "notes"), [("auto", 1), ("cpu", 0)])
def test_device_auto_is_the_cpu_without_a_gpu_and_says_why(
    device: str, notes: int, npy: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = "there is no driver. Fix: install one"
    backend = find_backend("cpu")
    monkeypatch.setattr("dmlsplit.execution.device.default_backend", lambda: (backend, reason))
    assert main(["run", "a.npy", *HALVES, "--device", device]) == 0
    output = capsys.readouterr()
    assert "2 pieces along axis 0, on cpu" in output.out
    assert output.err == f"dmlsplit: note: dmlsplit uses the CPU, because {reason}\n" * notes
