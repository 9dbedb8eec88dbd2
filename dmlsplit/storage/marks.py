"""What tells that the input changed: marks, made from the sizes and times of files.

A run notes them before it reads, and looks again before the pieces get their names. A program that
changes a file through a map may leave its time as it was; nothing here can notice that.
"""

import stat
import time
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Any

from dmlsplit.errors import InvalidArgumentError, about
from dmlsplit.storage.blocks import BlockGrid

# Two changes within a tick of the file system's clock leave the same time. Ticks are up to 10 ms.
TICK_NS = 20_000_000
# The files that make a folder a zarr array, and those that zarr looks for beside them.
ARRAY_FILES = ("zarr.json", ".zarray")
METADATA_FILES = (*ARRAY_FILES, ".zattrs", ".zgroup", ".zmetadata")


def array_files(store: Path) -> list[Path]:
    """Return the files that make a folder a zarr array."""
    return [store / name for name in ARRAY_FILES if (store / name).is_file()]


def input_mark(path: Path) -> int:
    """Return the mark of the files that make an input what it is: of a zarr array, its metadata."""
    return _mark(array_files(path) if stat.S_ISDIR(path.stat().st_mode) else [path])


def block_mark(path: Path, stored: Any, grid: BlockGrid, index: int) -> int:
    """Return the mark of the chunks that a block is read from; a single file has no others."""
    return _mark(_chunk_files(path, stored, grid, index) if path.is_dir() else ())


def check_unchanged(path: Path, mark: int) -> None:
    """Refuse pieces of an input that was changed while it was read."""
    if input_mark(path) != mark:
        raise InvalidArgumentError(
            f"{path} changed while it was split; no piece was written. "
            "Fix: start the same run again when nothing writes to it"
        )


def _chunk_files(path: Path, stored: Any, grid: BlockGrid, index: int) -> Iterator[Path]:
    """Yield the chunks, or shards, that a block of a zarr array touches."""
    sides = zip(grid[index].region, grid.chunk, strict=True)
    for place in product(*(range(s.start // n, -(-s.stop // n)) for s, n in sides)):
        yield path / stored.metadata.encode_chunk_key(place)


def _mark(files: Iterable[Path]) -> int:
    """Return a number that changes when one of the files changes; never 0."""
    seen = repr(list(map(_seen, files))).encode()
    return int.from_bytes(blake2b(seen, digest_size=8).digest()) or 1


def _seen(file: Path) -> tuple[int, int] | None:
    """Return size and time of a file, or None; after a tick, if it was written just now."""
    try:
        found = file.stat()
        age = time.time_ns() - found.st_mtime_ns
        if 0 <= age < TICK_NS:
            time.sleep((TICK_NS - age) / 1e9)
            found = file.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        with about(file):
            raise InvalidArgumentError("is not a regular file")
    return found.st_size, found.st_mtime_ns
