"""The engine without a compiler: NumPy assignments between windows on memory, on one thread.

An item is one contiguous run: u1 to c16 for 1 to 16 bytes, ``V<n>`` up to WIDEST_ITEM. Longer runs
are one more loop, over bytes. A *row* is one iteration of the outermost loop.
"""

import ctypes
import sys
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from dmlsplit.backends import BoundCopy
from dmlsplit.backends.cpu import refuse_stream
from dmlsplit.geometry import ONE_TRIP, Loop, SplitGeometry, StridedCopy

# All of memory as one buffer, so that an array can be made at any address. It touches no memory and
# owns none. A window on it is only as safe as its address, shape and strides: binding.py and
# acceptance.py have checked types, sizes and overlap of the arrays, and keep them alive.
# Unsafe are writes to read-only memory (a fault, not an exception, so callers refuse read-only
# outputs), anything but assignments between windows (a copy or hash of `_MEMORY` itself reads
# unmapped pages), and windows that outlive the arrays.
# It begins at address 1, because NumPy refuses a buffer at 0, and ends at sys.maxsize. NumPy raises
# an error for higher addresses (tagged pointers, the upper half on 32-bit systems).
_MEMORY = memoryview((ctypes.c_ubyte * sys.maxsize).from_address(1))

_ITEMS = {1: "|u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}
WIDEST_ITEM = 2048
# Outputs are copied a block of rows at a time, so that the rows are still in the second-level cache
# for the last of them. Blocks are long enough that Python's time for a block is negligible.
BLOCK_BYTES, BLOCK_ROWS = 128 << 10, 32
PART_BYTES = 64 << 20  # Python raises interrupts between assignments


class _Nest(NamedTuple):
    """One output's copy as NumPy describes an array: items, their shape and strides in bytes."""

    output: int
    offset: int  # in the input
    item: np.dtype[Any]
    shape: tuple[int, ...]
    input_strides: tuple[int, ...]
    output_strides: tuple[int, ...]


class NumpyProgram(NamedTuple):
    """A geometry's assignments."""

    batches: list[tuple[int, int, list[_Nest]]]  # rows, and how many of them are copied at a time

    def prepare(self, alignment: int = 16) -> None:
        """Nothing: assignments need addresses (`bind`)."""

    def bind(self, src: int, dsts: Sequence[int]) -> BoundCopy:
        """Fix the addresses of the first element of the input and of each output."""
        bound = [
            (rows, block, [_windows(nest, src, dsts) for nest in nests])
            for rows, block, nests in self.batches
        ]

        def copy(stream: object = None) -> None:
            if stream is not None:
                refuse_stream(stream)
            for rows, block, windows in bound:
                for row in range(0, rows, block):
                    for dst, src in windows:
                        dst[row : row + block] = src[row : row + block]

        return copy

    def copy(self, src: int, dsts: Sequence[int], stream: object = None) -> None:
        """Equivalent to ``bind(src, dsts)(stream)``."""
        self.bind(src, dsts)(stream)


def program_of(geometry: SplitGeometry) -> NumpyProgram:
    """The program of a geometry."""
    nests = [_nest(*piece) for piece in enumerate(geometry.pieces) if piece[1].run_bytes]
    batches = []
    for rows, group in groupby(nests, lambda nest: nest.shape[0]):
        batch = list(group)
        row_bytes = sum(geometry.pieces[nest.output].total_bytes for nest in batch) // rows
        block = PART_BYTES // row_bytes
        if len(batch) > 1:
            block = min(block, max(BLOCK_ROWS, BLOCK_BYTES // row_bytes))
        batches.append((rows, max(1, block), batch))
    return NumpyProgram(batches)


def _nest(output: int, piece: StridedCopy) -> _Nest:
    loops, item = list(piece.loops), piece.run_bytes
    if item > WIDEST_ITEM:
        loops.append(Loop(item, 1, 1))
        item = 1
    shape, src, dst = zip(*loops or [ONE_TRIP], strict=True)
    dtype = np.dtype(_ITEMS.get(item, f"|V{item}"))
    return _Nest(output, piece.input_offset, dtype, shape, src, dst)


def _windows(nest: _Nest, src: int, dsts: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    _, offset, item, shape, input_strides, output_strides = nest
    target, source = dsts[nest.output] - 1, src + offset - 1
    return (
        np.ndarray(shape, item, _MEMORY, target, output_strides),
        np.ndarray(shape, item, _MEMORY, source, input_strides),
    )
