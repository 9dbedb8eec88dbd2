"""Splits .npy files of any size: mapped, block by block, written atomically."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dmlsplit.arrays import to_device, to_host
from dmlsplit.arrays.npy_header import read_npy_header
from dmlsplit.atomic import atomic_write
from dmlsplit.backends import Program
from dmlsplit.backends.find import compiled, find_backend
from dmlsplit.checks import piece_sizes
from dmlsplit.eager import split
from dmlsplit.errors import InvalidArgumentError, UnsupportedError, about
from dmlsplit.geometry import split_geometry
from dmlsplit.storage.blocks import BlockGrid, packed_chunk

BLOCK_BYTES = 32 << 20

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class SplitFiles:
    """What a run wrote: the paths and shapes of the pieces, in order."""

    input: Path
    dtype: str
    shape: tuple[int, ...]  # of the input
    axis: int  # counted from the front
    paths: tuple[Path, ...]
    shapes: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...] = ()  # what the user should know about the input


def split_file(
    path: Path,
    sizes_or_count: int | Sequence[int],
    axis: int,
    folder: Path,
    *,
    device: str = "cpu",
    progress: Progress = lambda done, total: None,
) -> SplitFiles:
    """Split ``NAME.npy`` into ``NAME_0.npy``, ``NAME_1.npy``, ... in a folder.

    Parameters
    ----------
    path
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
        If it is not a .npy file, or the sizes do not fit its shape.
    OSError
        If a file cannot be read or written. The pieces appear under their names only when
        all of them are complete.
    """
    array = open_npy(path)
    axis, sizes = piece_sizes(array.shape, sizes_or_count, axis)
    shapes = tuple((*array.shape[:axis], size, *array.shape[axis + 1 :]) for size in sizes)
    paths = tuple(folder / f"{path.stem}_{index}.npy" for index in range(len(sizes)))
    folder.mkdir(parents=True, exist_ok=True)
    _allow_open_files(len(sizes))
    with atomic_write(*paths) as temporaries:
        pieces = [
            _create(temporary, array.dtype, shape, _is_fortran(array))
            for temporary, shape in zip(temporaries, shapes, strict=True)
        ]
        _copy(array, pieces, axis, device, progress)
        for piece in pieces:
            piece.flush()
    return SplitFiles(path, str(array.dtype), array.shape, axis, paths, shapes)


def open_npy(path: Path) -> np.ndarray:
    """Map a .npy file for reading; one that is damaged or holds Python objects is refused."""
    with about(path):
        if path.exists() and not path.is_file() and not path.is_dir():
            raise InvalidArgumentError("is not a regular file; it must be a .npy file")
        with path.open("rb") as file:
            header = read_npy_header(file)
            size = os.fstat(file.fileno()).st_size
        wanted = header.offset + header.size_in_bytes
        if size < wanted:
            raise InvalidArgumentError(
                f"has {size} bytes; its header says {wanted}. Fix: copy the file again"
            )
    order: Literal["F", "C"] = "F" if header.fortran_order else "C"
    return np.memmap(path, header.dtype, "r", header.offset, header.shape, order)


def _is_fortran(array: np.ndarray) -> bool:
    return array.flags.f_contiguous and not array.flags.c_contiguous


def _allow_open_files(count: int) -> None:
    """Raise the soft limit on open files: every mapped piece holds one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 128
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except ValueError:
            raise UnsupportedError(
                f"{count} pieces need {wanted} open files; the limit is {hard}. "
                "Fix: raise it with ulimit -n, or split in two steps"
            ) from None


def _create(path: Path, dtype: np.dtype, shape: tuple[int, ...], fortran: bool) -> np.memmap:
    """Make a .npy file of zeros, and map it for writing."""
    output = np.lib.format.open_memmap(path, "w+", dtype, shape, fortran)
    # Reserved now, a full disk is an error; found out through the map, it would be SIGBUS.
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return output


def _copy(
    array: np.ndarray, pieces: Sequence[np.ndarray], axis: int, device: str, progress: Progress
) -> None:
    if _is_fortran(array):
        # It is the row-major array of the transposed shape.
        array, pieces, axis = array.T, [piece.T for piece in pieces], array.ndim - 1 - axis
    sizes = tuple(piece.shape[axis] for piece in pieces)
    chunk = packed_chunk(array.shape, array.itemsize, BLOCK_BYTES)
    ones = (1,) * array.ndim
    grid = BlockGrid(array.shape, axis, sizes, chunk, ones, array.itemsize, BLOCK_BYTES)
    done = 0
    for index in range(len(grid)):
        block = grid[index]
        parts = [pieces[part.piece][part.region] for part in block.parts]
        _split_block(array[block.region], parts, axis, device)
        done += grid.nbytes(index)
        progress(done, array.nbytes)


def _split_block(block: np.ndarray, parts: list[np.ndarray], axis: int, device: str) -> None:
    sizes = tuple(part.shape[axis] for part in parts)
    if device == "cpu":
        # Not the public split: nothing overlaps, which it would check anew for each block.
        layout = (block.shape, axis, sizes, block.itemsize, block.strides)
        program = _program(*layout, tuple(part.strides for part in parts))
        program.bind(block.ctypes.data, [part.ctypes.data for part in parts])()
        return
    for part, piece in zip(parts, split_on(device, block, sizes, axis), strict=True):
        part[...] = piece


def split_on(device: str, array: np.ndarray, sizes: Sequence[int], axis: int) -> list[np.ndarray]:
    """Split an array of the host on a device into new arrays of the host."""
    if device == "cpu":
        return split(array, sizes, axis)
    # As bytes, since CuPy lacks some of NumPy's data types.
    flat = np.ascontiguousarray(array).view(np.uint8).reshape(*array.shape, array.itemsize)
    parts = [to_host(part) for part in split(to_device(flat, device), sizes, axis)]
    return [part.reshape(-1).view(array.dtype).reshape(part.shape[:-1]) for part in parts]


@lru_cache(maxsize=4)
def _program(*layout: Any) -> Program:
    """Return what copies a block of a layout; most blocks of a file have the same."""
    return compiled(find_backend("cpu"), split_geometry(*layout))
