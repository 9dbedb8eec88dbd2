"""Splits stores that are larger than memory, block by block, on threads or on a Dask cluster.

Pieces grow in a hidden folder beside their final places, with a journal of the finished
blocks. They move to their names when all of them are complete. An interrupted run leaves
the folder; the same run, started again, does only what is missing.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from dmlsplit.checks import piece_sizes
from dmlsplit.errors import DmlError, InvalidArgumentError, UnsupportedError
from dmlsplit.storage.blocks import BlockGrid
from dmlsplit.storage.journal import Journal, create_journal
from dmlsplit.storage.npy import SplitFiles, split_file
from dmlsplit.storage.worker import move_block
from dmlsplit.storage.zarr_arrays import (
    absent_chunks,
    create_piece,
    describe,
    is_store,
    needed,
    open_source,
    plan_for,
)

ON_A_CLUSTER = 'Fix: pip install "dmlsplit[dask]" where the scheduler and every worker run'
Progress = Callable[[int, int], None]


def split_path(
    source: Path,
    sizes_or_count: Any,
    axis: int,
    folder: Path,
    *,
    kind: str | None = None,
    device: str = "cpu",
    scheduler: str | None = None,
    block_bytes: int | None = None,
    progress: Progress = lambda done, total: None,
) -> SplitFiles:
    """Split a file or a store into pieces of its own kind, or of `kind`: ``npy`` or ``zarr``.

    `split_file` and `split_store` describe parameters and errors.
    """
    store = is_store(source)
    if kind == "zarr" or (kind is None and store):
        return split_store(
            source,
            sizes_or_count,
            axis,
            folder,
            device,
            scheduler=scheduler,
            block_bytes=block_bytes,
            progress=progress,
        )
    if store:
        raise InvalidArgumentError(f"{source} is split into zarr only. Fix: --format zarr")
    for option, value in (("--scheduler", scheduler), ("--block-bytes", block_bytes)):
        if value is not None:
            raise InvalidArgumentError(f"{option} is for zarr pieces only. Fix: --format zarr")
    return split_file(source, sizes_or_count, axis, folder, device=device, progress=progress)


def split_store(
    source: Path,
    sizes_or_count: Any,
    axis: int,
    folder: Path,
    device: str = "cpu",
    *,
    scheduler: str | None = None,
    block_bytes: int | None = None,
    progress: Progress = lambda done, total: None,
) -> SplitFiles:
    """Split a zarr array or a .npy file into zarr arrays ``NAME_0.zarr``, ``NAME_1.zarr``, ...

    Parameters
    ----------
    source
        A zarr array, format 2 or 3, or a .npy file. Pieces keep the format, codecs, fill
        value and attributes of a zarr array, and its chunks where they are large enough.
    sizes_or_count, axis
        As in `dmlsplit.split`.
    folder
        Where the pieces go; it is made if it does not exist. On a cluster every worker must
        see it, and `source`, under the same path.
    device
        ``"cpu"`` or ``"cuda:N"``.
    scheduler
        Address of a running Dask cluster; None uses threads of this process.
    block_bytes
        How much of the source to read at a time, in bytes; None means 8 MiB. A thread holds
        about five times as much. Chunks larger than that are read whole.
    progress
        Called with the bytes done and the bytes in all after each block.

    Raises
    ------
    InvalidArgumentError
        If the source is damaged, its data type has no fixed size, the sizes do not fit, or
        the folder holds an unfinished run of another split.
    UnsupportedError
        If zarr or dask is not installed.
    OSError
        If a file cannot be read or written.
    """
    array = open_source(source)
    axis, sizes = piece_sizes(tuple(array.shape), sizes_or_count, axis)
    plan = plan_for(array, axis, sizes, block_bytes)
    name = _stem(source.absolute())
    targets = tuple(folder / f"{name}_{index}.zarr" for index in range(len(sizes)))
    _refuse_other_targets(targets)
    draft = folder.absolute() / f".{name}.unfinished"
    header = {
        "source": str(source.absolute()),
        "state": _state(source),
        "data_type": array.dtype.str,
        **_fields(plan),
    }
    with _executor(scheduler) as (executor, window), _claimed(draft):
        _prepare(draft, header, array, plan)
        with Journal(draft / "journal") as journal:
            _check_same_run(draft, journal.header, header)
            work = partial(move_block, str(draft), journal.header["run"], device)
            _run(journal, plan, work, executor, window, progress)
        _publish(draft, targets)
    shapes = tuple((*plan.shape[:axis], size, *plan.shape[axis + 1 :]) for size in sizes)
    notes = absent_chunks(source, array)
    return SplitFiles(source, str(array.dtype), plan.shape, axis, targets, shapes, notes)


def _stem(source: Path) -> str:
    return source.name.removesuffix(".zip").removesuffix(".zarr").removesuffix(".npy")


def _state(source: Path) -> list[Any]:
    """Return what changes when the source is written anew."""
    names = ("zarr.json", ".zarray") if source.is_dir() else ("",)
    files = [source / name for name in names if (source / name).is_file()]
    return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files]


def _fields(plan: BlockGrid) -> dict[str, Any]:
    """Return a plan as JSON has it."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(plan).items()}


def _refuse_other_targets(targets: Iterable[Path]) -> None:
    for target in targets:
        array = (target / "zarr.json").is_file() or (target / ".zarray").is_file()
        if os.path.lexists(target) and not array:
            raise InvalidArgumentError(
                f"{target} exists and is no zarr array; it is not replaced. Fix: move it away"
            )


@contextmanager
def _claimed(draft: Path) -> Iterator[None]:
    """Hold the folder of a run; no other process writes to it meanwhile."""
    draft.mkdir(parents=True, exist_ok=True)
    with (draft / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidArgumentError(
                f"{draft} is in use: another run writes the same pieces. Fix: wait for its end"
            ) from None
        yield


def _prepare(draft: Path, header: dict[str, Any], array: Any, plan: BlockGrid) -> None:
    """Create the pieces, unless an earlier run did. The journal comes last: it vouches for them."""
    if (draft / "journal").is_file():
        return
    try:
        for piece in range(len(plan.sizes)):
            shutil.rmtree(draft / str(piece), ignore_errors=True)
            create_piece(draft / str(piece), array, plan, piece)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    create_journal(draft / "journal", {**header, "run": uuid.uuid4().hex})


def _check_same_run(draft: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for field, value in wanted.items():
        if found.get(field) != value:
            raise InvalidArgumentError(
                f"{draft} holds an unfinished run with {field} {_short(found.get(field))}; this "
                f"one has {_short(value)}. Fix: finish that run, or remove the folder"
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
    distributed = needed("distributed", "--scheduler")
    try:
        client = distributed.Client(scheduler, timeout="10s", set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise UnsupportedError(
            f"no Dask scheduler answers at {scheduler}: {describe(error)}"
        ) from None
    with client, client.get_executor(pure=False) as pool:
        _check_workers(client)
        yield pool, max(4, 4 * sum(client.nthreads().values()))


def _check_workers(client: Any) -> None:
    """Refuse workers without dmlsplit: dask workers stop when they cannot import a task."""
    try:
        client.run(exec, "import dmlsplit.storage.worker, zarr")
    except ImportError as error:
        raise UnsupportedError(f"a worker has {describe(error)}. {ON_A_CLUSTER}") from None


def _run(
    journal: Journal,
    plan: BlockGrid,
    work: Callable[[int], int],
    executor: Executor,
    window: int,
    progress: Progress,
) -> None:
    total = prod(plan.shape) * plan.item_bytes
    done = sum(_bytes(plan, index) for index in journal.done)
    progress(done, total)
    missing = (index for index in range(len(plan)) if index not in journal.done)
    for index in _in_flight(executor, window, work, missing):
        journal.add(index)
        done += _bytes(plan, index)
        progress(done, total)


def _bytes(plan: BlockGrid, index: int) -> int:
    return prod(plan[index].shape) * plan.item_bytes


def _in_flight(
    executor: Executor, window: int, work: Callable[[int], int], blocks: Iterable[int]
) -> Iterator[int]:
    """Yield each block when it is done; at most `window` of them are handed out at a time."""
    pending: set[Future[int]] = set()
    try:
        for block in blocks:
            pending.add(executor.submit(work, block))
            if len(pending) >= window:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from map(_result, done)
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from map(_result, done)
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
        fix = ""
        if "deserializ" in str(error) or isinstance(cause, ImportError):
            fix = f". {ON_A_CLUSTER}"
        raise UnsupportedError(f"a block failed: {describe(cause)}{fix}") from error


def _publish(draft: Path, targets: Iterable[Path]) -> None:
    """Move the pieces to their names. Interrupted, it is taken up again as well."""
    for index, target in enumerate(targets):
        piece = draft / str(index)
        if not piece.exists():
            continue
        if target.exists():
            old = draft / f"old-{index}"
            if old.exists():
                shutil.rmtree(old)
            target.rename(old)
        piece.rename(target)
    (draft / "journal").unlink()
    shutil.rmtree(draft)
