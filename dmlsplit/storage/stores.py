"""Splits arrays on disk into zarr arrays through dask, on threads or on a cluster."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from operator import mul
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from dmlsplit.errors import InvalidArgumentError, file_errors
from dmlsplit.geometry import ceil_div
from dmlsplit.interrupts import delay_interrupts
from dmlsplit.storage.files import Progress, SplitFiles, input_mark, pieces_of
from dmlsplit.storage.npy_file import open_npy
from dmlsplit.storage.schedulers import compute_context
from dmlsplit.storage.zarr_arrays import (
    NamedArray,
    box,
    chunk_of,
    create_piece,
    is_store,
    needed,
    open_store,
)

# Small enough for a dozen blocks per thread, large enough that a block costs more than its task.
BLOCK_BYTES = 4 << 20


@delay_interrupts()  # because dask and zarr wait for threads of their own
def split_store(
    path: Path,
    sizes_or_count: int | Sequence[int],
    axis: int,
    folder: Path,
    *,
    overwrite: bool = False,
    scheduler: str | None = None,
    block_bytes: int | None = None,
    progress: Progress = lambda done, total: None,
) -> SplitFiles:
    """Split a zarr array or a .npy file into zarr arrays ``NAME_0.zarr``, ``NAME_1.zarr``, ...

    Arguments and errors are those of `split_file`, and these. Pieces keep the format (2 or 3),
    codecs, chunks, fill value and attributes of a zarr array.

    Parameters
    ----------
    scheduler
        The address of a running Dask cluster, whose workers must all see `path` and `folder` under
        the same names; None uses threads.
    block_bytes
        The most bytes of a block, which has whole chunks; by default 4 MiB. A chunk that is larger
        is a block.

    Raises
    ------
    InvalidArgumentError
        If the input is damaged, or its elements have no fixed size.
    UnsupportedError
        If zarr or dask is missing, no scheduler answers, or a block fails.
    """
    mark = input_mark(path)
    with file_errors(path):
        # Workers of a cluster open a .npy file themselves, from other current folders.
        absolute = path.absolute()
        stored = open_store(path) if is_store(path) else replace(open_npy(path), path=absolute)
    block = _block(stored, BLOCK_BYTES if block_bytes is None else block_bytes)
    name = path.absolute().name.removesuffix(".zip").removesuffix(".zarr").removesuffix(".npy")
    size = prod(stored.shape) * stored.dtype.itemsize
    pieces = pieces_of(path, mark, stored, sizes_or_count, axis, folder, name, ".zarr", overwrite)
    with compute_context(scheduler) as compute, pieces as (done, drafts):
        arrays = [
            create_piece(draft, target, stored, shape, done.axis)
            for draft, target, shape in zip(drafts, done.paths, done.shapes, strict=True)
        ]
        source = NamedArray(path, stored, done.shape, stored.dtype)
        writes = _writes(source, block, done.sizes, done.axis, arrays)
        compute(writes, lambda count, total: progress(size * count // total, size))
    return done


def _writes(
    source: NamedArray,
    block: tuple[int, ...],
    sizes: Sequence[int],
    axis: int,
    targets: Sequence[NamedArray],
) -> Sequence[Any]:
    """Dask collections that write the pieces. No two of their tasks write the same chunk."""
    da: Any = needed("dask.array", "a zarr store")
    from dmlsplit.frameworks.dask import split_dask  # imports dask

    name = f"dml-input-{uuid4().hex}"
    lazy = da.from_array(source, block, name, meta=np.empty(0, source.dtype))
    pieces = [piece.rechunk(block) for piece in split_dask(lazy, sizes, axis)]
    writes = da.store(pieces, targets, lock=False, compute=False)
    return writes if isinstance(writes, tuple) else (writes,)


def _block(stored: Any, block_bytes: int) -> tuple[int, ...]:
    """The shape of a block of whole chunks, those along the innermost dimensions first."""
    if block_bytes < 1:
        raise InvalidArgumentError(f"block_bytes is {block_bytes}; it must be at least 1")
    chunk = chunk_of(stored)
    counts = tuple(map(ceil_div, stored.shape, chunk))
    return tuple(map(mul, chunk, box(counts, prod(chunk) * stored.dtype.itemsize, block_bytes)))
