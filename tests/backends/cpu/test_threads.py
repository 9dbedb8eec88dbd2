"""Threads: how many there are, which ones do the work, and how errors and interrupts end it."""

import _thread
import os
import signal
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

import dmlsplit as dml
from dmlsplit.backends.cpu import threads
from dmlsplit.errors import InvalidArgumentError


def test_a_share_that_has_not_begun_is_not_waited_for() -> None:
    release, held = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        release.wait(30)

    helpers = threads._helpers(os.getpid())
    helpers.put([threads._Share(hold) for _ in range(max(1, helpers._started))])
    assert held.wait(30)
    try:
        done: list[int] = []
        threads.run([lambda: done.append(1)] * 8, 4)
        assert len(done) == 8
    finally:
        release.set()


def test_an_interrupt_waits_for_the_helpers() -> None:
    begun, ended = threading.Event(), threading.Event()

    def helps() -> None:
        begun.set()
        time.sleep(0.01)
        _thread.interrupt_main()
        time.sleep(0.3)
        ended.set()

    def waits() -> None:
        begun.wait(30)

    def either() -> None:
        waits() if threading.current_thread() is threading.main_thread() else helps()

    # A shell's background jobs ignore Ctrl-C, and Python then installs no handler for it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            threads.run([either, either], 2)
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.is_set()


def test_a_bell_is_heard_before_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_TURNS", 1 << 36)  # half a minute for each row of turns
    bell = threads._Bell()
    # It can only ring if listening releases the interpreter lock.
    threading.Timer(0.02, bell.ring).start()
    begin = time.monotonic()
    bell.listen()
    assert 0.01 < time.monotonic() - begin < 10


def test_nobody_listens_for_long() -> None:
    silent, begin = threads._Bell(), time.thread_time()
    silent.listen()
    assert 0 < time.thread_time() - begin < 0.1


def test_helpers_keep_nothing_alive() -> None:
    array = np.zeros(8)
    alive = weakref.ref(array)
    begun = threading.Event()

    def touch(mine: np.ndarray = array) -> None:
        if threading.current_thread() is threading.main_thread():
            begun.wait(30)
        else:
            begun.set()
        mine[0] = 1

    threads.run([touch, touch], 2)
    del array, touch
    deadline = time.monotonic() + 10
    while alive() is not None and time.monotonic() < deadline:
        time.sleep(0.001)
    assert alive() is None


def test_a_failing_task_ends_the_others_and_is_reported() -> None:
    def fail() -> None:
        raise ValueError("broken")

    done: list[int] = []
    tasks = [fail, *[lambda: done.append(1)] * 100]
    with pytest.raises(ValueError, match="broken"):
        threads.run(tasks, 1)
    assert done == []


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5", "1025", "9" * 5000, "²"])
def test_a_bad_thread_count_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(threads.VARIABLE, value)
    with pytest.raises(InvalidArgumentError, match="whole number from 1 to 1024"):
        threads.thread_count()
    untouched = np.zeros((1 << 22, 2), np.uint8)
    with pytest.raises(InvalidArgumentError, match=threads.VARIABLE):
        dml.split(untouched + 1, 2, 1, out=[untouched[:, :1], untouched[:, 1:]])
    assert not untouched.any()


def test_the_thread_count_is_that_of_the_processors_it_may_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(threads.VARIABLE, " 3 ")
    assert threads.thread_count() == 3
    monkeypatch.delenv(threads.VARIABLE)
    assert 1 <= threads.thread_count() <= (os.cpu_count() or 1)
    monkeypatch.setattr(threads, "processors", lambda: set(range(64)))
    monkeypatch.setattr(threads, "_quota", lambda: 6)
    assert threads.thread_count() == 6


@pytest.mark.parametrize(
    ("text", "count"), [("max 100000", None), ("150000 100000", 2), ("1 100000", 1), ("", None)]
)
def test_the_quota_of_the_control_group(text: str, count: int | None, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text(text)
    threads._quota.cache_clear()
    assert threads._quota(tmp_path) == count
    threads._quota.cache_clear()
