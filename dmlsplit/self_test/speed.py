"""Some splits beside a plain copy of the same size. It is measured, and never judged."""

from collections.abc import Callable, Iterator
from statistics import median
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from dmlsplit.backends.cuda.launch import VECTOR
from dmlsplit.geometry import ceil_div, packed_byte_strides, split_geometry
from dmlsplit.self_test.memory import Buffer, Memory

MOST_BYTES, LEAST_BYTES = 256 << 20, 1 << 20
# Of the free memory, as input, outputs and others' memory must fit too.
MEMORY_SHARE = 8
REPEATS = 7
SPARE = 256 * VECTOR  # so that every output can begin at an aligned address
# Name, bytes of a row, widths of the columns, and the input's address modulo 16.
WORKLOADS = (
    ("query, key, value", 12288, (8192, 2048, 2048), 0),
    ("heads of 170 bytes", 1360, (170,) * 8, 0),
    ("colours", 3, (1, 1, 1), 0),
    ("an odd address", 12288, (8192, 2048, 2048), 1),
    ("256 pieces", 16384, (64,) * 256, 0),
)


class Speed(NamedTuple):
    """One split, or the copy, which is the first."""

    name: str
    bytes: int  # read, and written again
    seconds: float  # the median

    @property
    def rate(self) -> float:
        """Bytes read and written per second."""
        return 2 * self.bytes / self.seconds


def speeds(backend: Any, memory: Memory, until: float) -> Iterator[Speed]:
    """The copy and the splits that can be measured `until` a time of `monotonic`."""
    size = _size(memory)
    source, target = (memory.upload(_noise(size + SPARE)) for _ in range(2))
    # A slow device has smaller arrays: a sixteenth of the time is for the first copy.
    once = memory.seconds(memory.plain_copy(source, target, LEAST_BYTES))
    room = max(0.0, until - monotonic()) / (16 * REPEATS * len(WORKLOADS))
    size = min(size, max(LEAST_BYTES, int(LEAST_BYTES * room / max(once, 1e-7))))
    yield Speed("copy", size, _median(memory, memory.plain_copy(source, target, size)))
    for name, row, widths, phase in WORKLOADS:
        if monotonic() > until:
            return
        copy = _bound(backend, source, target, size // row, row, widths, phase)
        copy()  # compiles
        yield Speed(name, size // row * row, _median(memory, copy))


def _size(memory: Memory) -> int:
    free = memory.free_bytes()
    return MOST_BYTES if free is None else max(LEAST_BYTES, min(MOST_BYTES, free // MEMORY_SHARE))


def _noise(size: int) -> np.ndarray:
    """Random bytes, because some memories compress zeros; repeated, because making them is slow."""
    block = np.random.default_rng(size).integers(0, 256, min(size, 1 << 20), np.uint8)
    return np.resize(block, size)


def _bound(
    backend: Any,
    source: Buffer,
    target: Buffer,
    rows: int,
    row: int,
    widths: tuple[int, ...],
    phase: int,
) -> Callable[[], object]:
    shapes = [(rows, width) for width in widths]
    strides = [packed_byte_strides(shape, 1) for shape in shapes]
    geometry = split_geometry((rows, row), 1, widths, 1, (row, 1), strides)
    outputs = [target.address]
    for width in widths[:-1]:
        outputs.append(outputs[-1] + ceil_div(rows * width, VECTOR) * VECTOR)
    bound: Callable[[], object] = backend.compile(geometry).bind(source.address + phase, outputs)
    return bound


def _median(memory: Memory, copy: Callable[[], object]) -> float:
    copy()
    return median(memory.seconds(copy) for _ in range(REPEATS))
