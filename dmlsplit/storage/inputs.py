"""Whether an input changed while it was split, as far as the metadata of its files show it."""

import stat
from pathlib import Path

from dmlsplit.errors import InvalidArgumentError, about

# A folder with one of these files is a zarr array.
ARRAY_FILES = ("zarr.json", ".zarray")

Mark = tuple[tuple[int, int, int], ...]


def array_files(store: Path) -> list[Path]:
    """The files that make a folder a zarr array, if any."""
    return [store / name for name in ARRAY_FILES if (store / name).is_file()]


def input_mark(path: Path) -> Mark:
    """The inodes, sizes and times of an input file, or of the metadata of a zarr array.

    Changes through a memory map, of a chunk, or within a tick of the clock do not show in it.
    """
    files = array_files(path) if stat.S_ISDIR(path.stat().st_mode) else [path]
    return tuple(map(_seen, files))


def check_unchanged(path: Path, mark: Mark) -> None:
    """Refuse pieces of an input that changed while it was read."""
    if input_mark(path) != mark:
        raise InvalidArgumentError(
            f"{path} changed while it was split; no piece was written. "
            "Fix: run the same command again when nothing writes to it"
        )


def _seen(file: Path) -> tuple[int, int, int]:
    """The inode, size and time of a regular file."""
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        with about(file):
            raise InvalidArgumentError("is not a regular file")
    return status.st_ino, status.st_size, status.st_mtime_ns
