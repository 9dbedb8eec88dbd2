"""The NumPy engine: every piece is one strided copy between two windows on memory.

A contiguous run is copied as one wide item: u1 to u8 and c16 for runs of 1 to 16 bytes,
``V<n>`` up to `WIDEST_ITEM`, and a row of bytes above that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlsplit.backends import Launch
from dmlsplit.geometry import SplitGeometry, StridedCopy

WIDEST_ITEM = 4096
_ITEMS = {1: "|u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}


@dataclass(frozen=True, slots=True)
class _Window:
    """One piece in NumPy's terms: item type, and shape and strides on both sides."""

    index: int
    type: str
    shape: tuple[int, ...]
    source_strides: tuple[int, ...]
    target_strides: tuple[int, ...]
    source_offset: int


@dataclass(frozen=True, slots=True)
class NumpyProgram:
    """A compiled geometry."""

    windows: tuple[_Window, ...]

    def bind(self, source: int, targets: Sequence[int]) -> Launch:
        """Fix the address of the first element of the input and of each output."""
        pairs = [
            (
                _memory(targets[window.index], window.shape, window.target_strides, window.type),
                _memory(
                    source + window.source_offset, window.shape, window.source_strides, window.type
                ),
            )
            for window in self.windows
        ]
        copyto = np.copyto

        def launch(stream: Any = None) -> None:
            for target, origin in pairs:
                copyto(target, origin)

        return launch


@dataclass(frozen=True, slots=True)
class NumpyBackend:
    """The engine of ``Device("cpu")``."""

    device: str = "cpu"

    def compile(self, geometry: SplitGeometry) -> NumpyProgram:
        """Make a program of a geometry."""
        pieces = enumerate(geometry.pieces)
        return NumpyProgram(tuple(_window(i, piece) for i, piece in pieces if piece.run_bytes))


def _window(index: int, piece: StridedCopy) -> _Window:
    run = piece.run_bytes
    shape, source, target = piece.shape, piece.source_strides, piece.target_strides
    if run > WIDEST_ITEM:
        shape, source, target = (*shape, run), (*source, 1), (*target, 1)
        run = 1
    item = _ITEMS.get(run, f"|V{run}")
    return _Window(index, np.dtype(item).str, shape, source, target, piece.source_offset)


class _Memory:
    """A window on an address, in the form that NumPy reads."""

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


def _memory(
    address: int, shape: tuple[int, ...], strides: tuple[int, ...], type_: str
) -> np.ndarray:
    interface = {"data": (address, False), "shape": shape, "strides": strides, "typestr": type_}
    return np.asarray(_Memory({**interface, "version": 3}))
