"""Splits of rows of bytes by the CPU engine, compared with NumPy's slices."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import dmlsplit as dml
from dmlsplit.backends.cpu.engine import NumpyBackend, NumpyProgram
from dmlsplit.geometry import split_geometry

GUARD, MARGIN = 0xA5, 64


def program_of(rows: int, widths: tuple[int, ...], gap: int = 0) -> NumpyProgram:
    """A split of rows into pieces of these widths, with a gap between the rows."""
    strides = sum(widths) + gap, 1
    geometry = split_geometry((rows, sum(widths)), 1, widths, 1, strides, [None] * len(widths))
    return NumpyBackend().compile(geometry)


def check_rows(
    program: NumpyProgram, rows: int, widths: tuple[int, ...], gap: int, phases: Sequence[int]
) -> None:
    """Copy between guard bytes, to addresses with these phases, and compare everything."""
    pitch = sum(widths) + gap
    # The memory ends with the last row's pieces, without the gap of a row.
    source = np.random.default_rng(rows).integers(0, 256, rows * pitch - gap, np.uint8)
    padded = np.concatenate([source, np.zeros(gap, np.uint8)]).reshape(rows, pitch)
    parts = np.split(padded, np.cumsum(widths), 1)[: len(widths)]
    stores, wanted = [], []
    for part, phase in zip(parts, phases, strict=False):
        store = np.full(part.size + phase + MARGIN, GUARD, np.uint8)
        stores.append(store)
        wanted.append(store.copy())
        wanted[-1][phase : phase + part.size] = part.reshape(-1)
    dsts = [store.ctypes.data + phase for store, phase in zip(stores, phases, strict=False)]
    program.copy(source.ctypes.data, dsts)
    for store, want in zip(stores, wanted, strict=True):
        np.testing.assert_array_equal(store, want)


def split_at_once(array: np.ndarray, sizes: tuple[int, ...], calls: int) -> None:
    """Split columns from four threads, and compare every piece."""
    want = [view.tobytes() for view in np.split(array, np.cumsum(sizes)[:-1], 1)]

    def is_right(_: int) -> bool:
        return [piece.tobytes() for piece in dml.split(array, sizes, 1)] == want

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(is_right, range(calls), timeout=60))
