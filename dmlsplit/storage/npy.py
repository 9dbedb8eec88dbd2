"""Splits .npy files of any size: mapped, block by block, complete or not at all.

A .npy file is packed, so its split is a `RowSplit`: rows of bytes, cut at the same columns.
Blocks of rows pass through memory; a row that is larger than a block passes in runs.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from dmlsplit.arrays.npy_header import read_npy_header
from dmlsplit.atomic import new_draft
from dmlsplit.checks import piece_sizes
from dmlsplit.eager import split
from dmlsplit.errors import InvalidArgumentError, UnsupportedError, about
from dmlsplit.geometry import RowSplit, packed_byte_strides, split_geometry
from dmlsplit.storage.transfer import split_on

BLOCK_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class SplitFiles:
    """What a run wrote.

    Attributes
    ----------
    source : Path
        The file that was split.
    dtype : str
        Its data type.
    shape : tuple of int
        Its shape.
    axis : int
        The axis, counted from the front.
    paths : tuple of Path
        The pieces, in order.
    shapes : tuple of tuple of int
        Their shapes.
    notes : tuple of str
        What the user should know about the source.
    """

    source: Path
    dtype: str
    shape: tuple[int, ...]
    axis: int
    paths: tuple[Path, ...]
    shapes: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...] = ()


def split_file(
    source: Path,
    sizes_or_count: int | Sequence[int],
    axis: int,
    folder: Path,
    *,
    device: str = "cpu",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> SplitFiles:
    """Split ``NAME.npy`` into ``NAME_0.npy``, ``NAME_1.npy``, ... in a folder.

    Parameters
    ----------
    source
        A .npy file; it is mapped, never read whole.
    sizes_or_count, axis
        As in `dmlsplit.split`.
    folder
        Where the pieces go; it is made if it does not exist.
    device
        ``"cpu"`` or ``"cuda:N"``.
    progress
        Called with the bytes done and the bytes in all after each block.

    Raises
    ------
    InvalidArgumentError
        If the file is no .npy file, or the sizes do not fit its shape.
    OSError
        If a file cannot be read or written. The pieces appear under their names only when
        all of them are complete.
    """
    array = open_npy(source)
    # A Fortran-ordered file is the row-major file of the transposed array.
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    axis, sizes = piece_sizes(array.shape, sizes_or_count, axis)
    shapes = tuple((*array.shape[:axis], size, *array.shape[axis + 1 :]) for size in sizes)
    packed = array.T if fortran else array
    rows = _rows(packed.shape, array.ndim - 1 - axis if fortran else axis, sizes, packed.itemsize)
    folder.mkdir(parents=True, exist_ok=True)
    _allow_open_files(len(sizes))
    drafts = [new_draft(folder, source.stem, ".part") for _ in sizes]
    try:
        outputs = [
            _create(draft, array.dtype, shape, fortran)
            for draft, shape in zip(drafts, shapes, strict=True)
        ]
        _copy(
            _bytes(packed), [_bytes(o.T if fortran else o) for o in outputs], rows, device, progress
        )
        for output in outputs:
            if isinstance(output, np.memmap):
                output.flush()
        paths = tuple(folder / f"{source.stem}_{index}.npy" for index in range(len(sizes)))
        for draft, path in zip(drafts, paths, strict=True):
            draft.replace(path)
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)
    return SplitFiles(source, str(array.dtype), array.shape, axis, paths, shapes)


def open_npy(path: Path) -> np.ndarray:
    """Map a .npy file for reading.

    Raises
    ------
    InvalidArgumentError
        If it is no .npy file, is cut short, or holds Python objects (which are never
        unpickled).
    OSError
        If it cannot be opened.
    """
    if not path.is_file() and path.exists() and not path.is_dir():
        raise InvalidArgumentError(f"{path} is not a regular file; it must be a .npy file")
    with path.open("rb") as file, about(path):
        header = read_npy_header(file)
        held = os.fstat(file.fileno()).st_size
        wanted = header.offset + header.size_in_bytes
        if held < wanted:
            raise InvalidArgumentError(
                f"has {held} bytes; its header says {wanted}. Fix: copy the file again"
            )
    order: Literal["F", "C"] = "F" if header.fortran_order else "C"
    if 0 in header.shape:
        return np.empty(header.shape, header.dtype, order)
    return np.memmap(path, header.dtype, "r", header.offset, header.shape, order)


def _rows(shape: tuple[int, ...], axis: int, sizes: Sequence[int], item_bytes: int) -> RowSplit:
    strides = packed_byte_strides(shape, item_bytes)
    geometry = split_geometry(shape, axis, sizes, item_bytes, strides, [None] * len(sizes))
    return geometry.row_split or RowSplit(0, 0, (0,) * len(sizes), (0,) * len(sizes))


def _allow_open_files(count: int) -> None:
    """Raise the soft limit on open files: every mapped piece holds one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 128
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            raise UnsupportedError(
                f"{count} pieces need {wanted} open files; the limit is {hard}. "
                "Fix: raise it with ulimit -n, or split in two steps"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _create(path: Path, dtype: np.dtype, shape: tuple[int, ...], fortran: bool) -> np.ndarray:
    if 0 in shape:
        empty = np.empty(shape, dtype, "F" if fortran else "C")
        with path.open("wb") as file:
            np.lib.format.write_array(file, empty, allow_pickle=False)
        return empty
    output = np.lib.format.open_memmap(path, "w+", dtype, shape, fortran)
    # Reserved now, a full disk is an error; found out through the map, it would be SIGBUS.
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return output


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _copy(
    source: np.ndarray,
    targets: Sequence[np.ndarray],
    rows: RowSplit,
    device: str,
    progress: Callable[[int, int], None],
) -> None:
    done = 0
    for block, parts in _blocks(source, targets, rows):
        _split_block(block, parts, device)
        done += block.size
        progress(done, rows.rows * rows.pitch)


def _blocks(
    source: np.ndarray, targets: Sequence[np.ndarray], rows: RowSplit
) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
    """Yield blocks of bytes (n, columns) with the parts of the outputs they fill."""
    if rows.pitch <= BLOCK_BYTES:
        table = source.reshape(rows.rows, rows.pitch)
        tables = [t.reshape(rows.rows, w) for t, w in zip(targets, rows.widths, strict=True)]
        step = max(1, BLOCK_BYTES // max(1, rows.pitch))
        for row in range(0, rows.rows, step):
            yield table[row : row + step], [t[row : row + step] for t in tables]
        return
    for row in range(rows.rows):
        for target, offset, width in zip(targets, rows.offsets, rows.widths, strict=True):
            for start in range(0, width, BLOCK_BYTES):
                size = min(BLOCK_BYTES, width - start)
                origin = row * rows.pitch + offset + start
                part = target[row * width + start :][:size]
                yield source[origin : origin + size][None], [part[None]]


def _split_block(block: np.ndarray, parts: list[np.ndarray], device: str) -> None:
    widths = [part.shape[1] for part in parts]
    if device == "cpu":
        split(block, widths, 1, out=parts)
        return
    for part, piece in zip(parts, split_on(device, block, widths, 1), strict=True):
        part[...] = piece
