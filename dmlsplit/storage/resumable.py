"""Splits stores that are larger than memory, block by block, on threads or on a Dask cluster.

Pieces grow in the workspace of the run, with a journal of the finished blocks. They get their names
when all of them are complete. The same run, started again, continues from what it finds after an
interruption:

- No journal: pieces may be half created, so they are created anew. The journal is written
  last, and only whole.
- A journal: its blocks are done, if the files that they were read from are as they were. A block
  that was written but not recorded, or whose line is cut short, is done again, with the same
  result.
- Some pieces have their names: the rest follow.
- No workspace: the run is complete, or had not begun.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from dmlsplit.atomic import naming
from dmlsplit.checks import piece_sizes
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.interrupts import held
from dmlsplit.messages import counted
from dmlsplit.storage.blocks import BlockGrid
from dmlsplit.storage.executors import Submit, submitting
from dmlsplit.storage.journal import (
    Journal,
    RunHeader,
    check_same_run,
    create_journal,
    open_journal,
    run_header,
)
from dmlsplit.storage.marks import input_state
from dmlsplit.storage.npy import Progress, SplitFiles
from dmlsplit.storage.worker import TO_REPAIR, marks, move_block
from dmlsplit.storage.workspace import Workspace, claimed, publish
from dmlsplit.storage.zarr_arrays import (
    absent_chunks,
    create_piece,
    grid_for,
    open_stored,
)

# Blocks whose files are looked at in one task.
MARKS_AT_ONCE = 256


@held()  # zarr, too, waits for a thread of its own
def split_store(
    path: Path,
    sizes_or_count: int | Sequence[int],
    axis: int,
    folder: Path,
    *,
    overwrite: bool = False,
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
    sizes_or_count, axis, folder, overwrite, device, progress
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
        If the input is damaged or changes meanwhile, its data type has no fixed size, the
        sizes do not fit, a piece exists or would replace the input, or the folder holds an
        unfinished run of another split.
    UnsupportedError
        If zarr or dask is not installed.
    OSError
        If a file cannot be read or written.
    """
    state = input_state(path)
    stored = open_stored(path)
    axis, sizes = piece_sizes(tuple(stored.shape), sizes_or_count, axis)
    grid = grid_for(stored, axis, sizes, block_bytes)
    name = path.absolute().name.removesuffix(".zip").removesuffix(".zarr").removesuffix(".npy")
    targets = tuple(folder / f"{name}_{index}.zarr" for index in range(len(sizes)))
    header = run_header(path, "zarr", state, stored.dtype, grid)
    workspace = Workspace(folder.absolute() / f".{name}.unfinished", path, targets)
    with submitting(scheduler) as submit, claimed(workspace, overwrite):
        _prepare(workspace, header, stored, grid)
        redone = _run_blocks(workspace, header, grid, device, submit, progress)
        publish(workspace)
    shapes = tuple(map(grid.piece_shape, range(len(sizes))))
    notes = (*redone, *absent_chunks(path, stored))
    return SplitFiles(path, str(stored.dtype), grid.shape, axis, targets, shapes, notes)


def _prepare(workspace: Workspace, header: RunHeader, stored: Any, grid: BlockGrid) -> None:
    """Create the pieces and then the journal that vouches for them, unless it exists."""
    if workspace.journal.is_file():
        _check_input(workspace, header)
        for partial_file in workspace.folder.rglob("*.partial"):  # of zarr, in a killed run
            partial_file.unlink()
        return
    for piece, target in enumerate(workspace.targets):
        with naming(target):
            create_piece(workspace.draft(piece), stored, grid, piece)
    create_journal(workspace.journal, {**header, "pieces": workspace.inodes()})


def _check_input(workspace: Workspace, header: RunHeader) -> None:
    """Refuse an input that is not the one that the run began with."""
    is_repaired = (workspace.folder / TO_REPAIR).exists()
    check_same_run(workspace.journal, header, is_repaired=is_repaired)


def _run_blocks(
    workspace: Workspace,
    header: RunHeader,
    grid: BlockGrid,
    device: str,
    submit: Submit,
    progress: Progress,
) -> tuple[str, ...]:
    """Do the blocks that are not done, or are done from old files; return notes for the user."""
    with open_journal(workspace.journal, len(grid)) as journal:
        run = str(workspace.folder), journal.header["run"]
        old = _changed(journal, run, submit)
        journal.marks[old] = 0
        missing = np.flatnonzero(journal.marks == 0)
        if len(missing) and any(workspace.published()):
            raise InvalidArgumentError(
                f"{workspace.input} changed after pieces of the unfinished run in "
                f"{workspace.folder} had their names. Fix: remove that folder, start again "
                "with --overwrite"
            )
        work = partial(move_block, *run, device)
        _record(journal, grid, submit(work, map(int, missing)), progress)
        _check_input(workspace, {**header, "state": input_state(workspace.input)})
        late = _changed(journal, run, submit)
        if late:
            raise InvalidArgumentError(
                f"{workspace.input} changed while it was split: {len(late)} of {len(grid)} blocks "
                "are old. Fix: start the same run again when nothing writes to it"
            )
    if not old:
        return ()
    return (f"{counted(len(old), 'block')} of {workspace.input} had changed: done again",)


def _changed(journal: Journal, run: tuple[str, str], submit: Submit) -> list[int]:
    """Return the blocks that are done, but from files that have changed since."""
    done = np.flatnonzero(journal.marks)
    batches = (
        done[start : start + MARKS_AT_ONCE].tolist() for start in range(0, len(done), MARKS_AT_ONCE)
    )
    found = submit(partial(marks, *run), batches)
    return [block for batch in found for block, mark in batch if journal.marks[block] != mark]


def _record(
    journal: Journal, grid: BlockGrid, finished: Iterable[tuple[int, int]], progress: Progress
) -> None:
    """Record blocks as they finish."""
    total = prod(grid.shape) * grid.item_bytes
    done = sum(map(grid.nbytes, np.flatnonzero(journal.marks).tolist()))
    progress(done, total)
    for block, mark in finished:
        journal.add(block, mark)
        done += grid.nbytes(block)
        progress(done, total)
