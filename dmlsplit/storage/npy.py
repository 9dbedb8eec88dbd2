"""Splits .npy files of any size, block by block, into pieces that appear together.

Blocks are read by system calls. A memory map would count the whole file as memory of the process,
and a disk error, or an input that shrinks, would end the process with a signal.
"""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from io import FileIO
from itertools import accumulate, product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from dmlsplit.arrays import to_device, to_host
from dmlsplit.checks import piece_sizes
from dmlsplit.errors import InvalidArgumentError, path_in_errors
from dmlsplit.execution.in_memory import split
from dmlsplit.files.atomic import check_space, hidden_folder, name_in_errors, refuse_inputs
from dmlsplit.files.npy_header import NpyHeader, npy_header, read_npy_header
from dmlsplit.geometry import piece_shapes, pieces_in
from dmlsplit.system import allow_open_files

# A function that is called with the bytes that are done, and the total.
Progress = Callable[[int, int], None]
# For each piece, an open draft, and the file that it becomes.
Pieces = Sequence[tuple[FileIO, Path]]

# On the CPU, a block and its parts should stay in the second-level cache: blocks of 1 MiB were a
# third faster than blocks of 32 MiB. Every part costs a call, so blocks are larger for many pieces
# and for a GPU.
BLOCK_BYTES = 1 << 20
PIECES_PER_BLOCK = 32
MAX_BLOCKS = 32
# The files that a process may have open besides the pieces.
OTHER_FILES = 128


@dataclass(frozen=True, slots=True)
class SplitFiles:
    """The result of a run, with the paths and shapes of the pieces in order."""

    dtype: str
    # The shape of the input.
    shape: tuple[int, ...]
    # The axis, counted from the front.
    axis: int
    paths: tuple[Path, ...]
    shapes: tuple[tuple[int, ...], ...]


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
    fingerprint = _fingerprint(path)
    header = _read_header(path)
    axis, sizes = piece_sizes(header.shape, sizes_or_count, axis)
    shapes = piece_shapes(header.shape, axis, sizes)
    targets = tuple(folder / f"{path.stem}_{index}.npy" for index in range(len(sizes)))
    for target in targets:
        _check_target(target, path, overwrite)
    # A signal during an import ends the process at once, so import before anything is written.
    split(to_device(np.empty(1, np.uint8), device), 1, 0)
    folder.mkdir(parents=True, exist_ok=True)
    check_space(folder, header.size_in_bytes)
    with hidden_folder(folder) as hidden:
        # With their final names, of which the file system refuses one that is too long before
        # anything is copied.
        drafts = [hidden / target.name for target in targets]
        try:
            with ExitStack() as files:  # Windows cannot rename open files
                pieces = _begin(drafts, targets, shapes, header, files)
                _copy(path, header, axis, sizes, pieces, device, progress)
            if _fingerprint(path) != fingerprint:
                raise InvalidArgumentError(
                    f"{path} changed while it was split; no piece was written. "
                    "Fix: run the same command again when nothing writes to it"
                )
        except KeyboardInterrupt as stop:
            stop.add_note("the same command starts over")
            raise
        _publish(drafts, targets)
    return SplitFiles(str(header.dtype), header.shape, axis, targets, shapes)


def _fingerprint(path: Path) -> tuple[int, int, int]:
    """The inode, size and time of a regular file; if they differ later, the file has changed.

    They do not show changes through a memory map, or within a tick of the clock.
    """
    with name_in_errors(path), path_in_errors(path):
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # to open a pipe would wait for its writer
            raise InvalidArgumentError("is not a regular file. Fix: copy its bytes to one")
    return status.st_ino, status.st_size, status.st_mtime_ns


def _read_header(path: Path) -> NpyHeader:
    """The header of a file that is long enough for it."""
    with name_in_errors(path), path_in_errors(path):
        with path.open("rb") as file:
            header = read_npy_header(file)
            size = os.fstat(file.fileno()).st_size
        needed = header.offset + header.size_in_bytes
        if size < needed:
            raise InvalidArgumentError(
                f"has {size} bytes; its header says {needed}. Fix: copy the file again"
            )
    return header


def _check_target(target: Path, source: Path, overwrite: bool) -> None:
    """Refuse to replace the input, or any other file without `overwrite`."""
    refuse_inputs(target, [source])
    if not os.path.lexists(target):
        return
    if not target.is_file() and not target.is_symlink():
        raise InvalidArgumentError(
            f"{target} exists and is not a regular file; it is not replaced. Fix: move it away"
        )
    if not overwrite:
        raise InvalidArgumentError(
            f"{target} exists; it is not replaced. Fix: add --overwrite, or name another folder"
        )


def _begin(
    drafts: Sequence[Path],
    targets: Sequence[Path],
    shapes: Sequence[tuple[int, ...]],
    header: NpyHeader,
    files: ExitStack,
) -> Pieces:
    """Create the drafts with their headers; `files` closes them."""
    allow_open_files(len(drafts) + OTHER_FILES)
    pieces = []
    for draft, target, shape in zip(drafts, targets, shapes, strict=True):
        with name_in_errors(target):
            file = files.enter_context(FileIO(draft, "x"))
            write(file, npy_header(shape, header.fortran_order, header.dtype))
        pieces.append((file, target))
    return pieces


def _copy(
    path: Path,
    header: NpyHeader,
    axis: int,
    sizes: Sequence[int],
    pieces: Pieces,
    device: str,
    progress: Progress,
) -> None:
    """Split the elements as rows of bytes, of which each piece has the same columns."""
    row_count, starts = _row_layout(header, axis, sizes)
    limit = _block_bytes(len(sizes), device)
    block = np.empty(min(limit, header.size_in_bytes), np.uint8)
    bytes_done = 0
    with name_in_errors(path):
        source = FileIO(path)
    with source:
        source.seek(header.offset)
        for rows, low, high in row_blocks(row_count, starts[-1], limit):
            values = block[: rows * (high - low)].reshape(rows, -1)
            read_into(values, source, path)
            parts = list(pieces_in(starts, low, high))
            widths = tuple(end - begin for _, begin, end in parts)
            split_values = split(to_device(values, device), widths, 1)
            for (piece, _, _), part in zip(parts, split_values, strict=True):
                draft, target = pieces[piece]
                with name_in_errors(target):
                    write(draft, to_host(part))
            bytes_done += values.nbytes
            progress(bytes_done, header.size_in_bytes)
    _sync(pieces)


def _block_bytes(piece_count: int, device: str) -> int:
    """The most bytes of a block."""
    blocks = 1 + piece_count // PIECES_PER_BLOCK if device == "cpu" else MAX_BLOCKS
    return BLOCK_BYTES * min(blocks, MAX_BLOCKS)


def _row_layout(header: NpyHeader, axis: int, sizes: Sequence[int]) -> tuple[int, list[int]]:
    """The number of rows, and the column at which each piece begins, with the end of a row."""
    shape = header.shape
    if header.fortran_order:
        shape = shape[::-1]
        axis = len(shape) - 1 - axis
    step = prod(shape[axis + 1 :]) * header.dtype.itemsize
    return prod(shape[:axis]), [0, *accumulate(size * step for size in sizes)]


def _sync(pieces: Pieces) -> None:
    """Wait until the pieces are on disk."""
    for draft, target in pieces:
        with name_in_errors(target):
            os.fsync(draft.fileno())


def row_blocks(rows: int, pitch: int, limit: int) -> Iterator[tuple[int, int, int]]:
    """Blocks of at most `limit` bytes, in order: the number of rows, and their columns.

    A block has whole rows, or a part of one row, so it is one run of the file and of each piece.
    """
    if pitch:
        height = max(1, limit // pitch)
        length = min(pitch, limit)
        for row, low in product(range(0, rows, height), range(0, pitch, length)):
            yield min(height, rows - row), low, min(low + length, pitch)


def read_into(values: np.ndarray, file: FileIO, path: Path) -> None:
    """Fill a contiguous array with the next bytes of a file."""
    unread = values.reshape(-1).data
    with name_in_errors(path):
        while unread:
            count = file.readinto(unread)
            if not count:
                end = file.tell()
                raise InvalidArgumentError(
                    f"{path} became shorter while it was read: it has {end:,} bytes; it must have "
                    f"at least {end + len(unread):,}. Fix: split it while nothing writes to it"
                )
            unread = unread[count:]


def write(file: FileIO, data: Any) -> None:
    """Write contiguous bytes."""
    unwritten = memoryview(data).cast("B")
    while unwritten:
        unwritten = unwritten[file.write(unwritten) :]


def _publish(drafts: Sequence[Path], targets: Sequence[Path]) -> None:
    """Give all pieces their names. If that stops halfway, the error says how many have them."""
    try:
        for draft, target in zip(drafts, targets, strict=True):
            with name_in_errors(target):
                draft.replace(target)
    except (OSError, KeyboardInterrupt) as error:
        moved = sum(not draft.exists() for draft in drafts)
        state = f"{moved} of {len(drafts)} pieces are in place"
        state += ". Fix: run the same command again with --overwrite"
        if isinstance(error, KeyboardInterrupt):
            error.add_note(state)
            raise
        raise OSError(error.errno, f"{error.strerror}; {state}", error.filename) from None
