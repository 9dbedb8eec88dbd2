"""The NumPy engine: every copy is an assignment between two windows on memory.

A contiguous run is one wide item: u1 to u8 and c16 for runs of 1 to 16 bytes, ``V<n>`` up
to `WIDEST_ITEM`, and a row of bytes above that. Equal boxes of such items, at equal
distances in the input, are one assignment together, however many they are: the outputs'
addresses become the index of a window that reaches over all of them.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby, pairwise
from math import gcd, prod
from typing import Any

import numpy as np

from dmlsplit.backends import Launch
from dmlsplit.backends.cpu import threads
from dmlsplit.geometry import SplitGeometry, StridedCopy

WIDEST_ITEM = 2048
# Below this, waking another thread costs more than it saves; an item counts as ITEM_BYTES more.
PARALLEL_BYTES = 4 << 20
ITEM_BYTES = 2
# Long enough to hand over the interpreter lock rarely; bounded, as indices are made per task.
TASK_BYTES = 64 << 20
LEAST_TASK_BYTES = 1 << 20
# Up to this size the assignments of a task are made when buffers are bound, not at each dispatch;
# beyond it their cost is lost among the bytes, and their indices would take memory.
PREPARED_BYTES = 256 << 20
# A block stays in the second-level cache, or the pages of its rows in the first-level TLB: with
# more rows, the pages of the outputs, of which there may be thousands, are visited less often.
BLOCK_BYTES = 128 << 10
BLOCK_ROWS = 32
# An indexed assignment costs about as much as this many plain ones, and more when it is made.
FEW_OUTPUTS = 128
# So many bytes of the input are copied faster than one more assignment is made. Threads hinder each
# other with short assignments, which hold the interpreter lock: they make so few at most.
COPIED_BYTES = 1024
FEW_PARTS = 8
# NumPy keeps the interpreter lock through an assignment of so few items, however wide they are,
# and no other thread goes on meanwhile. From so many bytes on, items are assigned as bytes.
LOCKED_ITEMS = 500
UNLOCKED_BYTES = 32 << 10
# No window reaches over outputs in different sections of memory of this length.
REACH_BYTES = 1 << 35

_ITEMS = {1: "|u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}
_BYTE = np.dtype("u1")
_Move = tuple[np.ndarray, Any, np.ndarray]  # target, index, origin: target[index] = origin
# All addresses but the first, as one buffer: NumPy takes no buffer at address 0.
_MEMORY = memoryview((ctypes.c_ubyte * sys.maxsize).from_address(1))


@dataclass(frozen=True, slots=True)
class _Boxes:
    """Equal boxes of consecutive outputs, `step` bytes apart in the input.

    Attributes
    ----------
    outputs
        Indices of the outputs.
    item
        One contiguous run.
    shape, input_strides, output_strides
        Loops over items. The first one is the one that tasks cut.
    input_offset
        Bytes from the first element of the input to the first box.
    step
        Bytes from one box to the next in the input.
    """

    outputs: tuple[int, ...]
    item: np.dtype
    shape: tuple[int, ...]
    input_strides: tuple[int, ...]
    output_strides: tuple[int, ...]
    input_offset: int
    step: int = 0

    @property
    def row_bytes(self) -> int:
        """Bytes of one turn of the first loop, in all outputs."""
        return len(self.outputs) * self.item.itemsize * prod(self.shape[1:])

    def box(self, start: int, stop: int) -> _Box:
        """Return turns `start` to `stop` of the first loop in one of the outputs."""
        item, shape = self.item, (stop - start, *self.shape[1:])
        source, target = self.input_strides, self.output_strides
        offset = start * source[0]
        if prod(shape) <= LOCKED_ITEMS and prod(shape) * item.itemsize >= UNLOCKED_BYTES:
            shape, source, target = (*shape, item.itemsize), (*source, 1), (*target, 1)
            item = _BYTE
        return _Box(item, shape, offset, source, start * self.output_strides[0], target)


@dataclass(frozen=True, slots=True)
class _Box:
    """A box of one output; offsets count from the first items of all of its rows."""

    item: np.dtype
    shape: tuple[int, ...]
    input_offset: int
    input_strides: tuple[int, ...]
    output_offset: int
    output_strides: tuple[int, ...]

    def move(self, origin: int, target: int) -> _Move:
        """Return the assignment that copies it, from the addresses of the first items."""
        item, shape = self.item, self.shape
        target, origin = target + self.output_offset, origin + self.input_offset
        return (
            _window(target, item, shape, self.output_strides),
            ...,
            _window(origin, item, shape, self.input_strides),
        )


@dataclass(frozen=True)
class NumpyProgram:
    """A compiled geometry: boxes, grouped by the length of the loop that tasks cut."""

    groups: tuple[tuple[_Boxes, ...], ...]

    @cached_property
    def _is_worth_sharing(self) -> bool:
        work = sum(
            len(boxes.outputs) * prod(boxes.shape) * (boxes.item.itemsize + ITEM_BYTES)
            for group in self.groups
            for boxes in group
        )
        return work >= PARALLEL_BYTES

    @cached_property
    def _single_boxes(self) -> list[tuple[int, int, _Box]] | None:
        """Each output, its offset in the input and its box, where each is assigned alone."""
        if self._is_worth_sharing:
            return None
        found = []
        for group in self.groups:
            rows = group[0].shape[0]
            block = _block_rows(sum(boxes.row_bytes for boxes in group))
            for boxes in group:
                if not _are_single(len(boxes.outputs), rows, block):
                    return None
                box, offset = boxes.box(0, rows), boxes.input_offset
                for number, output in enumerate(boxes.outputs):
                    found.append((output, offset + number * boxes.step, box))
        return found

    def bind(self, source: int, targets: Sequence[int]) -> Launch:
        """Fix the address of the first element of the input and of each output.

        Raises
        ------
        InvalidArgumentError
            If DMLSPLIT_NUM_THREADS is set to what is not a number of threads.
        """
        if self._single_boxes is not None:
            found = self._single_boxes
            return _launch([box.move(source + at, targets[out]) for out, at, box in found])
        workers = threads.thread_count() if self._is_worth_sharing else 1
        groups = [
            [bound for boxes in group for bound in _bind(boxes, source, targets, workers)]
            for group in self.groups
        ]
        if self._is_worth_sharing:
            return _shared_launch(groups, workers)
        blocks = [_block_rows(sum(bound.row_bytes for bound in group)) for group in groups]
        return _launch(
            [
                move
                for group, block in zip(groups, blocks, strict=True)
                for move in _moves(group, 0, group[0].rows, block)
            ]
        )


def _launch(moves: list[_Move]) -> Launch:
    def launch(stream: Any = None) -> None:
        for target, index, origin in moves:
            target[index] = origin

    return launch


@dataclass(frozen=True, slots=True)
class NumpyBackend:
    """The engine of ``Device("cpu")``."""

    device: str = "cpu"

    def compile(self, geometry: SplitGeometry) -> NumpyProgram:
        """Make a program of a geometry."""
        groups: dict[int, list[_Boxes]] = {}
        for boxes in _all_boxes(geometry.pieces):
            groups.setdefault(boxes.shape[0], []).append(boxes)
        return NumpyProgram(tuple(map(tuple, groups.values())))


def _all_boxes(pieces: Sequence[StridedCopy]) -> Iterator[_Boxes]:
    """Join neighbours that differ by nothing but an equal step in the input."""

    def form(index: int) -> tuple[Any, ...]:
        piece = pieces[index]
        return piece.shape, piece.input_strides, piece.output_strides, piece.run_bytes

    solid = [index for index, piece in enumerate(pieces) if piece.run_bytes]
    for _, run in groupby(solid, form):
        outputs = tuple(run)
        steps = {pieces[b].input_offset - pieces[a].input_offset for a, b in pairwise(outputs)}
        if pieces[outputs[0]].run_bytes <= WIDEST_ITEM and len(steps) == 1:
            yield _boxes(outputs, pieces[outputs[0]], *steps)
        else:
            yield from (_boxes((output,), pieces[output]) for output in outputs)


def _boxes(outputs: tuple[int, ...], piece: StridedCopy, step: int = 0) -> _Boxes:
    item_bytes = piece.run_bytes
    loops = list(zip(piece.shape, piece.input_strides, piece.output_strides, strict=True))
    if item_bytes > WIDEST_ITEM:
        loops.append((item_bytes, 1, 1))
        item_bytes = 1
    # Tasks cut the outermost loop, but the longest one where that gives too few of them.
    if loops and piece.total_bytes > TASK_BYTES * loops[0][0]:
        loops.sort(reverse=True)
    shape, source, target = zip(*loops or [(1, 0, 0)], strict=True)
    item = np.dtype(_ITEMS.get(item_bytes, f"|V{item_bytes}"))
    return _Boxes(outputs, item, shape, source, target, piece.input_offset, step)


@dataclass(frozen=True)
class _Bound:
    """Boxes with the addresses of the first item of each, on both sides."""

    boxes: _Boxes
    origin: int
    targets: Sequence[int]

    @property
    def rows(self) -> int:
        """Turns of the loop that tasks cut."""
        return self.boxes.shape[0]

    @property
    def row_bytes(self) -> int:
        """Bytes of one turn."""
        return self.boxes.row_bytes // len(self.boxes.outputs) * len(self.targets)

    @cached_property
    def spans_input(self) -> bool:
        """Whether the input lies between the outputs."""
        return min(self.targets) < self.origin < max(self.targets)

    @cached_property
    def spacing(self) -> tuple[np.ndarray, int]:
        """Addresses of the outputs, and what divides all distances between them."""
        return np.array(self.targets), gcd(*(target - self.targets[0] for target in self.targets))

    def moves(self, start: int, stop: int, block: int) -> Iterator[_Move]:
        """Yield the assignments that copy rows `start` to `stop`, `block` rows at a time."""
        count = len(self.targets)
        if _are_single(count, stop - start, block):
            box, step = self.boxes.box(start, stop), self.boxes.step
            for number, target in enumerate(self.targets):
                yield box.move(self.origin + number * step, target)
            return
        if self.spans_input:
            # NumPy copies the input first: as many rows at a time as stay in the cache.
            block = max(1, min(block, LEAST_TASK_BYTES // self.row_bytes))
        tail = stop - (stop - start) % block
        step = block if self.spans_input else max(block, tail - start)
        for first in range(start, tail, step):
            yield self._scatter(first, step // block, block)
        if tail < stop:
            yield self._scatter(tail, 1, stop - tail)

    def _scatter(self, start: int, blocks: int, rows: int) -> _Move:
        """Copy all boxes of a block, then those of the next, in one assignment."""
        boxes = self.boxes
        shape = (rows, *boxes.shape[1:])
        target_step, source_step = boxes.output_strides[0], boxes.input_strides[0]
        starts = np.arange(start, start + blocks * rows, rows)[:, None] * target_step
        targets, distance = self.spacing
        addresses = starts + targets
        base = int(addresses.min())
        unit = gcd(distance, rows * target_step)
        index = (addresses - base) // unit
        count = int(index.max()) + 1
        return (
            _window(base, boxes.item, (count, *shape), (unit, *boxes.output_strides)),
            index,
            _window(
                self.origin + start * source_step,
                boxes.item,
                (blocks, len(self.targets), *shape),
                (rows * source_step, boxes.step, *boxes.input_strides),
            ),
        )


def _bind(boxes: _Boxes, source: int, targets: Sequence[int], workers: int) -> Iterator[_Bound]:
    """Bind boxes; apart where one window on all outputs is refused or costs more.

    NumPy refuses a window of 2^63 bytes, and copies an input that lies inside the window.
    """
    origin = source + boxes.input_offset
    addresses = [targets[output] for output in boxes.outputs]
    low, high = min(addresses), max(addresses)
    if low // REACH_BYTES == high // REACH_BYTES and (low > source) == (high > source):
        yield _Bound(boxes, origin, addresses)
        return

    def cut(key: Callable[[int], Any]) -> list[list[int]]:
        return [list(run) for _, run in groupby(addresses, key)]

    parts = cut(lambda address: (address // REACH_BYTES, address > source))
    few = [len(part) for part in parts if len(part) < FEW_OUTPUTS]
    is_small = boxes.row_bytes * boxes.shape[0] <= sum(few) * COPIED_BYTES
    hinders = workers > 1 and len(few) > FEW_PARTS and boxes.row_bytes <= LEAST_TASK_BYTES
    if is_small or hinders:
        parts = cut(lambda address: address // REACH_BYTES)
    for part in parts:
        yield _Bound(boxes, origin, part)
        origin += boxes.step * len(part)


def _shared_launch(groups: Sequence[Sequence[_Bound]], workers: int) -> Launch:
    cuts = [
        (group, start, stop, block)
        for group in groups
        for start, stop, block in _tasks(group, workers)
    ]
    if sum(bound.rows * bound.row_bytes for group in groups for bound in group) > PREPARED_BYTES:
        tasks = [partial(_assign_rows, *cut) for cut in cuts]
    else:
        tasks = [partial(_assign, list(_moves(*cut))) for cut in cuts]

    def launch(stream: Any = None) -> None:
        threads.run(tasks, workers)

    return launch


def _tasks(group: Sequence[_Bound], workers: int) -> Iterator[tuple[int, int, int]]:
    """Cut a group's rows; every task is a share of the rest, so that all threads end together."""
    row_bytes = sum(bound.row_bytes for bound in group)
    rows = group[0].rows
    most = max(1, TASK_BYTES // row_bytes)
    least = max(1, LEAST_TASK_BYTES // row_bytes)
    parts = 4 * workers if workers > 1 else 1
    block = min(_block_rows(row_bytes), -(-rows // parts))
    start = 0
    while start < rows:
        share = min(most, max(least, (rows - start) // parts))
        stop = min(rows, start + -(-share // block) * block)
        yield start, stop, block
        start = stop


def _block_rows(row_bytes: int) -> int:
    return max(BLOCK_BYTES // row_bytes, BLOCK_ROWS)


def _are_single(outputs: int, rows: int, block: int) -> bool:
    """Whether so many equal boxes are assigned one by one, each with all of its rows."""
    return outputs == 1 or (outputs < FEW_OUTPUTS and block >= rows)


def _moves(group: Sequence[_Bound], start: int, stop: int, block: int) -> Iterator[_Move]:
    for bound in group:
        yield from bound.moves(start, stop, block)


def _assign(moves: Iterable[_Move]) -> None:
    for target, index, origin in moves:
        target[index] = origin


def _assign_rows(group: Sequence[_Bound], start: int, stop: int, block: int) -> None:
    _assign(_moves(group, start, stop, block))


def _window(
    address: int, item: np.dtype, shape: tuple[int, ...], strides: tuple[int, ...]
) -> np.ndarray:
    return np.ndarray(shape, item, _MEMORY, address - 1, strides)
