"""Splits stores that are larger than memory, block by block, on threads or on a Dask cluster.

Pieces grow in a hidden folder beside their final places, the workspace of the run, with a
journal of the finished blocks. They move to their names when all of them are complete. The
same run, started again, continues from what it finds after an interruption:

- No journal: pieces may be half created, so they are created anew. The journal is written
  last, and only whole.
- A journal: its blocks are done. A block that was written but not recorded, or whose line is
  cut short, is done again, with the same result.
- Some pieces are missing: they have already moved to their names. The rest follow.
- No workspace: the run is complete, or had not begun. It is removed after its journal, so
  that a run interrupted there is done again from the start.

An old piece moves into the workspace just before the new one takes its name, and is removed
with it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

from dmlsplit.checks import piece_sizes
from dmlsplit.errors import DmlError, InvalidArgumentError, UnsupportedError
from dmlsplit.storage.blocks import BlockGrid
from dmlsplit.storage.journal import Journal, RunHeader, create_journal, open_journal
from dmlsplit.storage.npy import Progress, SplitFiles
from dmlsplit.storage.worker import move_block
from dmlsplit.storage.zarr_arrays import (
    absent_chunks,
    create_piece,
    describe,
    grid_for,
    needed,
    open_stored,
)

ON_A_CLUSTER = 'Fix: pip install "dmlsplit[dask]" where the scheduler and every worker run'


def split_store(
    path: Path,
    sizes_or_count: int | Sequence[int],
    axis: int,
    folder: Path,
    *,
    device: str = "cpu",
    scheduler: str | None = None,
    block_bytes: int | None = None,
    progress: Progress = lambda done, total: None,
) -> SplitFiles:
    """Split a zarr array or a .npy file into zarr arrays ``NAME_0.zarr``, ``NAME_1.zarr``, ...

    Parameters
    ----------
    path
        A zarr array, format 2 or 3, or a .npy file. Pieces keep the format, codecs, fill
        value and attributes of a zarr array, and its chunks where they are large enough.
    sizes_or_count, axis, folder, device, progress
        As in `split_file`. On a cluster every worker must see `path` and `folder` under the
        same names.
    scheduler
        Address of a running Dask cluster; None uses threads of this process.
    block_bytes
        How much of the input to read at a time, in bytes; None means 8 MiB. A thread holds
        about five times as much. Chunks larger than that are read whole.

    Raises
    ------
    InvalidArgumentError
        If the input is damaged, its data type has no fixed size, the sizes do not fit, or
        the folder holds an unfinished run of another split.
    UnsupportedError
        If zarr or dask is not installed.
    OSError
        If a file cannot be read or written.
    """
    stored = open_stored(path)
    axis, sizes = piece_sizes(tuple(stored.shape), sizes_or_count, axis)
    grid = grid_for(stored, axis, sizes, block_bytes)
    name = path.absolute().name.removesuffix(".zip").removesuffix(".zarr").removesuffix(".npy")
    outputs = tuple(folder / f"{name}_{index}.zarr" for index in range(len(sizes)))
    _refuse_other_files(outputs)
    workspace = folder.absolute() / f".{name}.unfinished"
    header: RunHeader = {
        "input": str(path.absolute()),
        "state": _state(path),
        "data_type": stored.dtype.str,
        "grid": grid.to_json(),
        "run": uuid.uuid4().hex,
    }
    with _executor(scheduler) as (executor, window), _claimed(workspace):
        _prepare(workspace, header, stored, grid)
        with open_journal(workspace / "journal") as journal:
            _check_same_run(workspace, journal.header, header)
            work = partial(move_block, str(workspace), journal.header["run"], device)
            missing = (index for index in range(len(grid)) if index not in journal.done)
            _record(journal, grid, _in_flight(executor, window, work, missing), progress)
        _publish(workspace, outputs)
    shapes = tuple(map(grid.piece_shape, range(len(sizes))))
    notes = absent_chunks(path, stored)
    return SplitFiles(path, str(stored.dtype), grid.shape, axis, outputs, shapes, notes)


def _state(path: Path) -> list[list[Any]]:
    """Return what changes when the input is written anew."""
    files = _metadata(path) if path.is_dir() else [path]
    return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files]


def _metadata(array: Path) -> list[Path]:
    """Return the files that make a folder a zarr array."""
    files = (array / name for name in ("zarr.json", ".zarray"))
    return [file for file in files if file.is_file()]


def _refuse_other_files(outputs: Iterable[Path]) -> None:
    for output in outputs:
        if os.path.lexists(output) and not _metadata(output):
            raise InvalidArgumentError(
                f"{output} exists and is not a zarr array; it is not replaced. Fix: move it away"
            )


@contextmanager
def _claimed(workspace: Path) -> Iterator[None]:
    """Keep other processes from writing to a workspace meanwhile."""
    workspace.mkdir(parents=True, exist_ok=True)
    with (workspace / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidArgumentError(
                f"{workspace} is in use: another run writes the same pieces. "
                "Fix: wait until it ends"
            ) from None
        yield


def _prepare(workspace: Path, header: RunHeader, stored: Any, grid: BlockGrid) -> None:
    """Create the pieces and then the journal that vouches for them, unless it exists."""
    if (workspace / "journal").is_file():
        return
    try:
        for piece in range(len(grid.sizes)):
            shutil.rmtree(workspace / str(piece), ignore_errors=True)
            create_piece(workspace / str(piece), stored, grid, piece)
    except BaseException:
        shutil.rmtree(workspace, ignore_errors=True)
        raise
    create_journal(workspace / "journal", header)


def _check_same_run(workspace: Path, found: RunHeader, wanted: RunHeader) -> None:
    """Refuse to continue a run of another input or split; `run` differs in every start."""
    before, now = ({**header, **header["grid"]} for header in (found, wanted))
    for field in now:
        if field not in ("grid", "run") and before.get(field) != now[field]:
            raise InvalidArgumentError(
                f"{workspace} holds an unfinished run with {field} {_short(before.get(field))}; "
                f"this one has {_short(now[field])}. Fix: finish that run, or remove the folder"
            )


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


@contextmanager
def _executor(scheduler: str | None) -> Iterator[tuple[Executor, int]]:
    """Yield something that runs blocks, and how many blocks to hand it at a time."""
    if scheduler is None:
        threads = len(os.sched_getaffinity(0))
        with ThreadPoolExecutor(threads) as pool:
            yield pool, 2 * threads
        return
    distributed = needed("distributed", "scheduler")
    try:
        client = distributed.Client(scheduler, timeout="10s", set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise UnsupportedError(
            f"no Dask scheduler answers at {scheduler}: {describe(error)}"
        ) from None
    with client, client.get_executor(pure=False) as pool:
        _check_cluster(client)
        yield pool, max(4, 4 * sum(client.nthreads().values()))


def _check_cluster(client: Any) -> None:
    """Refuse a cluster without dmlsplit: dask workers stop when they cannot import a task."""
    # exec, because a function of dmlsplit could not even be sent to where dmlsplit is missing.
    program = "import dmlsplit.storage.worker, zarr"
    for machine, run in (("the scheduler", client.run_on_scheduler), ("a worker", client.run)):
        try:
            run(exec, program)
        except ImportError as error:
            raise UnsupportedError(f"{machine} has {describe(error)}. {ON_A_CLUSTER}") from None


def _record(journal: Journal, grid: BlockGrid, finished: Iterable[int], progress: Progress) -> None:
    """Record blocks as they finish."""
    total = prod(grid.shape) * grid.item_bytes
    done = sum(map(grid.nbytes, journal.done))
    progress(done, total)
    for index in finished:
        journal.add(index)
        done += grid.nbytes(index)
        progress(done, total)


def _in_flight(
    executor: Executor, window: int, work: Callable[[int], int], blocks: Iterable[int]
) -> Iterator[int]:
    """Yield each block when it is done; at most `window` of them are handed out at a time."""
    waiting = iter(blocks)
    pending = {executor.submit(work, block) for block in islice(waiting, window)}
    try:
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from map(_result, done)
            pending |= {executor.submit(work, block) for block in islice(waiting, len(done))}
    finally:
        for future in pending:
            future.cancel()


def _result(future: Future[int]) -> int:
    try:
        return future.result()
    except (DmlError, OSError):
        raise
    except Exception as error:  # whatever the cluster, a codec or a worker's Python raises
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        fix = f". {ON_A_CLUSTER}" if isinstance(cause, ImportError) else ""
        raise UnsupportedError(f"a block failed: {describe(cause)}{fix}") from error


def _publish(workspace: Path, outputs: Iterable[Path]) -> None:
    """Move the pieces to their names."""
    for index, output in enumerate(outputs):
        piece = workspace / str(index)
        if not piece.exists():  # it moved before an interruption
            continue
        if output.exists():
            old = workspace / f"old-{index}"
            shutil.rmtree(old, ignore_errors=True)
            output.rename(old)
        piece.rename(output)
    (workspace / "journal").unlink()
    shutil.rmtree(workspace)
