"""The simulated card as the process that runs on it sees it: loading, call log, failures.

`load` comes before the first import of CuPy in a process whose environment is that of
`build.Libraries`.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

DRIVER, COMPILER = "libcuda.so.1", "libnvrtc.so.13"


@cache
def _driver() -> ctypes.CDLL:
    library = ctypes.CDLL(DRIVER)
    library.card_log_size.restype = ctypes.c_size_t
    library.card_log_entry.restype = ctypes.c_char_p
    library.card_log_entry.argtypes = [ctypes.c_size_t]
    library.card_set_memory_limit.argtypes = [ctypes.c_int, ctypes.c_size_t]
    library.card_count.restype = ctypes.c_size_t
    library.card_memory_used.restype = ctypes.c_size_t
    library.card_failures_left.restype = ctypes.c_size_t
    library.card_pending.restype = ctypes.c_size_t
    return library


@cache
def load() -> None:
    """Put the card in CuPy's way."""
    _driver()
    # CuPy takes a library of this name that is there already.
    ctypes.CDLL(COMPILER, ctypes.RTLD_GLOBAL)
    from cupy_backends.cuda.api import runtime

    assert _driver().card_redirect(runtime.__file__.encode()), "CuPy's runtime is not redirected"


class Calls:
    """The names of the CUDA functions called since the log began."""

    def __init__(self) -> None:
        self.names: list[str] = []


@contextmanager
def calls() -> Iterator[Calls]:
    """Record the calls of CUDA that a block makes."""
    recorded = Calls()
    begin = _driver().card_log_size()
    yield recorded
    recorded.names = log()[begin:]


def log() -> list[str]:
    """Every call since the process began."""
    return [_driver().card_log_entry(i).decode() for i in range(_driver().card_log_size())]


def count(name: str) -> int:
    """How often a function was called, of an idle card, which keeps no list."""
    return int(_driver().card_count(name.encode()))


def fail(name: str, status: int, calls_before: int = 0) -> None:
    """Let one call of a function return `status`, after so many that work."""
    _driver().card_fail(name.encode(), calls_before, status)


def failures_left() -> int:
    """How many failures have not had their turn."""
    return int(_driver().card_failures_left())


def forget_failures() -> None:
    """Let every call work again."""
    _driver().card_forget_failures()


def break_device(device: int, status: int) -> None:
    """Let every call of a device fail from now on; 0 mends it."""
    _driver().card_break(device, status)


def set_memory_limit(device: int, size: int) -> None:
    """Set the memory of a device, in bytes."""
    _driver().card_set_memory_limit(device, size)


def memory_used(device: int) -> int:
    """The bytes that are allocated on a device."""
    return int(_driver().card_memory_used(device))


def pending() -> int:
    """How many pieces of work wait in streams."""
    return int(_driver().card_pending())


def ignore_launches(is_on: bool) -> None:
    """Let launches return at once and do nothing, so that they cost the host next to nothing."""
    _driver().card_ignore_launches(is_on)


def run_others_first(is_on: bool) -> None:
    """Choose when other streams' work runs: before what a call waits for, or not at all."""
    _driver().card_run_others_first(is_on)
