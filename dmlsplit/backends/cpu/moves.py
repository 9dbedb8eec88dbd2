"""Copies as NumPy assignments, ``dst[index] = src``, between windows on memory.

One output is a plain assignment. Many outputs with equal nests are one indexed assignment: the
destination is a window over all of them, and their addresses are the index.

Nests are loops over items. An item is one contiguous run: u1 to u8 and c16 for runs of 1 to 16
bytes, ``V<n>`` up to `tuning.WIDEST_ITEM` bytes. Longer runs are one more loop, over bytes. A *row*
is one iteration of the outermost loop, the one that tasks and blocks cut.
"""

import ctypes
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from math import gcd, prod
from typing import Any

import numpy as np

from dmlsplit.backends.cpu import tuning
from dmlsplit.geometry import ONE_TURN, Loop, StridedCopy

_BYTE = np.dtype("u1")
Move = tuple[Any, Any, Any]  # dst, index, src: dst[index] = src, for arrays or memoryviews

# All of memory as one buffer, so that an array can be made at any address. It touches no memory and
# owns none. NumPy's bounds check says little about a window, which is only as safe as its address,
# shape and strides:
#   - addresses come from arrays and buffers whose type, size and overlap the caller has checked
#     (binding.py, eager.py), and shapes and strides from the geometry they were checked against;
#   - the caller of `bind` keeps the arrays alive: a window refers to this buffer, not to them.
# These are unsafe: writes to read-only memory (a fault, not an exception, so callers refuse
# read-only outputs), anything but assignments between windows (a copy or hash of `_MEMORY` itself
# reads unmapped pages), and windows that outlive the arrays.
# It begins at address 1, because NumPy refuses a buffer at 0, and ends at sys.maxsize. NumPy raises
# an error for higher addresses (tagged pointers, the upper half on 32-bit systems).
_MEMORY = memoryview((ctypes.c_ubyte * sys.maxsize).from_address(1))

_ALL = slice(None)
_ITEMS = {1: "|u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}


@dataclass(frozen=True, slots=True)
class EqualNests:
    """Equal loop nests of consecutive outputs, over items, as NumPy describes an array."""

    outputs: tuple[int, ...]  # by index
    item: np.dtype  # one contiguous run
    shape: tuple[int, ...]
    input_strides: tuple[int, ...]  # in bytes
    output_strides: tuple[int, ...]
    input_offset: int  # bytes from the first element of the input to the first nest
    run_bytes: int  # contiguous in the input and in an output
    step: int = 0  # bytes from one nest to the next in the input

    @property
    def items(self) -> int:
        """Items of all outputs."""
        return len(self.outputs) * prod(self.shape)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of all outputs."""
        return len(self.outputs) * self.item.itemsize * prod(self.shape[1:])


def equal_nests(pieces: Sequence[StridedCopy]) -> Iterator[EqualNests]:
    """Join neighbouring outputs that differ only by an equal step in the input."""

    def form(index: int) -> tuple[Any, ...]:
        return pieces[index].loops, pieces[index].run_bytes

    solid = [index for index, piece in enumerate(pieces) if piece.run_bytes]
    for _, alike in groupby(solid, form):
        outputs = tuple(alike)
        steps = {pieces[b].input_offset - pieces[a].input_offset for a, b in pairwise(outputs)}
        if pieces[outputs[0]].run_bytes <= tuning.WIDEST_ITEM and len(steps) == 1:
            yield _nests(outputs, pieces[outputs[0]], *steps)
        else:
            yield from (_nests((output,), pieces[output]) for output in outputs)


def _nests(outputs: tuple[int, ...], piece: StridedCopy, step: int = 0) -> EqualNests:
    item_bytes = piece.run_bytes
    loops = list(piece.loops)
    if item_bytes > tuning.WIDEST_ITEM:
        loops.append(Loop(item_bytes, 1, 1))
        item_bytes = 1
    # Tasks cut the outermost loop. If its iterations exceed a task, the longest loop goes first.
    if loops and piece.total_bytes > tuning.TASK_BYTES * loops[0].size:
        loops.sort(reverse=True)
    shape, src, dst = zip(*loops or [ONE_TURN], strict=True)
    item = np.dtype(_ITEMS.get(item_bytes, f"|V{item_bytes}"))
    return EqualNests(outputs, item, shape, src, dst, piece.input_offset, piece.run_bytes, step)


def run(moves: Callable[[], Iterator[Move]]) -> None:
    """Carry out assignments."""
    for dst, index, src in moves():
        dst[index] = src


def single(nests: EqualNests, start: int, stop: int) -> Callable[[int, int], Move]:
    """A function that makes the assignment of rows `start` to `stop` of one output.

    Its arguments are the addresses of row 0 in the input and in the output.
    """
    item, shape = nests.item, (stop - start, *nests.shape[1:])
    src_strides, dst_strides = nests.input_strides, nests.output_strides
    src_offset, dst_offset = start * src_strides[0], start * dst_strides[0]
    count = prod(shape)
    if count == 1:
        item, shape, src_strides, dst_strides = _BYTE, (item.itemsize,), (1,), (1,)
    elif count <= tuning.LOCKED_ITEMS and count * item.itemsize >= tuning.UNLOCKED_BYTES:
        shape = (*shape, item.itemsize)
        src_strides, dst_strides = (*src_strides, 1), (*dst_strides, 1)
        item = _BYTE

    def move(src: int, dst: int) -> Move:
        to = _window(dst + dst_offset, item, shape, dst_strides)
        of = _window(src + src_offset, item, shape, src_strides)
        # For one item, an assignment between memoryviews takes half the time of NumPy's.
        return (to.data, _ALL, of.data) if count == 1 else (to, ..., of)

    return move


def are_single(outputs: int, rows: int, block: int) -> bool:
    """Whether this many equal nests are assigned one by one, each with all of its rows."""
    return outputs == 1 or (outputs < tuning.FEW_OUTPUTS and block >= rows)


def block_rows(row_bytes: int, rows: int) -> int:
    """How many of `rows` are copied to all outputs before the next ones are read."""
    if rows * row_bytes <= tuning.CACHED_BYTES:
        return rows
    return max(tuning.BLOCK_BYTES // row_bytes, tuning.BLOCK_ROWS)


@dataclass(frozen=True)
class BoundNests:
    """Equal nests with the addresses of their first items."""

    nests: EqualNests
    src: int
    dsts: Sequence[int]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of the bound outputs, which may be only some of the nests' outputs."""
        return self.nests.row_bytes // len(self.nests.outputs) * len(self.dsts)

    @cached_property
    def spans_input(self) -> bool:
        """Whether the input is between the outputs in memory."""
        return min(self.dsts) < self.src < max(self.dsts)

    @cached_property
    def spacing(self) -> tuple[np.ndarray, int]:
        """The outputs' addresses, and the greatest common divisor of the distances between them."""
        return np.array(self.dsts), gcd(*(dst - self.dsts[0] for dst in self.dsts))

    def moves(self, start: int, stop: int, block: int) -> Iterator[Move]:
        """The assignments that copy rows `start` to `stop`, `block` rows at a time."""
        if are_single(len(self.dsts), stop - start, block):
            move, step = single(self.nests, start, stop), self.nests.step
            for number, dst in enumerate(self.dsts):
                yield move(self.src + number * step, dst)
            return
        if self.spans_input:
            # NumPy copies the input first, so take as many rows at a time as stay in the cache.
            block = max(1, min(block, tuning.LEAST_TASK_BYTES // self.row_bytes))
        # All whole blocks go into one assignment, unless each one needs a copy of its input.
        tail = stop - (stop - start) % block
        step = block if self.spans_input else max(block, tail - start)
        for first in range(start, tail, step):
            yield self._scatter(first, step // block, block)
        if tail < stop:
            yield self._scatter(tail, 1, stop - tail)

    def _scatter(self, start: int, blocks: int, rows: int) -> Move:
        """The assignment that writes all outputs of a block, then those of the next.

        The destination is a window of overlapping nests of `rows` rows, one every `unit` bytes. The
        index selects those that begin at a block of an output.
        """
        nests = self.nests
        shape = (rows, *nests.shape[1:])
        src_step, dst_step = nests.input_strides[0], nests.output_strides[0]
        starts = np.arange(start, start + blocks * rows, rows)[:, None] * dst_step
        dsts, distance = self.spacing
        addresses = starts + dsts
        base = int(addresses.min())
        unit = gcd(distance, rows * dst_step)
        index = (addresses - base) // unit
        count = int(index.max()) + 1
        return (
            _window(base, nests.item, (count, *shape), (unit, *nests.output_strides)),
            index,
            _window(
                self.src + start * src_step,
                nests.item,
                (blocks, len(self.dsts), *shape),
                (rows * src_step, nests.step, *nests.input_strides),
            ),
        )


def bind(nests: EqualNests, src: int, dsts: Sequence[int]) -> Iterator[BoundNests]:
    """Bind nests to memory, in parts if one window over all outputs is impossible or costs more.

    `src` and `dsts` are the addresses of the input and of all outputs of the geometry. NumPy
    refuses a window of 2^63 bytes, and copies an input that is inside the window: some rows at a
    time, which hardly takes longer unless a single row is long.
    """
    first = src + nests.input_offset
    addresses = [dsts[output] for output in nests.outputs]
    is_long = nests.row_bytes > tuning.LEAST_TASK_BYTES

    def window(address: int) -> tuple[int, bool]:
        return address // tuning.REACH_BYTES, is_long and address > src

    # Most bindings end here, without a look at every output.
    if window(min(addresses)) == window(max(addresses)):
        yield BoundNests(nests, first, addresses)
        return
    for _, alike in groupby(addresses, window):
        part = list(alike)
        yield BoundNests(nests, first, part)
        first += nests.step * len(part)


def _window(
    address: int, item: np.dtype, shape: tuple[int, ...], strides: tuple[int, ...]
) -> np.ndarray:
    return np.ndarray(shape, item, _MEMORY, address - 1, strides)
