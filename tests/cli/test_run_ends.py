"""How `run` on arrays ends: with signals, closed streams, a full disk, hostile files."""

import re
import shlex
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

from dmlsplit.cli import main
from tests.support.command import ran, refused, shell, started
from tests.support.forked import forked

INPUT = np.arange(24, dtype="f4").reshape(6, 4)
HALVES = ["--axis", "0", "--count", "2"]
TIME_LIMIT_S = 120


@pytest.fixture
def npy(here: Path) -> Path:
    np.save("a.npy", INPUT)
    return here / "a.npy"


# Signals.

# Each block takes a while, and is announced on stdout.
SLOW = """
import os, sys, time
from dmlsplit.cli import main
from dmlsplit.storage import npy, resumable
from dmlsplit.storage.worker import move_block
npy.BLOCK_BYTES = 16
split_block = npy._split_block
def slow(act):
    def acting(*arguments):
        os.write(1, b".")
        time.sleep(0.05)
        return act(*arguments)
    return acting
npy._split_block = slow(npy._split_block)
resumable.move_block = slow(move_block)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("form", ["npy", "zarr"])
@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGINT, 130),
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_a_run_in_one_line_and_the_same_command_goes_on(
    form: str, number: signal.Signals, status: int, npy: Path
) -> None:
    name = "a.npy"
    if form == "zarr":
        zarr.create_array("a.zarr", data=INPUT, chunks=(1, 4))
        name = "a.zarr"
    line = ["run", name, *HALVES, "--block-bytes", "16"][: None if form == "zarr" else -2]
    child = started(*line, "-o", "out", folder=npy.parent, program=SLOW)
    assert child.stdout
    child.stdout.read(2)
    child.send_signal(number)
    try:
        _, err = child.communicate(timeout=TIME_LIMIT_S)
    finally:
        child.kill()
    assert child.returncode == status
    then = {"npy": "starts over", "zarr": "resumes the run"}[form]
    assert err.decode() == f"dmlsplit: interrupted: the same command {then}\n"
    left = {"npy": [], "zarr": [".a.unfinished"]}[form]
    assert [entry.name for entry in Path("out").iterdir()] == left
    assert main([*line, "-o", "out"]) == 0
    assert sorted(entry.name for entry in Path("out").iterdir()) == [f"a_0.{form}", f"a_1.{form}"]


# Interrupts just after the main thread acquires the lock of a condition for the n-th time.
INTERRUPTED = """
import signal, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # under nohup it is ignored
taken, own = 0, threading.get_ident()
enter = threading.Condition.__enter__
def interrupted(condition):
    global taken
    found = enter(condition)
    if threading.get_ident() == own:
        taken += 1
        if taken == LOCK:
            signal.raise_signal(signal.SIGINT)
    return found
threading.Condition.__enter__ = interrupted
"""


@pytest.mark.parametrize(
    "lock", [pytest.param(n, marks=() if n == 19 else pytest.mark.slow) for n in range(1, 50)]
)
def test_an_interrupt_leaves_no_lock_taken(lock: int, npy: Path) -> None:
    """Threads of the pool and of zarr would wait for it forever, and the process for them."""
    zarr.create_array("a.zarr", data=INPUT, chunks=(1, 4))
    line = f"run a.zarr {' '.join(HALVES)} --block-bytes 16 -o out"
    status, _, err = forked(line, before=INTERRUPTED.replace("LOCK", str(lock)))
    assert status == 130
    resumes = err == "dmlsplit: interrupted: the same command resumes the run\n"
    assert resumes or err == "dmlsplit: interrupted\n"
    assert not resumes or main(line.split()) == 0
    assert sorted(entry.name for entry in Path("out").iterdir()) == ["a_0.zarr", "a_1.zarr"]


def test_handlers_of_a_program_that_calls_main_are_put_back(npy: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert main(["run", "a.npy", *HALVES]) == 0
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


# Streams. test_ends has the messages of each command.


def test_a_closed_stream_does_not_receive_other_output(npy: Path) -> None:
    zarr.create_array("b.zarr", data=INPUT, chunks=(2, 2))
    for name, closed in (("a.npy", ">&-"), ("a.npy", ">&- 2>&- <&-"), ("b.zarr", ">&- 2>&- <&-")):
        line = f"dmlsplit run {name} --axis 0 --count 2 --overwrite {closed}"
        assert shell(line).returncode == 2
    np.testing.assert_array_equal(np.load("a_0.npy"), INPUT[:3])
    np.testing.assert_array_equal(zarr.open_array("b_0.zarr")[:], INPUT[:3])


@pytest.mark.parametrize("closed", ["2>&-", "2>/dev/full"])
def test_an_error_that_cannot_be_printed_still_has_its_status(closed: str, npy: Path) -> None:
    done = shell(f"dmlsplit run missing.npy --axis 0 --count 2 {closed}")
    assert (done.returncode, done.stdout) == (2, "")


# Names, files and settings that are hostile.


def test_control_characters_do_not_reach_the_terminal(
    npy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "\x1b[31mred\n.npy"
    np.save(name, np.zeros((4, 2), [("\x1b[2J", "f4")]))
    assert main(["run", name, *HALVES]) == 0
    shown = capsys.readouterr().out
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown)
    assert shown.count("\n") == 3
    said = refused(capsys, f"run {shlex.quote(name)} --axis 0 --count 2")
    assert r"\x1b[31mred _0.npy exists" in said


def test_a_corrupt_chunk_is_one_line(here: Path) -> None:
    """Zarr reads the chunks of a block together; the others must not print anything."""
    zarr.create_array("a.zarr", data=np.arange(4096.0).reshape(64, 64), chunks=(2, 64))
    for chunk in (3, 4, 5, 20):
        Path(f"a.zarr/c/{chunk}/0").write_bytes(b"short")
    done = shell("dmlsplit run a.zarr --axis 0 --count 2")
    assert done.returncode == 2
    said = r"dmlsplit: error: .*a.zarr: the chunks of .* cannot be read: .*\n"
    assert re.fullmatch(said, done.stderr)


def test_a_wrong_number_of_threads_is_refused_at_the_first_split(npy: Path) -> None:
    done = shell("DMLSPLIT_NUM_THREADS=abc dmlsplit run a.npy --axis 0 --count 2")
    assert done.returncode == 2
    assert "DMLSPLIT_NUM_THREADS is 'abc'; it must be a whole number from 1 to 1024" in done.stderr
    program = "import numpy, dmlsplit; dmlsplit.split(numpy.zeros(4), 2)"
    done = ran(sys.executable, "-c", program, env={"DMLSPLIT_NUM_THREADS": "0"})
    assert "InvalidArgumentError: DMLSPLIT_NUM_THREADS is '0'" in done.stderr
