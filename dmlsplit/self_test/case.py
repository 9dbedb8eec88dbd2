"""One split of the self-test: its tensors, its data, and the bytes that its outputs must have.

The data are computed from the split's name, so that two machines can compare digests.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import shake_128
from itertools import accumulate
from math import gcd
from typing import NamedTuple

import numpy as np

from dmlsplit.arrays.array_view import byte_bounds
from dmlsplit.backends.cuda.launch import VECTOR
from dmlsplit.forks import cached_property
from dmlsplit.geometry import SplitGeometry, packed_byte_strides, piece_shapes, split_geometry

# The value of every output byte before a split. Bytes around and between the elements must still
# have it afterwards.
SENTINEL = 0xA5
# The value of bytes around the input. It differs, so that a copy of them shows.
AROUND_INPUT = 0x3C


class Tensor(NamedTuple):
    """Where the elements of a tensor are; strides are in bytes, and may be 0 or negative."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    width: int  # bytes of an element

    @property
    def origin(self) -> int:
        """Bytes before the first element."""
        low, _ = byte_bounds(self.shape, self.strides, self.width)
        return -low

    @property
    def size(self) -> int:
        """Bytes from the start of the lowest element to the end of the highest."""
        low, high = byte_bounds(self.shape, self.strides, self.width)
        return high - low

    def view(self, memory: np.ndarray) -> np.ndarray:
        """The tensor as an array on its `size` bytes."""
        dtype = np.dtype(f"V{self.width}")
        return np.ndarray(self.shape, dtype, memory, self.origin, self.strides)


class Mode(StrEnum):
    """How a split is dispatched."""

    # On the current stream.
    LAUNCH = "launch"
    STREAM = "second stream"
    # The graph is replayed with other data than it was captured with.
    GRAPH = "graph replay"


@dataclass(frozen=True)
class Case:
    """One split."""

    name: str
    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    # The bytes of an element.
    width: int = 1
    # The addresses of the input and of the first output, modulo 16.
    phases: tuple[int, int] = (0, 0)
    axis: int = -1
    # The strides of the input and of each output, in elements; None if it is packed.
    strides: tuple[int, ...] | None = None
    output_strides: tuple[tuple[int, ...], ...] | None = None
    mode: Mode = Mode.LAUNCH
    # The SMs of the GPU that the split is planned for; None: those of the tested GPU. Planned for a
    # single SM, few bytes take the paths that a GPU takes for many.
    sm_count: int | None = None

    @property
    def source(self) -> Tensor:
        """The input."""
        return _tensor(self.shape, self.strides, self.width)

    @property
    def output_tensors(self) -> list[Tensor]:
        """The outputs."""
        axis = self.axis % len(self.shape)
        strides: Sequence[tuple[int, ...] | None] = self.output_strides or [None] * len(self.sizes)
        layouts = zip(piece_shapes(self.shape, axis, self.sizes), strides, strict=True)
        return [_tensor(*layout, self.width) for layout in layouts]

    @property
    def output_phases(self) -> list[int]:
        """The address of each output, modulo 16.

        Neighbouring outputs differ, unless they are aligned, but are all as aligned as the first.
        """
        first_phase = self.phases[1]
        step = gcd(VECTOR, first_phase)
        return [(first_phase + number * step) % VECTOR for number in range(len(self.sizes))]

    @cached_property
    def geometry(self) -> SplitGeometry:
        """The split as engines see it."""
        axis = self.axis % len(self.shape)
        source = self.source
        strides = [tensor.strides for tensor in self.output_tensors]
        return split_geometry(self.shape, axis, self.sizes, self.width, source.strides, strides)

    @property
    def alignments(self) -> tuple[int, int]:
        """The powers of two, up to 16, that divide the addresses of the input and the outputs."""
        source = self.phases[0] + self.source.origin
        origins = (tensor.origin for tensor in self.output_tensors)
        outputs = map(sum, zip(self.output_phases, origins, strict=True))
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
    """A tensor; strides are in elements here, and None for a packed one."""
    if strides is None:
        return Tensor(shape, packed_byte_strides(shape, width), width)
    return Tensor(shape, tuple(width * stride for stride in strides), width)
