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
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache, partial
from math import ceil
from pathlib import Path

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

    helpers = _start(work, min(threads, len(waiting)) - 1)
    try:
        work()
    finally:
        # The memory may go away after an interrupt, so no helper may be left behind.
        waiting.clear()
        for helper in helpers:
            if not helper.cancel():
                helper.result()


def _start(work: Callable[[], None], count: int) -> list[Future[None]]:
    if count < 1:
        return []
    try:
        helpers = _helpers(os.getpid())
        here = _current_processor()
        others = [helper for processor, helper in helpers if processor != here] or [helpers[0][1]]
        return [others[index % len(others)].submit(work) for index in range(count)]
    except RuntimeError:  # no more threads, or the interpreter is going down: work alone
        return []


@lru_cache(maxsize=1)
def _helpers(process: int) -> tuple[tuple[int, ThreadPoolExecutor], ...]:
    """Return one helper per processor of a process; threads do not survive a fork."""
    return tuple(
        (number, ThreadPoolExecutor(1, f"dmlsplit-{number}", partial(_stay_on, number)))
        for number in sorted(_allowed())
    )


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
