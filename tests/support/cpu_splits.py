"""Random splits for the engines on the CPU, with their memory and the bytes to be written."""

import random
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dmlsplit.backends import Program
from dmlsplit.geometry import SplitGeometry, split_geometry
from tests.support.descriptors import carry_out, packed_split

GUARD, MARGIN = 0xA5, 8


class CpuSplit(NamedTuple):
    """A split, the input's memory, the offset of its first element, and each output's memory."""

    geometry: SplitGeometry
    source: np.ndarray
    first: int
    skews: list[int]  # where the outputs begin
    sizes: list[int]  # the bytes that they reach over

    def stores(self) -> list[np.ndarray]:
        """Memory for the outputs, with guard bytes."""
        pairs = zip(self.skews, self.sizes, strict=True)
        return [np.full(skew + size + MARGIN, GUARD, np.uint8) for skew, size in pairs]

    def done_by(self, program_of: Callable[[SplitGeometry], Program]) -> list[bytes]:
        """The outputs' memory after a bound copy and a single one."""
        stores, before = self.stores(), self.source.tobytes()
        starts = [store.ctypes.data + skew for store, skew in zip(stores, self.skews, strict=True)]
        program = program_of(self.geometry)
        program.bind(self.source.ctypes.data + self.first, starts)()
        bound = [store.tobytes() for store in stores]
        for store in stores:
            store.fill(GUARD)
        program.copy(self.source.ctypes.data + self.first, starts)
        assert [store.tobytes() for store in stores] == bound
        assert self.source.tobytes() == before
        return bound

    def defined(self) -> list[bytes]:
        """The outputs' memory by the definition of the geometry."""
        stores = self.stores()
        for piece, store, skew in zip(self.geometry.pieces, stores, self.skews, strict=True):
            if piece.run_bytes:
                carry_out(piece, self.source, self.first, store[skew:])
        return [store.tobytes() for store in stores]


def random_split(seed: int) -> CpuSplit:
    """A split of packed rows, or with any axis, order, padding, broadcast and direction."""
    draw = random.Random(seed)
    geometry, first, size = draw.choice([_packed, _strided])(draw)
    sizes = [
        sum((loop.size - 1) * loop.output_stride for loop in piece.loops) + piece.run_bytes
        for piece in geometry.pieces
    ]
    source = np.random.default_rng(seed).integers(0, 256, size, np.uint8)
    skews = [draw.randrange(70) if draw.random() < 0.5 else 0 for _ in sizes]
    return CpuSplit(geometry, source, first, skews, sizes)


def edge_splits() -> list[CpuSplit]:
    """Short runs, the first of which ends the input: in reverse order, and all the same."""
    pairs = [(run, step) for run in range(1, 16) for step in (-run, 0)]
    return [_runs(run, step) for run, step in pairs]


def _runs(run: int, step: int, count: int = 40) -> CpuSplit:
    geometry = packed_split((count, run), axis=1, sizes=(run,), input_strides=(step, 1))
    first = (count - 1) * -step
    source = np.random.default_rng(run).integers(0, 256, first + run, np.uint8)
    return CpuSplit(geometry, source, first, [0], [count * run])


def _packed(draw: random.Random) -> tuple[SplitGeometry, int, int]:
    """Rows, which may have a gap after them, of elements of up to 16 bytes."""
    width, count = draw.choice([1, 1, 2, 4, 8, 16]), draw.choice([1, 2, 2, 3, 4, 7, 8, 16, 20])
    most = draw.choice([1, 3, 40, 40, 600])
    pieces = [draw.randint(0, most) for _ in range(count)]
    if draw.random() < 0.6:
        pieces = [draw.randint(1, most)] * count
    if draw.random() < 0.04:
        pieces[0] += (200 << 10) // width  # a run of several tasks
    elif draw.random() < 0.2:
        pieces = draw.choice([[1, 1], [1, 2], [2, 1], [1, 3], [3, 1], [1] * 3, [1] * 4, [1] * 8])
    pitch = sum(pieces)
    rows = draw.randint(1, max(1, min(900, (96 << 10) // max(1, pitch * width))))
    step = (pitch + (draw.random() < 0.2)) * width
    first = draw.randrange(70)
    geometry = packed_split(
        (rows, pitch), axis=1, sizes=pieces, element_bytes=width, input_strides=(step, width)
    )
    return geometry, first, first + rows * step - (step - pitch * width)


def _strided(draw: random.Random) -> tuple[SplitGeometry, int, int]:
    width, rank = draw.choice([1, 2, 3, 4, 8, 16, 24]), draw.randint(1, 4)
    shape, axis = [draw.randint(1, 6) for _ in range(rank)], draw.randrange(rank)
    pieces = [draw.randint(0, 3) for _ in range(draw.randint(1, 5))]
    if draw.random() < 0.5:
        pieces = [draw.randint(1, 2)] * draw.randint(1, 6)
    shape[axis] = sum(pieces)

    def strides(counts: list[int]) -> list[int]:
        steps, step = [0] * len(counts), width
        for dim in draw.sample(range(len(counts)), len(counts)):
            steps[dim] = step
            step *= max(1, counts[dim]) + draw.randint(0, 1)
        return steps

    input_strides, first = strides(shape), draw.randrange(18)
    for dim, count in enumerate(shape):
        turn = draw.random()
        if turn < 0.15:
            input_strides[dim] = 0
        elif turn < 0.3:
            first += max(0, count - 1) * input_strides[dim]
            input_strides[dim] *= -1
    reach = sum(max(0, n - 1) * max(0, s) for n, s in zip(shape, input_strides, strict=True))
    outputs = [
        None if draw.random() < 0.5 else strides([*shape[:axis], size, *shape[axis + 1 :]])
        for size in pieces
    ]
    geometry = split_geometry(shape, axis, pieces, width, input_strides, outputs)
    return geometry, first, first + reach + width
