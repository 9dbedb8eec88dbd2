"""The CPU engine: a geometry's loop nests as NumPy assignments, shared by threads if large."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NoReturn

from dmlsplit.backends import BoundCopy
from dmlsplit.backends.cpu import moves, threads, tuning
from dmlsplit.backends.cpu.moves import BoundNests, Move, block_rows, group_moves
from dmlsplit.backends.cpu.nests import EqualNests, equal_nests
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.geometry import SplitGeometry


@dataclass(frozen=True)
class NumpyProgram:
    """A compiled geometry: its loop nests, grouped by their number of rows."""

    groups: tuple[tuple[EqualNests, ...], ...]

    @cached_property
    def _is_worth_sharing(self) -> bool:
        work = sum(
            nests.items * (nests.item.itemsize + tuning.ITEM_BYTES)
            for group in self.groups
            for nests in group
        )
        return work >= tuning.PARALLEL_BYTES

    @cached_property
    def _single_moves(self) -> list[tuple[int, int, Callable[[int, int], Move]]] | None:
        """Each output, its offset in the input, and what makes its assignment.

        None unless every output is one assignment on this thread: such a program, of few outputs
        and few bytes, is bound without any other work than making windows.
        """
        if self._is_worth_sharing:
            return None
        found = []
        for group in self.groups:
            rows = group[0].shape[0]
            block = block_rows(sum(nests.row_bytes for nests in group))
            for nests in group:
                if not moves.are_single(len(nests.outputs), rows, block):
                    return None
                move = moves.single(nests, 0, rows)
                for number, output in enumerate(nests.outputs):
                    found.append((output, nests.input_offset + number * nests.step, move))
        return found

    def bind(self, src: int, dsts: Sequence[int]) -> BoundCopy:
        """Fix the addresses of the first element of the input and of each output.

        Raises
        ------
        InvalidArgumentError
            If DMLSPLIT_NUM_THREADS is set to anything but a number of threads.
        """
        if self._single_moves is not None:
            found = self._single_moves
            return _on_this_thread([move(src + at, dsts[out]) for out, at, move in found])
        workers = threads.thread_count() if self._is_worth_sharing else 1
        groups = [
            [bound for nests in group for bound in moves.bind(nests, src, dsts, workers)]
            for group in self.groups
        ]
        if self._is_worth_sharing:
            return _on_threads(groups, workers)
        whole = [
            group_moves(group, 0, group[0].rows, block_rows(_row_bytes(group))) for group in groups
        ]
        return _on_this_thread([move for found in whole for move in found])

    def copy(self, src: int, dsts: Sequence[int], stream: Any = None) -> None:
        """Equivalent to ``bind(src, dsts)(stream)``."""
        self.bind(src, dsts)(stream)


@dataclass(frozen=True, slots=True)
class NumpyBackend:
    """The engine of ``Device("cpu")``."""

    device: str = "cpu"

    def compile(self, geometry: SplitGeometry) -> NumpyProgram:
        """The program of a geometry.

        Raises
        ------
        InvalidArgumentError
            If DMLSPLIT_NUM_THREADS is set to anything but a number of threads.
        """
        threads.thread_count()  # A wrong one is refused here, not when a large split is bound.
        groups: dict[int, list[EqualNests]] = {}
        for nests in equal_nests(geometry.pieces):
            groups.setdefault(nests.shape[0], []).append(nests)
        return NumpyProgram(tuple(map(tuple, groups.values())))


def _on_this_thread(prepared: list[Move]) -> BoundCopy:
    def copy(stream: Any = None) -> None:
        if stream is not None:
            refuse_stream(stream)
        for dst, index, src in prepared:
            dst[index] = src

    return copy


def _on_threads(groups: Sequence[Sequence[BoundNests]], workers: int) -> BoundCopy:
    cuts = [(group, *task) for group in groups for task in _tasks(group, workers)]
    if sum(group[0].rows * _row_bytes(group) for group in groups) > tuning.PREPARED_BYTES:
        tasks = [partial(_prepare_and_run, *cut) for cut in cuts]
    else:
        tasks = [partial(moves.run, list(group_moves(*cut))) for cut in cuts]

    def copy(stream: Any = None) -> None:
        if stream is not None:
            refuse_stream(stream)
        threads.run(tasks, workers)

    return copy


def refuse_stream(stream: object) -> NoReturn:
    """Raise the error for a stream of work on the CPU."""
    raise InvalidArgumentError(
        f"stream is {stream!r:.60}; the CPU has no streams, so it must be None"
    )


def _tasks(group: Sequence[BoundNests], workers: int) -> Iterator[tuple[int, int, int]]:
    """The first row, the end and the rows per block of each task.

    Tasks are cut for a group together: its outputs share the lines of the input's rows. Every task
    takes an equal share of the rest, so that they become shorter and threads end at the same time.
    """
    row_bytes, rows = _row_bytes(group), group[0].rows
    most = max(1, tuning.TASK_BYTES // row_bytes)
    least = max(1, tuning.LEAST_TASK_BYTES // row_bytes)
    parts = 4 * workers if workers > 1 else 1
    block = min(block_rows(row_bytes), -(-rows // parts))
    start = 0
    while start < rows:
        share = min(most, max(least, (rows - start) // parts))
        stop = min(rows, start + -(-share // block) * block)
        yield start, stop, block
        start = stop


def _row_bytes(group: Sequence[BoundNests]) -> int:
    return sum(bound.row_bytes for bound in group)


def _prepare_and_run(group: Sequence[BoundNests], start: int, stop: int, block: int) -> None:
    moves.run(group_moves(group, start, stop, block))
