"""Splits .npy files of any size, block by block, into pieces that appear together."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from io import FileIO
from itertools import accumulate, product
from math import prod
from pathlib import Path

import numpy as np

from dmlsplit.arrays import to_device, to_host
from dmlsplit.atomic import check_space, name_in_errors
from dmlsplit.geometry import pieces_in
from dmlsplit.in_memory import split
from dmlsplit.storage.files import Progress, SplitFiles, input_fingerprint, pieces_of
from dmlsplit.storage.npy_file import NpyFile, npy_header, open_npy, write
from dmlsplit.system import allow_open_files

# On the CPU, a block and its parts should stay in the second-level cache: blocks of 1 MiB were a
# third faster than blocks of 32 MiB. Every part costs a call, so blocks are larger for many pieces
# and for a GPU.
BLOCK_BYTES = 1 << 20
PIECES_PER_BLOCK = 32
MAX_BLOCKS = 32
OTHER_FILES = 128  # that a process may have open besides the pieces

Pieces = Sequence[tuple[FileIO, Path]]  # the draft of each, and the file that it becomes


def split_file(
    path: Path,
    sizes_or_count: int | Sequence[int],
    axis: int,
    folder: Path,
    *,
    overwrite: bool = False,
    device: str = "cpu",
    progress: Progress = lambda done, total: None,
) -> SplitFiles:
    """Split ``NAME.npy`` into ``NAME_0.npy``, ``NAME_1.npy``, ... in a folder.

    The pieces get their names when all are complete; the folder is created if needed. `device` is
    ``"cpu"`` or ``"cuda:N"``. After each block, `progress` is called with the bytes done and the
    total.

    Raises
    ------
    InvalidArgumentError
        If the file is not a .npy file, the sizes do not fit, a piece exists (unless `overwrite`) or
        is the input, or the input changes during the run.
    OSError
        If a file cannot be read or written; the error names it.
    OutOfMemoryError
        If a block does not fit in the memory of the device.
    """
    fingerprint, source = input_fingerprint(path), open_npy(path)
    run = pieces_of(
        path, fingerprint, source, sizes_or_count, axis, folder, path.stem, ".npy", overwrite
    )
    with run as (done, drafts):
        check_space(folder, source.size_in_bytes)
        with ExitStack() as files:  # Windows cannot rename open files
            pieces = _begin_pieces(source, drafts, done, files)
            _write_pieces(source, pieces, done.axis, done.sizes, device, progress)
    return done


def _begin_pieces(
    source: NpyFile, drafts: Sequence[Path], split_files: SplitFiles, files: ExitStack
) -> Pieces:
    """Create the drafts of the pieces with their headers; `files` closes them."""
    allow_open_files(len(drafts) + OTHER_FILES)
    pieces = []
    for draft, target, shape in zip(drafts, split_files.paths, split_files.shapes, strict=True):
        with name_in_errors(target):
            file = files.enter_context(FileIO(draft, "x"))
        write(file, target, npy_header(shape, source.is_fortran, source.dtype))
        pieces.append((file, target))
    return pieces


def _write_pieces(
    source: NpyFile,
    pieces: Pieces,
    axis: int,
    sizes: Sequence[int],
    device: str,
    progress: Progress,
) -> None:
    """Split the rows of the file as bytes; `stored_shape` is in the order of the file."""
    shape = source.stored_shape
    axis = len(shape) - 1 - axis if source.is_fortran else axis
    step = prod(shape[axis + 1 :]) * source.dtype.itemsize
    starts = [0, *accumulate(size * step for size in sizes)]
    blocks = 1 + len(sizes) // PIECES_PER_BLOCK if device == "cpu" else MAX_BLOCKS
    limit = BLOCK_BYTES * min(blocks, MAX_BLOCKS)
    block, done = np.empty(min(limit, source.size_in_bytes), np.uint8), 0
    with source.open() as file:
        for rows, low, high in row_blocks(prod(shape[:axis]), starts[-1], limit):
            values = block[: rows * (high - low)].reshape(rows, -1)
            source.read_into(values, file)
            parts = list(pieces_in(starts, low, high))
            widths = tuple(end - begin for _, begin, end in parts)
            split_values = split(to_device(values, device), widths, 1)
            for (piece, _, _), part in zip(parts, split_values, strict=True):
                write(*pieces[piece], to_host(part))
            done += values.nbytes
            progress(done, source.size_in_bytes)
    for written, target in pieces:
        with name_in_errors(target):
            os.fsync(written.fileno())


def row_blocks(rows: int, pitch: int, limit: int) -> Iterator[tuple[int, int, int]]:
    """Blocks of at most `limit` bytes, in order: the number of rows, and their columns.

    A block has whole rows, or a part of one row, so it is one run of the file and of each piece.
    """
    if pitch:
        height, length = max(1, limit // pitch), min(pitch, limit)
        for row, low in product(range(0, rows, height), range(0, pitch, length)):
            yield min(height, rows - row), low, min(low + length, pitch)
