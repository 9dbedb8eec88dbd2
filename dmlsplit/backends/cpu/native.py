"""The engine in C: loads the library that was built from copy.c, and calls it.

The library is beside copy.c, and its name has the checksum of the source, so that a library of
another source is never loaded.
"""

import ctypes
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from dmlsplit.backends import BoundCopy
from dmlsplit.backends.cpu import refuse_stream, threads
from dmlsplit.backends.cpu.plan import Plan, plan_of
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.forks import late_import
from dmlsplit.geometry import SplitGeometry

VARIABLE = "DMLSPLIT_NATIVE"
SOURCE = Path(__file__).with_name("copy.c")

# Helpers that are awake share splits of this cost or more.
SHARED_COST = 512 << 10
# Only splits of this cost or more repay waking a helper, which takes up to 50 us.
WAKING_COST = 2 << 20
# About what one call copies; signals wait for it.
PART_BYTES = 64 << 20
# Linux's file with the size of the last-level cache.
CACHE_SIZE_FILE = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
# The most cache that is believed: some virtual machines report the cache of a whole processor, but
# get a part of it.
MAX_CACHE = 32 << 20


class Library(NamedTuple):
    """The loaded library: its copy function, the kind of this processor, and its path."""

    copy: Callable[[bytes], None]
    kind: int  # of processor
    path: str


class NativeProgram(NamedTuple):
    """A split that the C library copies: its plan, and the function that copies."""

    plan: Plan
    total_bytes: int
    copy_function: Callable[[bytes], None]

    def prepare(self, alignment: int = 16) -> None:
        """Do nothing: the library is compiled."""

    def bind(self, src: int, dsts: Sequence[int]) -> BoundCopy:
        """Fix the addresses of the first element of the input and of each output."""
        copy_tasks = self.copy_function
        calls = self._calls(src, dsts)

        def copy(stream: object = None, _plan: Plan = self.plan) -> None:  # keeps the plan alive
            if stream is not None:
                refuse_stream(stream)
            for call in calls:
                copy_tasks(call)

        return copy

    def copy(self, src: int, dsts: Sequence[int], stream: object = None) -> None:
        """Equivalent to ``bind(src, dsts)(stream)``, in half the time for a small split."""
        if stream is not None:
            refuse_stream(stream)
        for call in self._calls(src, dsts):
            self.copy_function(call)

    def _calls(self, src: int, dsts: Sequence[int]) -> Iterable[bytes]:
        """The arguments of `copy_tasks` for each part, as `struct call` of copy.c."""
        plan = self.plan
        layout = _call_of(len(dsts))
        address = plan.address
        wakes = plan.cost >= WAKING_COST
        count = threads.thread_count() if plan.cost >= SHARED_COST else 1
        if self.total_bytes <= PART_BYTES:
            return (layout(address, src, 0, plan.tasks, count, wakes, *dsts),)
        part = max(1, plan.tasks * PART_BYTES // self.total_bytes)
        return [
            layout(address, src, first, min(first + part, plan.tasks), count, wakes, *dsts)
            for first in range(0, plan.tasks, part)
        ]


@lru_cache(maxsize=64)
def _call_of(outputs: int) -> Callable[..., bytes]:
    """What packs a `struct call` of copy.c with this many outputs."""
    return Struct(f"{6 + outputs}Q").pack


def program_of(geometry: SplitGeometry, library: Library) -> NativeProgram:
    """The tasks of a geometry, planned for the kind and the cache of this processor."""
    # Input and outputs together take twice `total_bytes`. On one thread, stores are non-temporal if
    # that is two thirds of the cache or more; on several, which also have caches of their own, if
    # it is all of the cache or more. From half of that, the input is taken to come from memory.
    cached = _cache_bytes() // (2 if threads.thread_count() > 1 else 3)
    total_bytes = geometry.total_bytes
    plan = plan_of(geometry, library.kind, total_bytes >= cached, 2 * total_bytes >= cached)
    return NativeProgram(plan, total_bytes, library.copy)


def library() -> Library | None:
    """The library; None if DMLSPLIT_NATIVE is 0 or `unavailable_reason` gives a reason."""
    setting = os.environ.get(VARIABLE, "").strip()
    if setting not in ("", "0", "1"):
        raise InvalidArgumentError(
            f"{VARIABLE} is {setting[:40]!r}; it must be 0 or 1. Fix: unset it, or set 0 to copy "
            "with NumPy instead of the compiled library"
        )
    return None if setting == "0" or isinstance(loaded := _load(), str) else loaded


def unavailable_reason() -> str | None:
    """Why the library cannot be used, and the fix; None if it can, or if the user turned it off."""
    is_off = os.environ.get(VARIABLE, "").strip() == "0"
    return None if is_off or not isinstance(reason := _load(), str) else reason


def library_path(source: Path) -> Path:
    """The library of a source file, such as copy.so.1234abcd, which Python takes for no module."""
    return source.with_name(f"{source.stem}.so.{crc32(source.read_bytes()):08x}")


@cache
def _load() -> Library | str:
    """The library, or why it cannot be loaded."""
    if sys.platform == "win32":
        return "splits on the CPU use NumPy, on one thread: the C engine does not run on Windows"
    slow = "splits on the CPU use NumPy, on one thread, which is slower than the C engine: "
    path = library_path(SOURCE)
    if not path.exists():
        return f"{slow}the engine was not built. Fix: install a C compiler, then reinstall dmlsplit"
    try:
        return load(path)
    except OSError as error:
        return f"{slow}{error}. Fix: reinstall dmlsplit on this machine"


def load(path: Path) -> Library:
    """Load a library that was built from copy.c."""
    with late_import():
        code = ctypes.CDLL(str(path))
    code.dmlsplit_copy.argtypes = [ctypes.c_char_p]
    code.dmlsplit_copy.restype = None
    return Library(code.dmlsplit_copy, code.dmlsplit_kind(), str(path))


@cache
def _cache_bytes(size: Path = CACHE_SIZE_FILE) -> int:
    """The size of the last-level cache, at most MAX_CACHE; MAX_CACHE if it is unknown."""
    try:
        return min(MAX_CACHE, int(size.read_text().strip().removesuffix("K")) << 10)
    except (OSError, ValueError):  # no Linux, or no such cache
        return MAX_CACHE
