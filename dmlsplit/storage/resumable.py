"""Splits stores larger than memory, block by block, in runs that can be resumed."""

from collections.abc import Sequence
from functools import partial
from math import prod
from pathlib import Path

import numpy as np

from dmlsplit.atomic import naming
from dmlsplit.checks import piece_sizes
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.geometry import piece_shapes
from dmlsplit.interrupts import held
from dmlsplit.messages import counted
from dmlsplit.storage.executors import Submit, submitting
from dmlsplit.storage.journal import Journal, Run, check_unchanged, input_mark, open_journal
from dmlsplit.storage.npy import Progress, SplitFiles
from dmlsplit.storage.worker import marks, move_block
from dmlsplit.storage.workspace import Workspace, claimed
from dmlsplit.storage.zarr_arrays import absent_chunks, create_piece, grid_for, open_stored

MARKS_AT_ONCE = 256  # the blocks whose files one task checks


@held()  # because zarr also waits for a thread of its own
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

    Arguments and errors are those of `split_file`. Pieces keep the format (2 or 3), codecs, fill
    value and attributes of a zarr array, and its chunks if they are large enough. `scheduler` is
    the address of a running Dask cluster, whose workers must all see `path` and `folder` under the
    same names; None uses threads. A block has `block_bytes`, by default 8 MiB, or one chunk if that
    is larger; each thread needs about five times that. InvalidArgumentError also: the input is
    damaged, its elements have no fixed size, or another split is unfinished. UnsupportedError: zarr
    or dask is missing.
    """
    mark = input_mark(path)
    stored = open_stored(path)
    axis, sizes = piece_sizes(tuple(stored.shape), sizes_or_count, axis)
    grid = grid_for(stored, axis, sizes, block_bytes)
    shapes = piece_shapes(grid.shape, axis, sizes)
    name = path.absolute().name.removesuffix(".zip").removesuffix(".zarr").removesuffix(".npy")
    targets = tuple(folder / f"{name}_{index}.zarr" for index in range(len(sizes)))
    run = Run(str(path.absolute()), "zarr", grid, mark)
    workspace = Workspace(folder.absolute() / f".{name}.unfinished", path, targets)
    with submitting(scheduler) as submit, claimed(workspace, run, overwrite) as notes:
        if not workspace.journal.is_file():
            for piece, target in enumerate(targets):
                with naming(target):
                    create_piece(workspace.draft(piece), stored, shapes[piece], grid, piece)
            workspace.vouch(run)
        with open_journal(workspace.journal) as journal:
            redone = _run_blocks(workspace, journal, device, submit, progress)
            check_unchanged(path, mark)
    notes = (*notes, *redone, *absent_chunks(path, stored))
    return SplitFiles(path, str(stored.dtype), grid.shape, axis, targets, shapes, notes)


def _run_blocks(
    workspace: Workspace, journal: Journal, device: str, submit: Submit, progress: Progress
) -> tuple[str, ...]:
    """Run the blocks that are missing or were read from old files; return notes for the user."""
    old = _changed(workspace, journal, submit)
    if old or not journal.marks.all():
        workspace.check_unpublished()
    for partial_file in workspace.folder.rglob("*.partial"):  # from zarr, in a killed run
        partial_file.unlink()
    # If the old files came back, a half-rewritten block would otherwise count as done.
    for block in old:
        journal.record(block, 0)
    work = partial(move_block, str(workspace.folder), journal.run.name, device)
    missing = map(int, np.flatnonzero(journal.marks == 0))
    grid = journal.run.grid
    total = prod(grid.shape) * grid.item_bytes
    done = sum(map(grid.nbytes, np.flatnonzero(journal.marks).tolist()))
    progress(done, total)
    for block, mark in submit(work, missing):
        journal.record(block, mark)
        done += grid.nbytes(block)
        progress(done, total)
    late = len(_changed(workspace, journal, submit))
    if late:
        raise InvalidArgumentError(
            f"{workspace.input} changed while it was split: {late} of {len(journal.marks)} blocks "
            "are outdated. Fix: run the same command again when nothing writes to it"
        )
    again = f"{counted(len(old), 'block')} of {workspace.input} had changed and were split again"
    return (again,) if old else ()


def _changed(workspace: Workspace, journal: Journal, submit: Submit) -> list[int]:
    """The blocks whose recorded mark differs from the mark of their files now."""
    done = np.flatnonzero(journal.marks)
    starts = range(0, len(done), MARKS_AT_ONCE)
    batches = (done[start : start + MARKS_AT_ONCE].tolist() for start in starts)
    found = submit(partial(marks, str(workspace.folder), journal.run.name), batches)
    return [block for batch in found for block, mark in batch if journal.marks[block] != mark]
