"""Interrupts that wait until nothing is half done.

Python may raise a KeyboardInterrupt between any two bytecodes, even inside `threading`. If one
strikes just after a lock was acquired, the lock is never released. A pool thread then waits for it
forever, and the process cannot exit.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

_waiting: list[int] = []  # the numbers of postponed signals
_depth = 0  # the number of nested `held` blocks


def interrupt(number: int) -> None:
    """Raise a KeyboardInterrupt with a signal's number, or postpone it inside `held`."""
    if not _depth:
        raise KeyboardInterrupt(number)
    _waiting.append(number)


def check() -> None:
    """Raise a postponed interrupt. Call it inside `held` wherever the block may be abandoned."""
    if _waiting:
        number = _waiting[0]
        _waiting.clear()
        raise KeyboardInterrupt(number)


@contextmanager
def held() -> Iterator[None]:
    """Postpone interrupts until `check` or the end of the block; a second Ctrl-C is not postponed.

    Interrupts are the signals whose handlers call `interrupt`, and Ctrl-C if Python's own handler
    is installed.
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
def _own_handler() -> Iterator[None]:
    """Replace Python's default Ctrl-C handler; leave any other alone."""
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
