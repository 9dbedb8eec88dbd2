"""The engine without a compiler: NumPy assignments between windows on memory, on one thread.

An element of a window is one contiguous run: u1 to c16 for 1 to 16 bytes, ``V<n>`` up to
WIDEST_ELEMENT. A longer run is one more loop, over bytes. A *slice* is one iteration of the
outermost loop.
"""

import ctypes
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dmlsplit.backends import BoundCopy
from dmlsplit.backends.cpu import refuse_stream
from dmlsplit.geometry import ONE_TRIP, Loop, SplitGeometry, StridedCopy

# All of memory as one buffer, so that an array can be made at any address. It touches no memory and
# owns none. A window on it is only as safe as its address, shape and strides: binding.py and
# acceptance.py have checked types, sizes and overlap of the arrays, which callers keep alive.
# Not safe are writes to read-only memory (a fault and not an exception, so read-only outputs are
# refused), anything but assignments between windows (a copy or hash of `_MEMORY` itself reads
# unmapped pages), and windows that outlive the arrays.
# It begins at address 1, because NumPy refuses a buffer at 0, and ends at sys.maxsize. NumPy raises
# an error for higher addresses (tagged pointers, the upper half on 32-bit systems).
_MEMORY = memoryview((ctypes.c_ubyte * sys.maxsize).from_address(1))

_ELEMENTS = {1: "|u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}
WIDEST_ELEMENT = 2048
PART_BYTES = 64 << 20  # Python handles signals only between assignments


class _Nest(NamedTuple):
    """One output's copy as NumPy describes an array: its elements, shape and strides in bytes."""

    output: int
    offset: int  # in the input
    element: np.dtype[Any]
    part: int  # slices that one assignment copies
    shape: tuple[int, ...]
    input_strides: tuple[int, ...]
    output_strides: tuple[int, ...]


class NumpyProgram(NamedTuple):
    """A geometry's assignments."""

    nests: list[_Nest]

    def prepare(self, alignment: int = 16) -> None:
        """Do nothing: assignments need addresses (`bind`)."""

    def bind(self, src: int, dsts: Sequence[int]) -> BoundCopy:
        """Fix the addresses of the first element of the input and of each output."""
        bound = [(nest.part, *_windows(nest, src, dsts)) for nest in self.nests]

        def copy(stream: object = None) -> None:
            if stream is not None:
                refuse_stream(stream)
            for part, dst, src in bound:
                for start in range(0, len(dst), part):
                    dst[start : start + part] = src[start : start + part]

        return copy

    def copy(self, src: int, dsts: Sequence[int], stream: object = None) -> None:
        """Equivalent to ``bind(src, dsts)(stream)``."""
        self.bind(src, dsts)(stream)


def program_of(geometry: SplitGeometry) -> NumpyProgram:
    """Assignments for each output that has elements."""
    pieces = enumerate(geometry.pieces)
    return NumpyProgram([_nest(output, piece) for output, piece in pieces if piece.run_bytes])


def _nest(output: int, piece: StridedCopy) -> _Nest:
    """The copy of an output that has elements."""
    loops = list(piece.loops)
    width = piece.run_bytes
    if width > WIDEST_ELEMENT:
        loops.append(Loop(width, 1, 1))
        width = 1
    shape, src, dst = zip(*loops or [ONE_TRIP], strict=True)
    dtype = np.dtype(_ELEMENTS.get(width, f"|V{width}"))
    part = max(1, PART_BYTES * shape[0] // piece.total_bytes)
    return _Nest(output, piece.input_offset, dtype, part, shape, src, dst)


def _windows(nest: _Nest, src: int, dsts: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of a nest in its output and in the input."""
    target = dsts[nest.output] - 1
    source = src + nest.offset - 1
    return (
        np.ndarray(nest.shape, nest.element, _MEMORY, target, nest.output_strides),
        np.ndarray(nest.shape, nest.element, _MEMORY, source, nest.input_strides),
    )
