"""Interrupts that wait until nothing is half done.

Python may raise a KeyboardInterrupt between any two bytecodes, even inside `threading`. If one
strikes just after a lock was acquired, the lock is never released. A pool thread then waits for it
forever, and the process cannot exit.
"""

from collections.abc import Iterator
from contextlib import contextmanager

_postponed: list[int] = []  # the numbers of postponed signals
_depth = 0  # the number of nested `delay_interrupts` blocks


def interrupt(number: int) -> None:
    """Raise a KeyboardInterrupt with a signal's number, or postpone it inside `delay_interrupts`.

    The handlers of the command line call it.
    """
    if not _depth:
        raise KeyboardInterrupt(number)
    _postponed.append(number)


def raise_postponed() -> None:
    """Raise a postponed interrupt: for places in `delay_interrupts` where the block may end."""
    if _postponed:
        number = _postponed[0]
        _postponed.clear()
        raise KeyboardInterrupt(number)


@contextmanager
def delay_interrupts() -> Iterator[None]:
    """Postpone interrupts until `raise_postponed` or the end of the outermost block."""
    global _depth
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        if not _depth:
            raise_postponed()
