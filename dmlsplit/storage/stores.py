"""Splits arrays on disk into zarr arrays through dask, on threads or on a cluster."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from operator import mul
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from dmlsplit.errors import InvalidArgumentError, path_in_errors
from dmlsplit.geometry import ceil_div, pieces_in
from dmlsplit.in_memory import split
from dmlsplit.interrupts import delay_interrupts
from dmlsplit.storage.files import Progress, SplitFiles, input_fingerprint, pieces_of
from dmlsplit.storage.npy_file import open_npy
from dmlsplit.storage.schedulers import compute_context
from dmlsplit.storage.zarr_arrays import (
    NamedArray,
    box,
    chunk_of,
    create_piece,
    import_extra,
    is_store,
    open_store,
)

# A block is small enough that each thread gets a dozen, and large enough that its copy takes longer
# than the overhead of its task.
BLOCK_BYTES = 4 << 20


@delay_interrupts()  # dask and zarr wait for their own threads, and would leave locks taken
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
    fingerprint = input_fingerprint(path)
    with path_in_errors(path):
        # Workers of a cluster open a .npy file themselves, from other current folders.
        absolute = path.absolute()
        array = open_store(path) if is_store(path) else replace(open_npy(path), path=absolute)
    block = _block(array, BLOCK_BYTES if block_bytes is None else block_bytes)
    name = path.absolute().name.removesuffix(".zip").removesuffix(".zarr").removesuffix(".npy")
    size = prod(array.shape) * array.dtype.itemsize
    pieces = pieces_of(
        path, fingerprint, array, sizes_or_count, axis, folder, name, ".zarr", overwrite
    )
    with compute_context(scheduler) as compute, pieces as (done, drafts):
        arrays = [
            create_piece(draft, target, array, shape, done.axis)
            for draft, target, shape in zip(drafts, done.paths, done.shapes, strict=True)
        ]
        source = NamedArray(path, array)
        copies = BlockCopies(source, block, done.axis, (0, *accumulate(done.sizes)), tuple(arrays))
        if size:
            compute(_tasks(copies), lambda count, total: progress(size * count // total, size))
    return done


@dataclass(frozen=True)
class BlockCopies:
    """Copies each block of an array into the chunks of its pieces that begin in the block.

    The last of these chunks may extend into the next block, whose beginning is then read twice. The
    benefit: no two blocks write the same chunk, and none needs data of another, so Dask may run
    them in any order, and the memory of a task does not depend on the array.
    """

    source: NamedArray
    block: tuple[int, ...]
    axis: int
    starts: tuple[int, ...]  # of the pieces along the axis, and the end of the last one
    pieces: tuple[NamedArray, ...]

    def copy(self, index: tuple[int, ...]) -> None:
        """Copy the block at an index of the grid of blocks."""
        block, shape = self.block, self.source.array.shape
        sides = [
            slice(i * n, min(i * n + n, s)) for i, n, s in zip(index, block, shape, strict=True)
        ]
        parts = [*self._parts(sides[self.axis].start, sides[self.axis].stop)]
        if not parts:
            return

        def region(begin: int, end: int) -> tuple[slice, ...]:
            return *sides[: self.axis], slice(begin, end), *sides[self.axis + 1 :]

        values = self.source[region(parts[0][1], parts[-1][2])]
        sizes = tuple(end - begin for _, begin, end in parts)
        for (piece, begin, end), part in zip(parts, split(values, sizes, self.axis), strict=True):
            start = self.starts[piece]
            self.pieces[piece][region(begin - start, end - start)] = part

    def _parts(self, low: int, high: int) -> Iterator[tuple[int, int, int]]:
        """The pieces with chunks that begin from `low` to `high`, and where those begin and end."""
        for piece, *_ in pieces_in(self.starts, low, high):
            start, end = self.starts[piece : piece + 2]
            chunk = chunk_of(self.pieces[piece].array)[self.axis]
            begin, end = (
                min(end, start + ceil_div(max(0, limit - start), chunk) * chunk)
                for limit in (low, high)
            )
            if begin < end:
                yield piece, begin, end


def _copy(number: np.ndarray, copies: BlockCopies, block_id: tuple[int, ...]) -> np.ndarray:
    copies.copy(block_id)
    return number


def _tasks(copies: BlockCopies) -> Any:
    """A Dask collection with one task per block."""
    da: Any = import_extra("dask.array", "a zarr store")
    dask: Any = import_extra("dask", "a zarr store")
    grid = tuple(map(ceil_div, copies.source.array.shape, copies.block))
    numbers = da.zeros(grid, chunks=1, dtype="i1")
    # As one object, `copies` is sent to a worker once, not with each task.
    shared = dask.delayed(copies, name=f"dml-copies-{uuid4().hex}", traverse=False)
    return numbers.map_blocks(_copy, shared, dtype=numbers.dtype, meta=np.empty(0, numbers.dtype))


def _block(array: Any, block_bytes: int) -> tuple[int, ...]:
    """The shape of a block of whole chunks, those along the innermost dimensions first."""
    if block_bytes < 1:
        raise InvalidArgumentError(f"block_bytes is {block_bytes}; it must be at least 1")
    chunk = chunk_of(array)
    counts = tuple(map(ceil_div, array.shape, chunk))
    return tuple(map(mul, chunk, box(counts, prod(chunk) * array.dtype.itemsize, block_bytes)))
