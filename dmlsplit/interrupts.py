"""Interrupts that wait until nothing is half done.

Python may raise a KeyboardInterrupt between any two bytecodes, even inside `threading`. If one
strikes just after a lock was acquired, the lock is never released. A pool thread then waits for it
forever, and the process cannot exit.
"""

from collections.abc import Iterator
from contextlib import contextmanager

_waiting: list[int] = []  # the numbers of postponed signals
_depth = 0  # the number of nested `held` blocks


def interrupt(number: int) -> None:
    """Raise a KeyboardInterrupt with a signal's number, or postpone it inside `held`.

    The handlers of the command line call it.
    """
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
    """Postpone interrupts until `check` or the end of the outermost block."""
    global _depth
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        if not _depth:
            check()
