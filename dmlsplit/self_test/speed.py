"""Speeds of some splits, beside those of a plain copy and those that ``explain`` predicts.

Their outputs are compared, too.
"""

from collections.abc import Callable, Iterator
from statistics import median
from time import monotonic
from typing import NamedTuple

import numpy as np

from dmlsplit.backends import Backend
from dmlsplit.backends.cuda.gpus import Gpu
from dmlsplit.self_test import large
from dmlsplit.self_test.byte_comparison import CaseResult
from dmlsplit.self_test.case import Case
from dmlsplit.self_test.memory import GpuMemory, Memory

# The most bytes of an input, and the fewest, which even the slowest device copies.
MAX_BYTES = 256 << 20
MIN_BYTES = 1 << 20
# Input and outputs each take at most this fraction of the free memory, because other programs may
# need some.
MEMORY_SHARE = 1 / 8
REPEATS = 7


class Workload(NamedTuple):
    """A packed split of rows of bytes."""

    name: str
    row: int
    widths: tuple[int, ...]
    # The address of the input, modulo 16.
    phase: int
    # The least share of the copy's speed that is promised for a GPU and at least MIN_CHECKED_BYTES.
    min_share: float

    def case(self, size: int) -> Case:
        """The split of at most `size` bytes."""
        shape = size // self.row, self.row
        return Case(self.name, shape, self.widths, phases=(self.phase, 0))


MIN_CHECKED_BYTES = 256 * 10**6
WORKLOADS = (
    Workload("query, key, value", 12288, (8192, 2048, 2048), 0, 0.95),
    Workload("heads of 170 bytes", 1360, (170,) * 8, 0, 0.9),
    Workload("colours", 3, (1, 1, 1), 0, 0.9),
    Workload("an odd address", 12288, (8192, 2048, 2048), 1, 0.95),
    Workload("256 pieces", 16384, (64,) * 256, 0, 0.9),
)


class Speed(NamedTuple):
    """One split, or the copy, which is the first."""

    name: str
    # The bytes that are read; as many are written.
    bytes: int
    # The median time.
    seconds: float
    # The time that `explain` predicts; None without a GPU, or if it is not known.
    predicted_seconds: float | None
    # The rate, as a share of that of the copy; None for the copy.
    share: float | None = None
    # The least share that is promised; None if none is.
    min_share: float | None = None

    @property
    def rate(self) -> float:
        """Bytes read and written per second."""
        return 2 * self.bytes / self.seconds

    @property
    def is_slow(self) -> bool:
        """Whether it is below its minimum."""
        return self.share is not None and self.min_share is not None and self.share < self.min_share


def speeds(
    backend: Backend, memory: Memory, deadline: float, gpu: Gpu | None
) -> Iterator[Speed | CaseResult]:
    """Measure the copy, and splits until the time `deadline` of `monotonic`; compare all splits."""
    size = _size(memory)
    cases = [workload.case(size) for workload in WORKLOADS]
    source = memory.upload(np.zeros(max(size, *map(large.source_bytes, cases)), np.uint8))
    target = memory.upload(np.zeros(max(map(large.target_bytes, cases)), np.uint8))
    large.fill_with_copies(memory, source, _noise(), size)
    # A slow device gets smaller arrays: if all splits were as fast as the copy, they would take a
    # sixteenth of the time.
    once = memory.seconds(memory.plain_copy(source, target, MIN_BYTES))
    allowed = max(0.0, deadline - monotonic()) / (16 * REPEATS * len(WORKLOADS))
    size = min(size, max(MIN_BYTES, int(MIN_BYTES * allowed / max(once, 1e-7))))
    seconds = _median(memory, memory.plain_copy(source, target, size))
    copy = Speed("copy", size, seconds, gpu.seconds(size) if gpu else None)
    yield copy
    for workload in WORKLOADS:
        case = workload.case(size)
        bind = backend.compile(case.geometry).bind
        split = large.prepared_copy(case, bind, memory, source, target)
        # The first call compiles the kernel.
        split()
        if monotonic() < deadline:
            moved = case.source.size
            seconds = _median(memory, split)
            has_minimum = isinstance(memory, GpuMemory) and moved >= MIN_CHECKED_BYTES
            min_share = workload.min_share if has_minimum else None
            predicted = gpu.seconds(moved) if gpu else None
            share = 2 * moved / seconds / copy.rate
            yield Speed(workload.name, moved, seconds, predicted, share, min_share)
        yield large.compare_outputs(case, memory, target)


def _size(memory: Memory) -> int:
    """The most bytes of an input."""
    if not isinstance(memory, GpuMemory):
        return MAX_BYTES  # systems overcommit memory, so none says how much is free
    return max(MIN_BYTES, min(MAX_BYTES, int(memory.free_bytes() * MEMORY_SHARE)))


def _noise() -> np.ndarray:
    """Random bytes, because some memories compress zeros."""
    return np.random.default_rng(5).integers(0, 256, MIN_BYTES, np.uint8)


def _median(memory: Memory, copy: Callable[[], object]) -> float:
    """The median time of a copy, in seconds, after one call to warm up."""
    copy()
    return median(memory.seconds(copy) for _ in range(REPEATS))
