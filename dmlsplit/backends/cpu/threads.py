"""How many threads a split may use, and how they share the work.

The caller works as well and never waits for a helper that has not begun. Splits started
from several threads at once therefore slow each other down only as far as the machine does.

Each helper stays on one processor, and a split asks those on other processors than the
caller's. Left to the scheduler, a helper wakes beside the thread that woke it, and for the
first milliseconds the two share that processor.
"""

from __future__ import annotations

import ctypes
import os
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import cycle
from math import ceil
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread

from dmlsplit.errors import InvalidArgumentError

VARIABLE = "DMLSPLIT_NUM_THREADS"
MOST_THREADS = 1024


def thread_count() -> int:
    """Return the number of threads for one split.

    The environment variable DMLSPLIT_NUM_THREADS where it is set, else the processors that
    this process may run on, but no more than the quota of its control group.

    Raises
    ------
    InvalidArgumentError
        If the variable is not a whole number from 1 to 1024.
    """
    asked = os.environ.get(VARIABLE, "").strip()
    if not asked:
        return min(_processors(), _quota() or MOST_THREADS, MOST_THREADS)
    if not asked.isascii() or not asked.isdigit() or not 1 <= int(asked[:9]) <= MOST_THREADS:
        raise InvalidArgumentError(
            f"{VARIABLE} is {asked[:40]!r}; it must be a whole number from 1 to {MOST_THREADS}. "
            f"Fix: unset it to use all {_processors()} processors of this process"
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

    shares = [_Share(work) for _ in range(min(threads, len(waiting)) - 1)]
    try:
        _hand_out(shares)
        work()
    finally:
        # The memory may go away after an interrupt, so no helper may be left behind.
        waiting.clear()
        failures = [share.end() for share in shares]
    for failure in failures:
        if failure is not None:
            raise failure


class _Share:
    """Work on tasks that wait, as long as there are any."""

    __slots__ = ("_done", "_failure", "_has_begun", "_is_done", "_work")

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._has_begun = self._is_done = False
        self._failure: BaseException | None = None
        self._done = Lock()
        self._done.acquire()

    def __call__(self) -> None:
        # Said before a task is taken: who finds none left, and this unsaid, need not wait.
        self._has_begun = True
        try:
            self._work()
        except BaseException as error:
            self._failure = error
        finally:
            self._is_done = True
            self._done.release()

    def end(self) -> BaseException | None:
        """Once no task waits: wait for the helper if it has begun; return what went wrong."""
        if not self._has_begun:
            return None
        interrupt: BaseException | None = None
        while True:
            try:
                # An interrupt may come when the lock is taken already; it is not taken twice.
                while not self._is_done:
                    self._done.acquire()
                return interrupt or self._failure
            except BaseException as error:  # the helper still writes: wait for it all the same
                interrupt = error


def _hand_out(shares: Sequence[_Share]) -> None:
    """Give each share to a helper on another processor, the next ones after the caller's first."""
    if not shares:
        return
    try:
        for share, helper in zip(
            shares, cycle(_others(os.getpid(), _current_processor())), strict=False
        ):
            helper.put(share)
    except RuntimeError:  # no more threads, or the interpreter is going down: work alone
        return


class _Helper:
    """A thread that stays on one processor; it starts with its first share."""

    def __init__(self, processor: int) -> None:
        self.processor = processor
        self._shares: SimpleQueue[_Share] = SimpleQueue()
        self._starting, self._started = Lock(), False

    def put(self, share: _Share) -> None:
        """Queue a share; the thread begins it when it is free."""
        if not self._started:
            with self._starting:
                if not self._started:
                    Thread(
                        target=self._serve, name=f"dmlsplit-{self.processor}", daemon=True
                    ).start()
                    self._started = True
        self._shares.put(share)

    def _serve(self) -> None:
        _stay_on(self.processor)
        while True:
            # No variable may hold a share: it would keep arrays alive until the next split.
            self._shares.get()()


@lru_cache(maxsize=1)
def _helpers(process: int) -> list[_Helper]:
    """Return one helper per processor of a process; threads do not survive a fork."""
    return [_Helper(processor) for processor in sorted(_allowed())]


@lru_cache(maxsize=MOST_THREADS)
def _others(process: int, here: int) -> list[_Helper]:
    """Return the helpers on other processors than one, those after it first; or all."""
    helpers = _helpers(process)
    after = bisect_right(helpers, here, key=lambda helper: helper.processor)
    in_turn = helpers[after:] + helpers[:after]
    return [helper for helper in in_turn if helper.processor != here] or helpers


def _stay_on(processor: int) -> None:
    # The allowance may have changed since; then the thread goes where it is let.
    if hasattr(os, "sched_setaffinity"):
        with suppress(OSError):
            os.sched_setaffinity(0, {processor})


@lru_cache(maxsize=1)
def _getcpu() -> Callable[[], int] | None:
    found: Callable[[], int] | None = getattr(ctypes.CDLL(None), "sched_getcpu", None)
    return found


def _current_processor() -> int:
    """Return the processor of the calling thread; -1 where the system does not say."""
    getcpu = _getcpu()
    return -1 if getcpu is None else getcpu()


def _allowed() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _processors() -> int:
    return len(_allowed())


@lru_cache(maxsize=1)
def _quota(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the processors' worth of time that the control group allows (cpu.max)."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
        return max(1, ceil(int(quota) / int(period)))
    except (OSError, ValueError, ZeroDivisionError):  # no control group, or "max"
        return None
