"""The simulated card, as seen by the process that runs on it: loading, call log, failures.

Call `load` before the first import of CuPy, in a process with the environment of `build.Libraries`.
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
    library.card_memory_used.restype = ctypes.c_size_t
    library.card_failures_left.restype = ctypes.c_size_t
    library.card_pending.restype = ctypes.c_size_t
    return library


@cache
def load() -> None:
    """Make CuPy use the card."""
    _driver()
    # CuPy uses a library of this name if one is already loaded.
    ctypes.CDLL(COMPILER, ctypes.RTLD_GLOBAL)
    from cupy_backends.cuda.api import runtime

    assert _driver().card_redirect(runtime.__file__.encode()), "CuPy's runtime is not redirected"


@contextmanager
def calls() -> Iterator[list[str]]:
    """The names of the CUDA functions that a block calls, known at its end."""
    names: list[str] = []
    begin = _driver().card_log_size()
    yield names
    names += log()[begin:]


def log() -> list[str]:
    """Every call since the process began."""
    return [_driver().card_log_entry(i).decode() for i in range(_driver().card_log_size())]


def fail(name: str, status: int, calls_before: int = 0) -> None:
    """Let one call of a function return `status`, after `calls_before` calls that work."""
    _driver().card_fail(name.encode(), calls_before, status)


def failures_left() -> int:
    """The number of failures that have not happened yet."""
    return int(_driver().card_failures_left())


def forget_failures() -> None:
    """Let every call work again."""
    _driver().card_forget_failures()


def break_device(device: int, status: int) -> None:
    """Let every later call of a device fail with `status`; 0 repairs it."""
    _driver().card_break(device, status)


def set_memory_limit(device: int, size: int) -> None:
    """Set the memory of a device, in bytes."""
    _driver().card_set_memory_limit(device, size)


def memory_used(device: int) -> int:
    """The bytes that are allocated on a device."""
    return int(_driver().card_memory_used(device))


def pending() -> int:
    """The number of pieces of work that wait in streams."""
    return int(_driver().card_pending())


def ignore_launches(is_on: bool) -> None:
    """Let launches return at once and do nothing, so that they cost the host almost no time."""
    _driver().card_ignore_launches(is_on)


def run_others_first(is_on: bool) -> None:
    """Choose when other streams' work runs: before work that a call waits for, or not at all."""
    _driver().card_run_others_first(is_on)
