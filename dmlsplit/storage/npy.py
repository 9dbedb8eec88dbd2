"""Splits .npy files of any size, block by block, into pieces that appear together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from pathlib import Path

import numpy as np

from dmlsplit.arrays import to_device, to_host
from dmlsplit.atomic import check_space
from dmlsplit.checks import piece_sizes
from dmlsplit.eager import split
from dmlsplit.errors import UnsupportedError
from dmlsplit.geometry import piece_shapes
from dmlsplit.storage.blocks import Block, BlockGrid, packed_chunk
from dmlsplit.storage.journal import Run, check_unchanged, input_mark
from dmlsplit.storage.npy_file import NpyFile, create_npy, open_npy
from dmlsplit.storage.workspace import Workspace, claimed
from dmlsplit.system import allow_open_files

# On the CPU, a block and its parts should stay in the second-level cache: blocks of 1 MiB were a
# third faster than blocks of 32. Every part costs a call, so blocks are larger for many pieces and
# for a GPU.
BLOCK_BYTES = 1 << 20
PIECES_PER_BLOCK = 32
MOST_BLOCKS = 32

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class SplitFiles:
    """The result of a run, with the paths and shapes of the pieces in order."""

    input: Path
    dtype: str
    shape: tuple[int, ...]  # of the input
    axis: int  # not negative
    paths: tuple[Path, ...]
    shapes: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...] = ()  # for the user


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

    The pieces appear when all are complete; the folder is created if needed. `device` is ``"cpu"``
    or ``"cuda:N"``. After each block, `progress` is called with the bytes done and the total.
    InvalidArgumentError: the file is not a .npy file, the sizes do not fit, a piece exists (unless
    `overwrite`) or is the input, or the input changes during the run. An OSError names the file.
    """
    mark = input_mark(path)
    source = open_npy(path)
    axis, sizes = piece_sizes(source.shape, sizes_or_count, axis)
    shapes = piece_shapes(source.shape, axis, sizes)
    targets = tuple(folder / f"{path.stem}_{index}.npy" for index in range(len(sizes)))
    grid = _grid(source, axis, sizes, device)
    run = Run(str(path.absolute()), "npy", grid, mark)
    workspace = Workspace(folder.absolute() / f".{path.stem}.unfinished", path, targets)
    with claimed(workspace, run, overwrite) as notes:
        if not workspace.journal.is_file():  # with a journal, all pieces are already complete
            # No variable holds the pieces: Windows can rename them only after they are closed.
            _write_pieces(source, _create_pieces(workspace, source, shapes), grid, device, progress)
            check_unchanged(path, mark)
            workspace.vouch(run)
    return SplitFiles(path, str(source.dtype), source.shape, axis, targets, shapes, notes)


def _grid(source: NpyFile, axis: int, sizes: tuple[int, ...], device: str) -> BlockGrid:
    """The blocks of an array in file order, where the last dimension is contiguous."""
    shape, width = source.stored_shape, source.dtype.itemsize
    axis = len(shape) - 1 - axis if source.is_fortran else axis
    on_cpu = min(max(1, len(sizes) // PIECES_PER_BLOCK), MOST_BLOCKS)
    wanted = BLOCK_BYTES * (on_cpu if device == "cpu" else MOST_BLOCKS)
    chunk = packed_chunk(shape, width, wanted)
    return BlockGrid(shape, axis, sizes, chunk, (1,) * len(shape), width, wanted)


def _create_pieces(
    workspace: Workspace, source: NpyFile, shapes: Sequence[tuple[int, ...]]
) -> list[NpyFile]:
    """Empty drafts of the pieces, if they fit on the disk and can all be open at the same time."""
    ends = accumulate(prod(shape) * source.dtype.itemsize for shape in shapes)
    for target, wanted in zip(workspace.targets, ends, strict=True):
        check_space(workspace.folder, wanted, target)
    wanted = len(shapes) + 128
    limit = allow_open_files(wanted)
    if limit is not None:
        raise UnsupportedError(
            f"{len(shapes)} pieces need {wanted} open files; the limit is {limit}. "
            "Fix: raise it with ulimit -n, or split in two steps"
        )
    return [
        create_npy(workspace.draft(index), target, source, shape)
        for index, (target, shape) in enumerate(zip(workspace.targets, shapes, strict=True))
    ]


def _write_pieces(
    source: NpyFile, pieces: list[NpyFile], grid: BlockGrid, device: str, progress: Progress
) -> None:
    most = max((prod(grid[index].shape) for index in range(len(grid))), default=0)
    whole, arena = np.empty(most, source.dtype), np.empty(most, source.dtype)
    done = 0
    for index in range(len(grid)):
        block = grid[index]
        values = whole[: prod(block.shape)].reshape(block.shape)
        source.read_into(values, block.region)
        parts = _split_block(values, arena, block, grid.axis, device)
        for part, part_values in zip(block.parts, parts, strict=True):
            pieces[part.piece].write(part_values, part.region)
        done += values.nbytes
        progress(done, source.size_in_bytes)
    for piece in pieces:
        piece.sync()


def _split_block(
    values: np.ndarray, arena: np.ndarray, block: Block, axis: int, device: str
) -> Sequence[np.ndarray]:
    """Split a block into its parts; on the CPU, into the memory of `arena`."""
    sizes = tuple(part.size for part in block.parts)
    if len(sizes) == 1:
        return [values]
    if device != "cpu":
        return split_on(device, values, sizes, axis)
    shapes = piece_shapes(block.shape, axis, sizes)
    ends = accumulate(map(prod, shapes))
    parts = [arena[end - prod(s) : end].reshape(s) for s, end in zip(shapes, ends, strict=True)]
    return split(values, sizes, axis, out=parts)


def split_on(device: str, array: np.ndarray, sizes: Sequence[int], axis: int) -> list[np.ndarray]:
    """Split a host array on a device into new host arrays."""
    if device == "cpu":
        return split(array, sizes, axis)
    # As bytes, because CuPy lacks some of NumPy's data types.
    flat = np.ascontiguousarray(array).view(np.uint8).reshape(*array.shape, array.itemsize)
    parts = [to_host(part) for part in split(to_device(flat, device), sizes, axis)]
    return [part.reshape(-1).view(array.dtype).reshape(part.shape[:-1]) for part in parts]
