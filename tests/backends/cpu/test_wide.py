"""Wide rows that threads share in machine code: the bytes are NumPy's, and nobody waits forever."""

import ctypes
import os
import signal
import sys
import time
from importlib.util import find_spec
from queue import SimpleQueue
from threading import Thread

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlsplit as dml
from dmlsplit.backends.cpu import machine_code, threads, wide
from dmlsplit.geometry import RowSplit
from tests.support.command import ran
from tests.support.cpu_rows import GUARD, check_rows, program_of, split_at_once

needs_code = pytest.mark.skipif(
    not find_spec("llvmlite") or wide._code() is None, reason="llvmlite or sched_yield is missing"
)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads that do not wait for the compiler."""
    monkeypatch.setattr(wide, "_waited", [wide.PATIENCE_BYTES + 1])
    monkeypatch.setenv(threads.VARIABLE, "2")
    monkeypatch.delenv(machine_code.VARIABLE, raising=False)


@needs_code
@given(
    rows=st.sampled_from([1, 2, 3, 31, 64, 257]),
    widths=st.lists(st.integers(1, 400), min_size=1, max_size=9).map(tuple),
    gap=st.sampled_from([0, 0, 1, 40]),
    task=st.sampled_from([1, 7, 64, 1000, 1 << 16]),
    count=st.integers(1, 4),
    phases=st.lists(st.integers(0, 70), min_size=9, max_size=9),
    past=st.sampled_from([0, 0, 1 << 40]),
)
def test_every_byte_is_that_of_a_slice(
    rows: int,
    widths: tuple[int, ...],
    gap: int,
    task: int,
    count: int,
    phases: list[int],
    past: int,
) -> None:
    """Between guard bytes, for tasks of several rows, rows of several tasks, and in parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(threads.VARIABLE, str(count))
        for name, value in (
            ("LEAST_BYTES", 0),
            ("LEAST_WIDTH", 0),
            ("TASK_BYTES", task),
            ("PART_BYTES", 50 * task),
            ("PAST_BYTES", past),
            ("PAST_PITCH", 0),
            ("PAST_WIDTH", 0),
        ):
            patch.setattr(wide, name, value)
        program = program_of(rows, widths, gap)
        if program.narrow is None:
            assert program.wide is not None
            check_rows(program, rows, widths, gap, phases)


def split_of(mib: int) -> tuple[np.ndarray, list[np.ndarray]]:
    array = np.random.default_rng(5).integers(0, 256, (mib << 8, 4096), np.uint8)
    return array, np.split(array, (1024, 2048), 1)


@needs_code
def test_a_helper_takes_tasks_and_then_sleeps() -> None:
    array, views = split_of(32)
    program = program_of(len(array), (1024, 1024, 2048))
    outputs = [np.empty_like(view) for view in views]
    copy = program.bind(array.ctypes.data, [out.ctypes.data for out in outputs])
    team, deadline = wide._team(os.getpid(), 2), time.monotonic() + 30
    while team._board[3] in (0, 3 * len(array) // 16):  # the tasks that it has not passed
        assert time.monotonic() < deadline
        copy()
    while not team._sleeping:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert team._board[4] == 0


def test_a_helper_listens_again_if_a_split_began_before_it_slept() -> None:
    team = object.__new__(wide._Team)
    team._board, team._sleeping = (ctypes.c_int64 * 5)(0, 0, 1), []
    team._processor, listened = (lambda: -1), []

    def listen() -> None:
        listened.append(list(team._sleeping))
        if len(listened) == 2:
            team._board[2] = 0
        if len(listened) == 3:
            raise EOFError

    team._listen = listen  # type: ignore[assignment]

    def serve() -> None:
        with pytest.raises(EOFError):
            team._serve()

    helper = Thread(target=serve, daemon=True)
    helper.start()
    deadline = time.monotonic() + 30
    while len(listened) < 2 or not team._sleeping:
        assert time.monotonic() < deadline
    assert listened == [[], []]
    team._sleeping.pop().put(0)
    helper.join(30)
    assert len(listened) == 3


@needs_code
@pytest.mark.parametrize(("mib", "ago", "wakes"), [(1, 100, False), (1, 0, True), (2, 100, True)])
def test_a_small_split_alone_wakes_nobody(
    mib: int, ago: float, wakes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wide, "SERIES_SECONDS", 50)
    array, views = split_of(mib)
    outputs = [np.empty_like(view) for view in views]
    program = program_of(len(array), (1024, 1024, 2048))
    copy = program.bind(array.ctypes.data, [out.ctypes.data for out in outputs])
    team, sleeper = wide._team(os.getpid(), 2), SimpleQueue[int]()
    team._sleeping.append(sleeper)
    team._last = time.monotonic() - ago
    copy()
    assert sleeper.empty() != wakes
    if not wakes:
        team._sleeping.remove(sleeper)
    assert all(map(np.array_equal, outputs, views))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_a_helper_that_leaves_a_processor_may_use_all(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed, used = {1, 2, 3}, []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: allowed)
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, processors: used.append(processors))
    wide._leave(2)
    assert used == [{1, 3}, {1, 2, 3}]
    monkeypatch.undo()
    before = os.sched_getaffinity(0)
    for processor in before:
        wide._leave(processor)
        assert os.sched_getaffinity(0) == before


@needs_code
def test_callers_may_split_at_once() -> None:
    split_at_once(split_of(4)[0], (1024, 1024, 2048), calls=60)


# In a process of its own, without the threads of other libraries. It ends while helpers listen.
FORKS = """
import os, signal, numpy as np, dmlsplit as dml
from dmlsplit.backends.cpu import wide
wide._waited[0] = wide.PATIENCE_BYTES
array = np.arange(1 << 21, dtype="u1").reshape(256, -1)
def splits():
    found = dml.split(array, 8, 1)
    return all((piece == array[:, at << 10:][:, :1024]).all() for at, piece in enumerate(found))
assert splits()
for _ in range(20):
    splits()
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # it hangs
        os._exit(not splits())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
splits()
print("done")
"""


@needs_code
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_has_helpers_of_its_own() -> None:
    done = ran(sys.executable, "-W", "ignore", "-c", FORKS)
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)


@needs_code
def test_numpy_copies_until_compiling_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    program = program_of(1 << 10, (512, 512))
    array, outputs = np.ones((1 << 10, 1 << 10), np.uint8), np.zeros((2, 1 << 19), np.uint8)
    addresses = array.ctypes.data, [out.ctypes.data for out in outputs]
    monkeypatch.setattr(wide, "_waited", [wide.PATIENCE_BYTES - (3 << 20)])
    compiled = []
    for _ in range(4):
        program.copy(*addresses)
        compiled.append(list(program.recent)[-1][1])
    assert compiled == [False, False, False, True]
    assert outputs.all()
    assert program.wide is not None
    for name, value in ((machine_code.VARIABLE, "0"), (threads.VARIABLE, "1")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert not program.wide.is_ready()
    monkeypatch.setattr(wide, "_waited", [0])
    program.prepare()
    assert program.wide.is_ready()


@needs_code
def test_large_splits_use_one_thread_too_and_can_be_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(threads.VARIABLE, "1")
    assert not program_of(512, (1024, 1024, 2048)).wide.is_ready(1)  # type: ignore[union-attr]
    monkeypatch.setattr(wide, "PAST_BYTES", 2 << 20)
    monkeypatch.setattr(wide, "PART_BYTES", 1 << 20)
    array, views = split_of(4)
    program = program_of(len(array), (1024, 1024, 2048))
    outputs = [np.full_like(view, GUARD) for view in views]
    copy = program.bind(array.ctypes.data, [out.ctypes.data for out in outputs])
    team = wide._team(os.getpid(), 1)
    run, parts = team._run, []

    def interrupted(*words: int) -> None:
        run(*words)
        parts.append(words)
        if len(parts) == 2:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(team, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        copy()
    half = len(array) // 2
    assert len(parts) == 2
    for out, view in zip(outputs, views, strict=True):
        np.testing.assert_array_equal(out[:half], view[:half])
        assert (out[half:] == GUARD).all()
    copy()
    assert all(map(np.array_equal, outputs, views))


@pytest.mark.parametrize(("rows", "count", "height"), [(64, 192, 1), (1 << 20, 1 << 15, 64)])
def test_tasks_are_short_and_few(
    rows: int, count: int, height: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece of one byte makes none tall, and many rows do not make them many."""
    monkeypatch.setattr(wide, "_code", lambda: [False])
    split = RowSplit(rows, (128 << 10) + 1, (0, 1), (0, 64 << 10), (64 << 10, (64 << 10) + 1))
    tasks = wide._tasks(split, 0, (0, 0))
    assert (len(tasks), max(tasks[:, 3])) == (count, height)


@pytest.mark.parametrize("widths", [(63, 1 << 10), (1, 1), (64, 63)])
def test_other_splits_are_numpys(widths: tuple[int, ...]) -> None:
    assert program_of(1 << 10, widths).wide is None


@pytest.mark.parametrize("lacking", ["yield", "llvmlite", "pause", "threads"])
def test_whatever_is_missing_the_bytes_are_right(
    lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wide, "_code", wide._code.__wrapped__)
    if lacking == "yield":
        monkeypatch.setattr(wide.ctypes, "CDLL", lambda name: object())
    if lacking == "llvmlite":
        monkeypatch.setattr(machine_code, "find_spec", lambda name: None)
    if lacking == "pause":
        monkeypatch.setattr(wide.platform, "machine", lambda: "abacus")
    if lacking == "threads":
        monkeypatch.setattr(wide, "_team", wide._team.__wrapped__)
        monkeypatch.setattr(wide.Thread, "start", _refused)
    array, views = split_of(2)
    assert (wide._code() is None) == (lacking != "threads" or not find_spec("llvmlite"))
    pieces = dml.split(array, (1024, 1024, 2048), 1)
    assert [piece.tobytes() for piece in pieces] == [view.tobytes() for view in views]


def _refused(thread: object) -> None:
    raise RuntimeError("can't start new thread")
