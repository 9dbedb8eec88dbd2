"""The CPU engine: a geometry's loop nests as NumPy assignments, shared by threads if large."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import Any, NoReturn

from dmlsplit.backends import BoundCopy
from dmlsplit.backends.cpu import moves, narrow, threads, tuning
from dmlsplit.backends.cpu.moves import BoundNests, EqualNests, Move, batch_moves, block_rows
from dmlsplit.backends.cpu.narrow import NarrowSplit
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.geometry import SplitGeometry


@dataclass(frozen=True)
class NumpyProgram:
    """A compiled geometry: its loop nests, in batches of equally many rows."""

    batches: tuple[tuple[EqualNests, ...], ...]
    narrow: NarrowSplit | None = None  # the same split, if machine code may copy it

    @cached_property
    def _is_worth_sharing(self) -> bool:
        found = chain.from_iterable(self.batches)
        work = sum(nests.items * (nests.item.itemsize + tuning.ITEM_BYTES) for nests in found)
        return work >= tuning.PARALLEL_BYTES

    @cached_property
    def _single_moves(self) -> list[tuple[int, int, Callable[[int, int], Move]]] | None:
        """Each output, its offset in the input, and a function that makes its assignment.

        None unless every output is one assignment on this thread. Binding such a program only makes
        windows.
        """
        if self._is_worth_sharing:
            return None
        found = []
        for batch in self.batches:
            rows = batch[0].shape[0]
            block = block_rows(sum(nests.row_bytes for nests in batch), rows)
            for nests in batch:
                if not moves.are_single(len(nests.outputs), rows, block):
                    return None
                move = moves.single(nests, 0, rows)
                for number, output in enumerate(nests.outputs):
                    found.append((output, nests.input_offset + number * nests.step, move))
        return found

    def prepare(self) -> None:
        """Compile the loop over narrow rows, if any. Assignments need addresses (`bind`)."""
        if self.narrow is not None:
            self.narrow.prepare()

    def bind(self, src: int, dsts: Sequence[int]) -> BoundCopy:
        """Fix the addresses of the first element of the input and of each output."""
        if self.narrow is not None and (copy := self.narrow.ready()):
            return _in_one_pass(self.narrow, copy, src, dsts)
        if self._single_moves is not None:
            found = self._single_moves
            return _on_this_thread([move(src + at, dsts[out]) for out, at, move in found])
        workers = threads.thread_count() if self._is_worth_sharing else 1
        batches = [
            [bound for nests in batch for bound in moves.bind(nests, src, dsts, workers)]
            for batch in self.batches
        ]
        if self._is_worth_sharing:
            return _on_threads(batches, workers)
        whole = [
            batch_moves(batch, 0, batch[0].rows, block_rows(_row_bytes(batch), batch[0].rows))
            for batch in batches
        ]
        return _on_this_thread(list(chain.from_iterable(whole)))

    def copy(self, src: int, dsts: Sequence[int], stream: Any = None) -> None:
        """Equivalent to ``bind(src, dsts)(stream)``."""
        self.bind(src, dsts)(stream)


@dataclass(frozen=True, slots=True)
class NumpyBackend:
    """The engine of ``Device("cpu")``."""

    device: str = "cpu"

    def compile(self, geometry: SplitGeometry) -> NumpyProgram:
        """The program of a geometry."""
        # Invalid environment variables fail here, not when a large split is bound.
        threads.thread_count()
        narrow.is_allowed()
        batches: dict[int, list[EqualNests]] = {}
        for nests in moves.equal_nests(geometry.pieces):
            batches.setdefault(nests.shape[0], []).append(nests)
        narrow_split = narrow.narrow_split(geometry.row_split)
        return NumpyProgram(tuple(map(tuple, batches.values())), narrow_split)


def _on_this_thread(prepared: list[Move]) -> BoundCopy:
    def copy(stream: Any = None) -> None:
        if stream is not None:
            _refuse_stream(stream)
        for dst, index, src in prepared:
            dst[index] = src

    return copy


def _in_one_pass(split: NarrowSplit, copy: narrow.Copy, src: int, dsts: Sequence[int]) -> BoundCopy:
    if split.total_bytes < tuning.PARALLEL_BYTES:
        return _run([split.part(copy, src, dsts, 0, split.rows)], 1)
    workers = threads.thread_count()
    cuts = _tasks(split.rows, split.row_bytes, workers)
    return _run([split.part(copy, src, dsts, start, stop) for start, stop, _ in cuts], workers)


def _on_threads(batches: Sequence[Sequence[BoundNests]], workers: int) -> BoundCopy:
    cuts = [
        (batch, *task)
        for batch in batches
        for task in _tasks(batch[0].rows, _row_bytes(batch), workers)
    ]
    if sum(batch[0].rows * _row_bytes(batch) for batch in batches) > tuning.PREPARED_BYTES:
        tasks = [partial(_prepare_and_run, *cut) for cut in cuts]
    else:
        tasks = [partial(moves.run, list(batch_moves(*cut))) for cut in cuts]
    return _run(tasks, workers)


def _run(tasks: Sequence[Callable[[], None]], workers: int) -> BoundCopy:
    def copy(stream: Any = None) -> None:
        if stream is not None:
            _refuse_stream(stream)
        if workers == 1:
            for task in tasks:
                task()
        else:
            threads.run(tasks, workers)

    return copy


def _refuse_stream(stream: object) -> NoReturn:
    raise InvalidArgumentError(
        f"stream is {stream!r:.60}; the CPU has no streams, so it must be None"
    )


def _tasks(rows: int, row_bytes: int, workers: int) -> Iterator[tuple[int, int, int]]:
    """The first row, the end and the rows per block of each task.

    A task has all outputs of a batch, which share cache lines of the input. Each task takes an
    equal share of the remaining rows, so that tasks get shorter and threads end together.
    """
    most = max(1, tuning.TASK_BYTES // row_bytes)
    least = max(1, tuning.LEAST_TASK_BYTES // row_bytes)
    parts = 4 * workers if workers > 1 else 1
    block = min(block_rows(row_bytes, rows), -(-rows // parts))
    start = 0
    while start < rows:
        share = min(most, max(least, (rows - start) // parts))
        stop = min(rows, start + -(-share // block) * block)
        yield start, stop, block
        start = stop


def _row_bytes(batch: Sequence[BoundNests]) -> int:
    return sum(bound.row_bytes for bound in batch)


def _prepare_and_run(batch: Sequence[BoundNests], start: int, stop: int, block: int) -> None:
    moves.run(batch_moves(batch, start, stop, block))
