"""Splits .npy files of any size, block by block, into pieces that appear together."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from math import prod
from pathlib import Path

import numpy as np

from dmlsplit.arrays import to_device, to_host
from dmlsplit.atomic import check_space
from dmlsplit.checks import piece_sizes
from dmlsplit.errors import UnsupportedError
from dmlsplit.geometry import piece_shapes, pieces_in
from dmlsplit.in_memory import split
from dmlsplit.storage.drafts import drafts
from dmlsplit.storage.inputs import check_unchanged, input_mark
from dmlsplit.storage.npy_file import NpyFile, create_npy, open_npy
from dmlsplit.system import allow_open_files

# On the CPU, a block and its parts should stay in the second-level cache: blocks of 1 MiB were a
# third faster than blocks of 32. Every part costs a call, so blocks are larger for many pieces and
# for a GPU.
BLOCK_BYTES = 1 << 20
PIECES_PER_BLOCK = 32
MOST_BLOCKS = 32

Progress = Callable[[int, int], None]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SplitFiles:
    """The result of a run, with the paths and shapes of the pieces in order."""

    input: Path
    dtype: str
    shape: tuple[int, ...]  # of the input
    axis: int  # not negative
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
        With the name of the file.
    """
    mark = input_mark(path)
    source = open_npy(path)
    axis, sizes = piece_sizes(source.shape, sizes_or_count, axis)
    shapes = piece_shapes(source.shape, axis, sizes)
    targets = tuple(folder / f"{path.stem}_{index}.npy" for index in range(len(sizes)))
    hidden = folder.absolute() / f".{path.stem}.unfinished"
    with drafts(hidden, path, targets, overwrite) as paths:
        pieces = _create_pieces(source, paths, targets, shapes)
        _write_pieces(source, pieces, axis, sizes, device, progress)
        del pieces  # closed, because Windows cannot rename open files
        check_unchanged(path, mark)
    return SplitFiles(path, str(source.dtype), source.shape, axis, targets, shapes)


def _create_pieces(
    source: NpyFile, paths: Sequence[Path], targets: Sequence[Path], shapes: Sequence[Shape]
) -> list[NpyFile]:
    """Empty drafts of the pieces, if they fit on the disk and can all be open at the same time."""
    ends = accumulate(prod(shape) * source.dtype.itemsize for shape in shapes)
    for path, target, end in zip(paths, targets, ends, strict=True):
        check_space(path.parent, end, target)
    count = len(shapes) + 128
    limit = allow_open_files(count)
    if limit is not None:
        raise UnsupportedError(
            f"{len(shapes)} pieces need {count} open files; the limit is {limit}. "
            "Fix: raise it with ulimit -n, or split in two steps"
        )
    return [
        create_npy(path, target, source, shape)
        for path, target, shape in zip(paths, targets, shapes, strict=True)
    ]


def _write_pieces(
    source: NpyFile,
    pieces: Sequence[NpyFile],
    axis: int,
    sizes: Sequence[int],
    device: str,
    progress: Progress,
) -> None:
    """Split the rows of the file, in whose order the last dimension is contiguous."""
    shape, width = source.stored_shape, source.dtype.itemsize
    axis = len(shape) - 1 - axis if source.is_fortran else axis
    step = prod(shape[axis + 1 :])
    starts = [0, *accumulate(size * step for size in sizes)]  # elements of a row
    for_pieces = min(max(1, len(sizes) // PIECES_PER_BLOCK), MOST_BLOCKS)
    block_bytes = BLOCK_BYTES * (for_pieces if device == "cpu" else MOST_BLOCKS)
    limit = min(max(1, block_bytes // width), prod(shape))
    whole, arena = (np.empty(limit, source.dtype) for _ in range(2))
    done = 0
    for row, rows, low, high in row_blocks(prod(shape[:axis]), starts[-1], limit):
        values = whole[: rows * (high - low)].reshape(rows, -1)
        source.read_into(values, row * starts[-1] + low)
        parts = list(pieces_in(starts, low, high))
        split_values = _split_block(
            values, arena, tuple(end - begin for _, begin, end in parts), device
        )
        for (piece, begin, _), part in zip(parts, split_values, strict=True):
            pieces[piece].write(part, row * (starts[piece + 1] - starts[piece]) + begin)
        done += values.nbytes
        progress(done, source.size_in_bytes)
    for file in pieces:
        file.sync()


def row_blocks(rows: int, pitch: int, limit: int) -> Iterator[tuple[int, int, int, int]]:
    """Blocks of at most `limit` elements: the first row, the number of rows, and their columns.

    A block has whole rows, or a part of one row, so it is one run of the file and of each piece.
    """
    if pitch:
        height, length = max(1, limit // pitch), min(pitch, limit)
        for row, low in product(range(0, rows, height), range(0, pitch, length)):
            yield row, min(height, rows - row), low, min(low + length, pitch)


def _split_block(
    values: np.ndarray, arena: np.ndarray, widths: tuple[int, ...], device: str
) -> Sequence[np.ndarray]:
    """Split the columns of a block; on the CPU, into the memory of `arena`."""
    if len(widths) == 1:
        return [values]
    if device != "cpu":
        return _split_on(device, values, widths)
    rows = len(values)
    ends = zip(widths, accumulate(widths), strict=True)
    parts = [arena[rows * (end - n) : rows * end].reshape(rows, n) for n, end in ends]
    return split(values, widths, 1, out=parts)


def _split_on(device: str, array: np.ndarray, widths: Sequence[int]) -> list[np.ndarray]:
    """Split the columns of a host array on a GPU into new host arrays."""
    # As bytes, because CuPy lacks some of NumPy's data types.
    flat = np.ascontiguousarray(array).view(np.uint8).reshape(*array.shape, array.itemsize)
    parts = [to_host(part) for part in split(to_device(flat, device), widths, 1)]
    return [part.reshape(-1).view(array.dtype).reshape(part.shape[:-1]) for part in parts]
