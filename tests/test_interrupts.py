"""Interrupts that wait until no work is half done. tests/cli has those of commands."""

import signal
from collections.abc import Callable

import pytest

from dmlsplit.interrupts import delay_interrupts, interrupt, raise_postponed


def interrupted(work: Callable[[list[str]], None]) -> tuple[object, list[str]]:
    """The interrupt of some work, and how far the work came."""
    reached: list[str] = []
    with pytest.raises(KeyboardInterrupt) as caught:
        delay_interrupts()(work)(reached)
    return caught.value.args, reached


def test_an_interrupt_is_raised_at_once_if_interrupts_are_not_delayed() -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        interrupt(signal.SIGTERM)
    assert caught.value.args == (signal.SIGTERM,)


def test_a_delayed_interrupt_is_raised_by_the_next_raise_postponed() -> None:
    def work(reached: list[str]) -> None:
        raise_postponed()
        interrupt(signal.SIGINT)
        reached.append("before")
        raise_postponed()
        reached.append("after")

    assert interrupted(work) == ((signal.SIGINT,), ["before"])


def test_a_delayed_interrupt_is_raised_at_the_end_of_the_outermost_block() -> None:
    def work(reached: list[str]) -> None:
        with delay_interrupts():
            interrupt(signal.SIGHUP)
        reached.append("inner")

    assert interrupted(work) == ((signal.SIGHUP,), ["inner"])
    raise_postponed()


def test_a_delayed_interrupt_is_not_lost_when_the_block_fails() -> None:
    def fail(reached: list[str]) -> None:
        interrupt(signal.SIGINT)
        raise ValueError

    interrupted(fail)
