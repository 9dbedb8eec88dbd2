"""The CPU engine: a geometry's loop nests as NumPy assignments, shared by threads if large."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from typing import Any, NoReturn

from dmlsplit.backends import BoundCopy
from dmlsplit.backends.cpu import machine_code, moves, narrow, threads, tuning, wide
from dmlsplit.backends.cpu.moves import BoundNests, EqualNests, Move, block_rows
from dmlsplit.backends.cpu.narrow import NarrowSplit
from dmlsplit.backends.cpu.wide import WideSplit
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.geometry import SplitGeometry, ceil_div

_Batch = tuple[Any, int, int, int]  # nests, their rows, the bytes of one and the rows of a block
_Cut = tuple[Any, int, int, int]  # a batch, the first row, the end and the rows of a block


@dataclass(frozen=True)
class NumpyProgram:
    """A compiled geometry: its loop nests. A batch has those that share cache lines and rows."""

    batches: tuple[tuple[EqualNests, ...], ...]
    total_bytes: int
    narrow: NarrowSplit | None = None  # the same split, if machine code may copy it
    wide: WideSplit | None = None  # likewise, on several threads
    # The last copies that `copy` made, by the threads, whether compiled, and the addresses.
    recent: dict[tuple[int, ...], BoundCopy] = field(default_factory=dict, compare=False)

    @cached_property
    def _is_worth_sharing(self) -> bool:
        # An item counts as two bytes more than it has, a byte of a longer run as one more.
        found = [(nests, nests.item.itemsize) for nests in chain.from_iterable(self.batches)]
        work = sum(nests.items * (size + 1 + (size == nests.run_bytes)) for nests, size in found)
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
        """Compile the loops over rows, if any. Assignments need addresses (`bind`)."""
        for rows in (self.narrow, self.wide):
            if rows is not None:
                rows.prepare()

    def bind(self, src: int, dsts: Sequence[int]) -> BoundCopy:
        """Fix the addresses of the first element of the input and of each output."""
        if self.narrow is not None and (copy := self.narrow.ready()):
            return _in_one_pass(self.narrow, copy, src, dsts)
        if self.wide is not None and self.wide.is_ready():
            return _run([self.wide.bind(src, dsts)], 1)
        if self._single_moves is not None:
            singles = self._single_moves
            return _on_this_thread([move(src + at, dsts[out]) for out, at, move in singles])
        workers = threads.thread_count() if self._is_worth_sharing else 1
        found: list[_Batch] = []
        for batch in self.batches:
            bound = [part for nests in batch for part in moves.bind(nests, src, dsts)]
            rows, row_bytes = batch[0].shape[0], sum(nests.row_bytes for nests in batch)
            found.append((bound, rows, row_bytes, _block(bound, rows, row_bytes, workers)))
        if not self._is_worth_sharing:
            cuts = ((batch, 0, rows, block) for batch, rows, _, block in found)
            return _on_this_thread(list(_moves(cuts)))
        tasks: list[Any] = [partial(_moves, cuts) for cuts in _tasks(found, workers)]
        if self.total_bytes <= tuning.PREPARED_BYTES:
            tasks = [partial(iter, list(task())) for task in tasks]
        return _run([partial(moves.run, task) for task in tasks], workers)

    def copy(self, src: int, dsts: Sequence[int], stream: Any = None) -> None:
        """Equivalent to ``bind(src, dsts)(stream)``, which is kept for these addresses."""
        is_compiled = self.wide is not None and self.wide.is_ready(self.total_bytes)
        is_shared = is_compiled or self._is_worth_sharing
        key = threads.thread_count() if is_shared else 1, is_compiled, src, *dsts
        copy = self.recent.get(key)
        if copy is None:
            copy = self.bind(src, dsts)
            # Binding is a noticeable part of a small copy. Narrow rows are counted each time.
            if self.narrow is None and self.total_bytes <= tuning.KEPT_BYTES:
                if len(self.recent) == tuning.KEPT_COPIES:
                    self.recent.clear()
                self.recent[key] = copy
        copy(stream)


@dataclass(frozen=True, slots=True)
class NumpyBackend:
    """The engine of ``Device("cpu")``."""

    device: str = "cpu"

    def compile(self, geometry: SplitGeometry) -> NumpyProgram:
        """The program of a geometry."""
        # Invalid environment variables fail here, not when a large split is bound.
        threads.thread_count()
        machine_code.is_allowed()
        batches: dict[tuple[int, int], list[EqualNests]] = {}
        for number, nests in enumerate(moves.equal_nests(geometry.pieces)):
            alone = number if nests.run_bytes >= tuning.LONG_RUN else -1
            batches.setdefault((nests.shape[0], alone), []).append(nests)
        rows = geometry.row_split
        return NumpyProgram(
            tuple(map(tuple, batches.values())),
            geometry.total_bytes,
            rows and narrow.narrow_split(rows),
            rows and wide.wide_split(rows),
        )


def _on_this_thread(prepared: list[Move]) -> BoundCopy:
    def copy(stream: Any = None) -> None:
        if stream is not None:
            _refuse_stream(stream)
        for dst, index, src in prepared:
            dst[index] = src

    return copy


def _in_one_pass(rows: NarrowSplit, copy: narrow.Copy, src: int, dsts: Sequence[int]) -> BoundCopy:
    split = rows.split
    workers = threads.thread_count() if split.total_bytes >= tuning.PARALLEL_BYTES else 1
    part = partial(rows.part, copy, src, dsts)
    tasks = _tasks([(part, split.rows, split.row_bytes, 1)], workers)
    return _run([part(*rows) for part, *rows, _ in chain.from_iterable(tasks)], workers)


def _moves(cuts: Iterable[_Cut]) -> Iterator[Move]:
    for batch, start, stop, block in cuts:
        for bound in batch:
            yield from bound.moves(start, stop, block)


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


def _tasks(batches: Sequence[_Batch], workers: int) -> Iterator[list[_Cut]]:
    """Share batches between threads. The first task is the caller's.

    Each of the others is an equal share of what remains, so that threads end together.
    """
    remaining = sum(rows * row_bytes for _, rows, row_bytes, _ in batches)
    room, task = remaining // workers + tuning.HEAD_START_BYTES, []
    for batch, rows, row_bytes, block in batches:
        start = 0
        while start < rows:
            blocks = ceil_div(min(room, tuning.TASK_BYTES), row_bytes * block)
            stop = min(rows, start + blocks * block)
            task.append((batch, start, stop, block))
            room -= (stop - start) * row_bytes
            remaining -= (stop - start) * row_bytes
            start = stop
            if room < tuning.LEAST_TASK_BYTES // 4:
                yield task
                room, task = max(tuning.LEAST_TASK_BYTES, remaining // workers), []
    if task:
        yield task


def _block(batch: Sequence[BoundNests], rows: int, row_bytes: int, workers: int) -> int:
    if all(len(bound.dsts) == 1 for bound in batch):
        return 1  # each task is one assignment to each output
    parts = 4 * workers if workers > 1 else 1
    return min(block_rows(row_bytes, rows), ceil_div(rows, parts))
