"""Interrupts that wait until nothing is half done.

Python raises a KeyboardInterrupt between any two of its steps, those of `threading` included. Where
that comes right after a lock has been taken, nobody gives it back, and whoever needs it next waits
for ever: a thread of a pool, so that the process cannot end either.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

_waiting: list[int] = []  # numbers of signals
_depth = 0  # of `held` blocks


def interrupt(number: int) -> None:
    """Raise a KeyboardInterrupt with the number of a signal; inside `held`, later."""
    if not _depth:
        raise KeyboardInterrupt(number)
    _waiting.append(number)


def check() -> None:
    """Raise an interrupt that waits: what calls this inside `held` may be left here."""
    if _waiting:
        number = _waiting[0]
        _waiting.clear()
        raise KeyboardInterrupt(number)


@contextmanager
def held() -> Iterator[None]:
    """Let interrupts wait for `check`, or for the end of the block. A second one does not wait.

    Signals reach it through handlers that call `interrupt`, and Ctrl-C by Python's own handler.
    """
    global _depth
    _depth += 1
    try:
        with _own_handler():
            yield
    finally:
        _depth -= 1
        if not _depth:
            check()


@contextmanager
def kept_from_children() -> Iterator[None]:
    """Start processes in the block that never see Ctrl-C, which a terminal sends to all.

    The parent ends them. An interrupt that arrives in the block takes effect at its end.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # as it starts, it lets the signal through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _own_handler() -> Iterator[None]:
    """Take Ctrl-C where nobody else but Python does."""
    own = signal.default_int_handler
    if current_thread() is not main_thread() or signal.getsignal(signal.SIGINT) is not own:
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, own)
        interrupt(number)

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, own)
