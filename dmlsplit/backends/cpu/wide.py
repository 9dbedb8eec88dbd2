"""Machine code that copies wide rows on several threads, and large splits past the cache.

With NumPy, a thread acquires the interpreter lock after each assignment, and waiting for it takes
as long as copying a megabyte. Here, helpers do not need it between two splits either (wide.ll).
"""

import ctypes
import os
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from importlib import import_module
from importlib.resources import files
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any

import numpy as np

from dmlsplit.backends.cpu import machine_code, threads
from dmlsplit.geometry import RowSplit, ceil_div

# Splits of LEAST_BYTES gain from helpers that listen. Waking one costs up to 50 us, which pays from
# WAKING_BYTES, or if the last split was less than SERIES_SECONDS ago, so that more may follow.
LEAST_BYTES, WAKING_BYTES, SERIES_SECONDS = 1 << 20, 2 << 20, 1e-3
# From PAST_BYTES, outputs do not stay in the cache. Writing past it saves reading their memory
# first, if the input's rows are PAST_PITCH apart, and those of outputs have PAST_WIDTH.
PAST_BYTES, PAST_PITCH, PAST_WIDTH = 48 << 20, 4 << 10, 512
PART_BYTES = 64 << 20  # interrupts are raised between parts
LEAST_WIDTH = 64  # bytes of an output's rows; NumPy is faster for many outputs with shorter ones
# A block of rows of all outputs has about TASK_BYTES, or this share of a large split, whose tasks
# need little memory then. They have a quarter of that on average, or more.
TASK_BYTES, TASK_SHARE = 64 << 10, 1 << 14
# NumPy shares this many bytes before llvmlite is imported, unless an operator is compiled.
PATIENCE_BYTES = 4 << 30
# A helper listens for 120 to 400 us before it sleeps: calls spend 20 us, a pause takes 15 to 50 ns.
_TURNS = 8000
_X86 = "@llvm.x86.sse2.pause()", "@llvm.x86.sse.sfence()"
_ARM = "@llvm.aarch64.isb(i32 15)", "@llvm.aarch64.dmb(i32 10)"
_WAITS = {"x86_64": _X86, "aarch64": _ARM, "arm64": _ARM}
_waited = [0]


@dataclass(frozen=True, slots=True)
class WideSplit:
    """A large split into wide rows."""

    split: RowSplit  # the outputs that have elements

    def prepare(self) -> None:
        """Compile now, if that may gain."""
        self.is_ready(PATIENCE_BYTES + 1)

    def is_ready(self, waited: int = 0) -> bool:
        """Whether compiled code copies it. If not, NumPy copies these bytes, which are counted."""
        is_alone = threads.thread_count() == 1 and self.split.total_bytes < PAST_BYTES
        if is_alone or not machine_code.is_allowed():
            return False
        _waited[0] += waited
        return _waited[0] > PATIENCE_BYTES and _code() is not None

    def bind(self, src: int, dsts: Sequence[int]) -> Callable[[], None]:
        """A copy between these addresses."""
        workers, size = threads.thread_count(), self.split.total_bytes
        tasks = _tasks(self.split, src, dsts)
        part = max(1, len(tasks) * PART_BYTES // size)
        address = tasks.__array_interface__["data"][0]

        def copy() -> None:
            team = _team(os.getpid(), workers)
            for at in range(0, len(tasks), part):
                team.run(address + at * tasks.strides[0], min(part, len(tasks) - at), size)

        return copy


def wide_split(split: RowSplit) -> WideSplit | None:
    """The split if it is large and the rows of all outputs are wide, else None."""
    split = split.take(split.filled)
    is_wide = split.total_bytes >= LEAST_BYTES and min(split.widths) >= LEAST_WIDTH
    return WideSplit(split) if is_wide else None


def _tasks(split: RowSplit, src: int, dsts: Sequence[int]) -> np.ndarray:
    """The tasks as wide.ll reads them: those of the first block of rows, then the next."""
    most = max(TASK_BYTES, split.total_bytes // TASK_SHARE)
    pieces = [
        (src + offset + at, dsts[output] + at, min(most, width - at), width)
        for output, offset, width in zip(*split[2:], strict=True)
        for at in range(0, width, most)
    ]
    froms, tos, sizes, steps = np.array(pieces, np.int64).T
    height = max(1, max(most, most // 4 * len(pieces)) // split.row_bytes)
    is_far = split.pitch >= PAST_PITCH and steps.min() >= PAST_WIDTH
    is_past = split.total_bytes >= PAST_BYTES and is_far and _code()[-1]
    is_long = is_past and sizes.mean() >= most // 2
    if is_past:
        height = 1 if is_long else ceil_div(height, 4) * 4
    starts = np.arange(0, split.rows, height, dtype=np.int64)[:, None]
    form: Any = sizes, np.minimum(height, split.rows - starts), split.pitch, steps
    if is_long:  # one row is copied as four, which overlap by up to three bytes
        form = sizes - sizes // 4 * 3, 4, sizes // 4, sizes // 4
    words = froms + starts * split.pitch, tos + starts * steps, *form, is_past
    return np.stack(np.broadcast_arrays(*words), 2).reshape(-1, len(words))


class _Team:
    """Threads that share one split at a time; the caller of a second one works alone."""

    def __init__(self, helpers: int) -> None:
        serve, self._run, self._processor, _ = _code()
        self._board = (ctypes.c_int64 * 5)()
        self._listen = partial(serve, self._board, _TURNS)
        self._sleeping: list[SimpleQueue[int]] = []
        self._last = 0.0
        with suppress(RuntimeError):  # no thread can start: a limit, or interpreter shutdown
            for _ in range(helpers):
                Thread(target=self._serve, name="dmlsplit-wide", daemon=True).start()

    def run(self, address: int, count: int, size: int) -> None:
        """Carry out tasks of `size` bytes. An interrupt is raised only after all of them."""
        last, self._last, woken = self._last, monotonic(), 0
        while self._sleeping and (size >= WAKING_BYTES or self._last - last < SERIES_SECONDS):
            with suppress(IndexError):  # another caller has just woken it
                self._sleeping.pop().put(self._processor())
                woken += 1
        self._run(self._board, _TURNS, address, count, woken)

    def _serve(self) -> None:
        woken: SimpleQueue[int] = SimpleQueue()
        while True:
            self._listen()
            self._sleeping.append(woken)
            with suppress(ValueError):  # a caller has just woken it
                if self._board[2] > 0:  # a split began while it waited for the interpreter lock
                    self._sleeping.remove(woken)
                    continue
            caller = woken.get()
            if caller == self._processor():
                _leave(caller)


def _leave(processor: int) -> None:
    """Leave a processor, where a helper often wakes and stays; then it may run anywhere again."""
    with suppress(AttributeError, OSError):  # not Linux, or there is no other
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, allowed - {processor})
        os.sched_setaffinity(0, allowed)


# By process, because threads do not survive a fork.
@lru_cache(maxsize=8)
def _team(process: int, threads: int) -> _Team:
    return _Team(threads - 1)


@cache
def _code() -> Any:
    """`serve`, `run`, sched_getcpu, and whether to write past the cache; None without compiler."""
    waits = _WAITS.get(platform.machine())
    if waits is None or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    try:
        system = ctypes.CDLL(None)
        calls = {"MEMMOVE": ctypes.memmove, "YIELD": system.sched_yield}
    except (TypeError, AttributeError, OSError):  # Windows
        return None
    text = files(__package__).joinpath("wide.ll").read_text(encoding="utf-8")
    for name, call in calls.items():
        text = text.replace(name, str(ctypes.cast(call, ctypes.c_void_p).value))
    text = text.replace("PAUSE", waits[0]).replace("FENCE", waits[1])
    with machine_code.compiling:
        engine = machine_code.engine_of(text)
    if engine is None:
        return None
    words = [ctypes.c_void_p] * 5
    serve = ctypes.CFUNCTYPE(None, *words[:2])(engine.get_function_address("serve"))
    run = ctypes.CFUNCTYPE(None, *words)(engine.get_function_address("run"))
    engine.detach()  # never freed: helpers may still listen when the interpreter ends
    # Vectors shorter than a cache line took longer past the cache than through it.
    is_past = import_module("llvmlite.binding").get_host_cpu_features().get("avx512f", False)
    return serve, run, getattr(system, "sched_getcpu", lambda: -1), is_past
