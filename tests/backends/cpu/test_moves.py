"""Bound nests: how outputs on both sides of their input are assigned, and the cost of that."""

import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest

from dmlsplit.backends.cpu import moves, tuning
from dmlsplit.backends.cpu.engine import NumpyBackend
from dmlsplit.geometry import SplitGeometry, split_geometry


def around(
    rows: int, width: int, sides: Sequence[int]
) -> tuple[SplitGeometry, np.ndarray, list[np.ndarray]]:
    """A split into columns of bytes, with outputs below (0) and above (1) its input in memory."""
    count = len(sides)
    part = rows * count * width
    pool = np.random.default_rng(20).integers(0, 256, 3 * part, np.uint8)
    source = pool[part : 2 * part].reshape(rows, count, width)
    starts = [2 * part * side + index * rows * width for index, side in enumerate(sides)]
    geometry = split_geometry(
        (rows, count * width), 1, (width,) * count, 1, (count * width, 1), [None] * count
    )
    return geometry, source, [pool[start:][: rows * width] for start in starts]


@pytest.mark.parametrize(
    ("rows", "width", "sides", "bound"),
    [
        # NumPy copies some rows of the input at a time.
        (64, 8, [0] * 200 + [1] * 300, 1),
        (64, 8, [0, 1, 1, 0] * 125, 1),
        # If a row is long, outputs on each side of the input get assignments that do not copy it.
        (2, 2048, [0] * 300 + [1] * 300, 2),
        (2, 2048, ([0] * 3 + [1]) * 5 + [0] * 580, 11),
    ],
)
def test_outputs_on_both_sides_of_the_input(
    rows: int, width: int, sides: list[int], bound: int
) -> None:
    geometry, source, outputs = around(rows, width, sides)
    want = [source[:, index].tobytes() for index in range(len(sides))]
    program = NumpyBackend().compile(geometry)
    addresses = [out.ctypes.data for out in outputs]
    ((nests,),) = program.batches
    assert len(list(moves.bind(nests, source.ctypes.data, addresses))) == bound
    program.bind(source.ctypes.data, addresses)()
    assert [out.tobytes() for out in outputs] == want


def test_a_copy_of_the_input_takes_little_memory() -> None:
    rows = 128
    geometry, source, outputs = around(rows, 128, [0, 1] * 256)
    ((nests,),) = NumpyBackend().compile(geometry).batches
    addresses = [out.ctypes.data for out in outputs]
    (bound,) = moves.bind(nests, source.ctypes.data, addresses)
    tracemalloc.start()
    moves.run(lambda: bound.moves(0, rows, 32))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.25 * tuning.LEAST_TASK_BYTES < source.nbytes / 4
    for index, out in enumerate(outputs):
        assert out.tobytes() == source[:, index].tobytes()
