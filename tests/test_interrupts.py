"""Interrupts that wait until no work is half done."""

import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from dmlsplit.interrupts import check, held, interrupt


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """Use Python's own handler, whichever handler the tests were started with."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_comes_at_once_if_interrupts_are_not_held() -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        interrupt(signal.SIGTERM)
    assert caught.value.args == (signal.SIGTERM,)


def interrupted(work: Callable[[list[str]], None]) -> tuple[object, list[str]]:
    """The interrupt of some work, and how far the work came."""
    reached: list[str] = []
    with pytest.raises(KeyboardInterrupt) as caught:
        held()(work)(reached)
    return caught.value.args, reached


def test_a_held_interrupt_comes_with_the_next_check() -> None:
    def work(reached: list[str]) -> None:
        check()
        signal.raise_signal(signal.SIGINT)
        reached.append("before")
        check()
        reached.append("after")

    assert interrupted(work) == ((signal.SIGINT,), ["before"])


def test_a_held_interrupt_comes_at_the_end_of_the_outermost_block() -> None:
    def work(reached: list[str]) -> None:
        with held():
            interrupt(signal.SIGHUP)
        reached.append("inner")

    assert interrupted(work) == ((signal.SIGHUP,), ["inner"])
    check()


def test_a_held_interrupt_is_not_lost_when_the_block_fails() -> None:
    def fail(reached: list[str]) -> None:
        interrupt(signal.SIGINT)
        raise ValueError

    interrupted(fail)


def test_a_second_interrupt_does_not_wait() -> None:
    def work(reached: list[str]) -> None:
        signal.raise_signal(signal.SIGINT)
        reached.append("first")
        signal.raise_signal(signal.SIGINT)
        reached.append("second")

    assert interrupted(work)[1] == ["first"]


def test_handlers_are_put_back_and_those_of_others_are_left_alone() -> None:
    with held():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with held():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_thread_may_hold_interrupts() -> None:
    found = []

    def work() -> None:
        with held():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]
