"""How many threads a split may use, and how they share the work.

The caller works too, and never waits for a helper that has not begun, so that concurrent splits
compete for processors only. An executor of the standard library does wait, and costs more per task.
docs/design/005 says what was measured.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from math import ceil
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread

import numpy as np

from dmlsplit.errors import InvalidArgumentError
from dmlsplit.system import processors

VARIABLE = "DMLSPLIT_NUM_THREADS"
MOST_THREADS = 1024


def thread_count() -> int:
    """The number of threads for one split.

    DMLSPLIT_NUM_THREADS if it is set, else the processors that this process may use, limited by
    the quota of its control group.
    """
    asked = os.environ.get(VARIABLE, "").strip()
    if not asked:
        return min(len(processors()), _quota() or MOST_THREADS, MOST_THREADS)
    if not asked.isascii() or not asked.isdigit() or not 1 <= int(asked[:9]) <= MOST_THREADS:
        raise InvalidArgumentError(
            f"{VARIABLE} is {asked[:40]!r}; it must be a whole number from 1 to {MOST_THREADS}. "
            f"Fix: unset it to use all {len(processors())} processors of this process"
        )
    return int(asked)


def run(tasks: Iterable[Callable[[], None]], threads: int) -> None:
    """Call every task once, on the calling thread and on up to ``threads - 1`` helpers."""
    waiting = deque(tasks)

    def work() -> None:
        while True:
            try:
                task = waiting.popleft()
            except IndexError:
                return
            task()

    _ended.ring(False)
    shares = [_Share(work) for _ in range(min(threads, len(waiting)) - 1)]
    try:
        # If no thread can start (a limit, or interpreter shutdown), work alone.
        with suppress(RuntimeError):
            _helpers(os.getpid()).put(shares)
        work()
    finally:
        # After an interrupt the caller may free the memory: wait until no helper writes to it.
        waiting.clear()
        failures = [share.end() for share in shares]
    for failure in failures:
        if failure is not None:
            raise failure


# A thread listens for about 100 us before it sleeps. To wake it takes 40 us.
_TURNS = 300_000
# It hears a ring about 5 us late, when the thread that rang has released the interpreter lock: a
# thread that must wait for the lock sleeps.
_PAUSE = 200


class _Bell:
    """A sign to wait for without sleeping, and without the interpreter lock.

    It only saves time. All splits share it, so it may ring too often or not at all: a thread
    that has listened looks at the share or the queue, and sleeps if nothing is waiting.
    """

    __slots__ = ("_cells", "_turns")

    def __init__(self) -> None:
        self._cells = bytearray(b"\0" + b"\1" * _PAUSE)
        # Each row repeats one cell: the first is read until it is set, the others once.
        self._turns = np.ndarray((1 + _PAUSE, _TURNS), np.bool_, self._cells, 0, (1, 0))

    def ring(self, rings: bool = True) -> None:
        self._cells[0] = rings

    def listen(self) -> None:
        """Wait until it rings, but not for long."""
        np.logical_or.reduce(self._turns, 1)  # a row ends at its first True


_called, _ended = _Bell(), _Bell()  # rung by callers, and by helpers


class _Share:
    """A helper's part of one split: it works until no task is waiting."""

    __slots__ = ("_done", "_failure", "_has_begun", "_is_done", "_work")

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._has_begun = self._is_done = False
        self._failure: BaseException | None = None
        self._done = Lock()
        self._done.acquire()

    def __call__(self) -> None:
        # Set before taking a task: if this is not set and no task is waiting, the helper will find
        # nothing to do, and nobody needs to wait for it.
        self._has_begun = True
        try:
            self._work()
        except BaseException as error:
            self._failure = error
        finally:
            self._is_done = True
            _ended.ring()
            self._done.release()

    def end(self) -> BaseException | None:
        """Wait for the helper if it has begun, and return its error; no task may be waiting."""
        interrupt: BaseException | None = None
        while True:
            try:
                # An interrupt may come just after the acquire, which must not be repeated.
                while self._has_begun and not self._is_done:
                    _ended.listen()
                    self._done.acquire()
                return interrupt or self._failure
            except BaseException as error:  # the helper still writes: keep waiting
                interrupt = error


class _Helpers:
    """Threads that work on shares in the order of arrival. They start when needed."""

    def __init__(self) -> None:
        self._shares: SimpleQueue[_Share] = SimpleQueue()
        self._starting, self._started = Lock(), 0

    def put(self, shares: Sequence[_Share]) -> None:
        """Queue shares, and start threads until there are at least as many."""
        if self._started < len(shares):
            with self._starting:
                while self._started < len(shares):
                    name = f"dmlsplit-{self._started}"
                    Thread(target=self._serve, name=name, daemon=True).start()
                    self._started += 1
        for share in shares:
            self._shares.put(share)
        _called.ring()

    def _serve(self) -> None:
        while True:
            if self._shares.empty():
                _called.ring(False)
                _called.listen()
            # Not in a variable, which would keep arrays alive until the next split.
            self._shares.get()()


@lru_cache(maxsize=1)
def _helpers(process: int) -> _Helpers:
    """The threads of a process. Its number is the key, because threads do not survive a fork."""
    return _Helpers()


@lru_cache(maxsize=1)
def _quota(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """The processors that the control group allows (cpu.max); None if unlimited."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
        return max(1, ceil(int(quota) / int(period)))
    except (OSError, ValueError, ZeroDivisionError):  # no control group, or "max"
        return None
