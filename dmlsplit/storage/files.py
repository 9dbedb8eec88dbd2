"""What splits of files share: an input that must not change, and pieces that appear together."""

import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmlsplit.checks import piece_sizes
from dmlsplit.errors import InvalidArgumentError, path_in_errors
from dmlsplit.geometry import piece_shapes
from dmlsplit.storage.drafts import array_files, drafts

Progress = Callable[[int, int], None]
# The inode, size and time of an input file, or of each metadata file of a zarr array. They do not
# show changes through a memory map, of a chunk, or within a tick of the clock.
Fingerprint = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class SplitFiles:
    """The result of a run, with the paths and shapes of the pieces in order."""

    input: Path
    dtype: str
    shape: tuple[int, ...]  # of the input
    axis: int  # not negative
    sizes: tuple[int, ...]  # along the axis
    paths: tuple[Path, ...]
    shapes: tuple[tuple[int, ...], ...]


@contextmanager
def pieces_of(
    path: Path,
    fingerprint: Fingerprint,
    array: Any,
    sizes_or_count: int | Sequence[int],
    axis: int,
    folder: Path,
    name: str,
    suffix: str,
    overwrite: bool,
) -> Iterator[tuple[SplitFiles, list[Path]]]:
    """The result of the block, and the drafts that it must write; see `drafts`.

    `array` is the input, which was opened after its `fingerprint` was taken. An
    InvalidArgumentError says that the sizes do not fit, or that the input changed during the block.
    """
    shape = tuple(array.shape)
    axis, sizes = piece_sizes(shape, sizes_or_count, axis)
    shapes = piece_shapes(shape, axis, sizes)
    paths = tuple(folder / f"{name}_{index}{suffix}" for index in range(len(sizes)))
    hidden = folder.absolute() / f".{name}.unfinished"
    with drafts(hidden, path, paths, overwrite) as unfinished:
        yield SplitFiles(path, str(array.dtype), shape, axis, sizes, paths, shapes), unfinished
        if input_fingerprint(path) != fingerprint:
            raise InvalidArgumentError(
                f"{path} changed while it was split; no piece was written. "
                "Fix: run the same command again when nothing writes to it"
            )


def input_fingerprint(path: Path) -> Fingerprint:
    """The fingerprint of an input; if it differs later, the input has changed."""
    files = array_files(path) if stat.S_ISDIR(path.stat().st_mode) else [path]
    return tuple(map(_file_fingerprint, files))


def _file_fingerprint(file: Path) -> tuple[int, int, int]:
    """The inode, size and time of a regular file."""
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        with path_in_errors(file):
            raise InvalidArgumentError("is not a regular file")
    return status.st_ino, status.st_size, status.st_mtime_ns
