"""The splits of the self-test: together they reach every kernel, in every mode, at any alignment.

A test compares the table with everything that the planner can choose. The data of a split are
computed from its name, so that two machines can compare digests.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import shake_128
from itertools import accumulate, cycle
from math import gcd
from typing import NamedTuple

import numpy as np

from dmlsplit.backends.cuda.launch import VECTOR
from dmlsplit.forks import cached_property
from dmlsplit.geometry import SplitGeometry, packed_byte_strides, split_geometry

# The value of every output byte before a split. Bytes around and between the elements must still
# have it afterwards.
SENTINEL = 0xA5


class Tensor(NamedTuple):
    """Where the elements of a tensor are; strides are in bytes, and may be 0 or negative."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    width: int  # bytes of an element

    @property
    def origin(self) -> int:
        """Bytes before the first element."""
        return sum(-min(0, (n - 1) * s) for n, s in zip(self.shape, self.strides, strict=True))

    @property
    def size(self) -> int:
        """Bytes from the start of the lowest element to the end of the highest."""
        reach = sum(max(0, (n - 1) * s) for n, s in zip(self.shape, self.strides, strict=True))
        return self.origin + reach + self.width

    def view(self, memory: np.ndarray) -> np.ndarray:
        """The tensor as an array on its `size` bytes."""
        dtype = np.dtype(f"V{self.width}")
        return np.ndarray(self.shape, dtype, memory, self.origin, self.strides)


class Mode(StrEnum):
    """How a split is dispatched."""

    LAUNCH = "launch"  # on the current stream
    STREAM = "second stream"
    GRAPH = "graph replay"  # with other data than the capture had


@dataclass(frozen=True)
class Case:
    """One split."""

    name: str
    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    width: int = 1  # bytes of an element
    phases: tuple[int, int] = (0, 0)  # of the input's and the outputs' addresses, modulo 16
    axis: int = -1
    strides: tuple[int, ...] | None = None  # of the input, in elements; None: packed
    output_strides: tuple[tuple[int, ...], ...] | None = None
    mode: Mode = Mode.LAUNCH

    @property
    def source(self) -> Tensor:
        """The input."""
        return _tensor(self.shape, self.strides, self.width)

    @property
    def output_tensors(self) -> list[Tensor]:
        """The outputs."""
        axis = self.axis % len(self.shape)
        strides: Sequence[tuple[int, ...] | None] = self.output_strides or [None] * len(self.sizes)
        shapes = ((*self.shape[:axis], size, *self.shape[axis + 1 :]) for size in self.sizes)
        return [_tensor(*layout, self.width) for layout in zip(shapes, strides, strict=True)]

    @cached_property
    def geometry(self) -> SplitGeometry:
        """The split as engines see it."""
        axis, strides = (
            self.axis % len(self.shape),
            [tensor.strides for tensor in self.output_tensors],
        )
        packed = self.shape, axis, self.sizes, self.width, self.source.strides, strides
        return split_geometry(*packed)

    @property
    def alignments(self) -> tuple[int, int]:
        """The powers of two, up to 16, that divide the addresses of the input and the outputs."""
        source = self.phases[0] + self.source.origin
        outputs = (self.phases[1] + tensor.origin for tensor in self.output_tensors)
        return gcd(VECTOR, source), gcd(VECTOR, *outputs)

    def data(self, version: int = 0) -> np.ndarray:
        """The bytes of the input; a graph is captured with version 0 and replayed with 1."""
        noise = shake_128(f"{self.name} {version}".encode()).digest(self.source.size)
        return np.frombuffer(noise, np.uint8)

    def expected(self, data: np.ndarray) -> Iterator[np.ndarray]:
        """The bytes of each output, with the sentinel between its elements."""
        cuts = list(accumulate(self.sizes))[:-1]
        pieces = np.split(self.source.view(data), cuts, self.axis)
        for tensor, piece in zip(self.output_tensors, pieces, strict=True):
            memory = np.full(tensor.size, SENTINEL, np.uint8)
            tensor.view(memory)[...] = piece
            yield memory


def _tensor(shape: tuple[int, ...], strides: tuple[int, ...] | None, width: int) -> Tensor:
    if strides is None:
        return Tensor(shape, packed_byte_strides(shape, width), width)
    return Tensor(shape, tuple(width * stride for stride in strides), width)


_ODD = (1, 3)
_ALTERNATING_STRIDES = (1200, -30, 1), (-1600, 40, 1)
_LAYOUTS = (
    # `rows`: wide outputs.
    Case("experts", (12, 4096), (3, 8, 1), axis=0),
    Case("experts at odd addresses", (10, 1021), (3, 5, 2), axis=0, phases=_ODD),
    Case("equal columns of one row", (1, 17408), (1024,) * 17),
    Case("the same at odd addresses", (1, 17408), (1024,) * 17, phases=_ODD),
    Case("query, key, value", (12, 1280), (1024, 128, 128), 2),
    Case("seventeen columns", (9, 8704), (512,) * 17),
    Case("wide columns of odd length", (9, 4111), (1507, 2604), phases=(0, 5)),
    Case("seventeen columns of odd length", (3, 8721), (513,) * 17, phases=(7, 7)),
    Case("short columns", (300, 800), (100, 398, 17, 285), phases=(0, 3)),
    Case("equal short columns", (67, 986), (493,) * 2, phases=(1, 1)),
    # `tile`: narrow outputs, through shared memory.
    Case("a byte each", (301, 64), (1,) * 64),
    Case("eight and sixteen bytes", (131, 24), (8, 16)),
    Case("columns wider than a vector", (131, 51), (20, 31), phases=(1, 3)),
    Case("halves at odd elements", (301, 12), (5, 7), 2, (2, 6)),
    # More than the 4,096 bytes of parameters that CUDA allowed before 12.1.
    Case("a thousand pieces", (5, 3000), (3,) * 1000),
    Case("boxes", (131, 336), (48,) * 7),
    Case("narrow columns of few rows", (3, 600), (1, 2, 500, 97)),
    Case("narrow columns beside wide ones", (70, 3200), (5, 1400, 90, 1500, 205), phases=(3, 1)),
    Case("columns of a padded input", (67, 60), (20, 40), 4, (4, 4), strides=(64, 1)),
    # `transpose`: planes.
    Case("an element each", (127, 24), (1,) * 24, 8),
    Case("transposed", (70, 90), (30, 60), 4, (4, 4), strides=(1, 70)),
    Case("transposed bytes", (40, 492), tuple(range(9, 33)), 1, (4, 4), strides=(1, 40)),
    Case("transposed vectors", (2, 8, 128), (8,), 16, axis=1, strides=(2048, 1, 16)),
    Case("to and fro", (3, 40, 70), (30, 40), 2, (4, 4), -1, (-2800, 1, -40), _ALTERNATING_STRIDES),
    # `strided`: every other layout.
    Case("colours", (1, 31, 67, 3), (1, 1, 1)),
    Case("complex numbers", (1023, 2), (1, 1), 8),
    Case("complex numbers at words", (1023, 2), (1, 1), 8, (4, 4)),
    Case("colours of padded rows", (2, 5, 640, 3), (1, 1, 1), strides=(9605, 1921, 3, 1)),
    Case("colours of odd rows", (2, 5, 301, 3), (1, 1, 1), strides=(4525, 905, 3, 1)),
    Case("two of four", (3, 5, 264, 3), (1, 2), 2, (4, 4), strides=(6000, 1100, 4, 1)),
    Case("padded outputs", (19, 60), (20, 40), 4, (3, 0), output_strides=((24, 1), (48, 1))),
    Case("padded, aligned outputs", (19, 60), (20, 40), 4, output_strides=((24, 1), (48, 1))),
    Case("every ninth byte", (6, 600), (288, 312), 1, (4, 4), strides=(5407, 9)),
    Case("backwards", (2, 514), (257, 257), 4, (4, 0), -1, (600, -1), ((320, 1),) * 2),
    Case("every 17th word", (2, 514), (257, 257), 4, (4, 0), -1, (8800, 17), ((320, 1),) * 2),
)


# Each split is first captured, or run on a second stream, and then launched. A kernel is thus
# captured before its first launch, where lazy loading would make the capture fail.
CASES = tuple(
    dispatched
    for case, mode in zip(_LAYOUTS, cycle((Mode.GRAPH, Mode.STREAM)), strict=False)
    for dispatched in (replace(case, mode=mode), case)
)

# Three rows, once packed and once spread over more than 4 GiB.
NEAR = Case("rows beyond 4 GiB", (3, 4096), (1000, 3096))
FAR = replace(NEAR, strides=((1 << 31) + 4099, 1))
