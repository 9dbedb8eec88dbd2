"""What tells that the input changed: the sizes and times of its files.

A run notes them before it reads, and looks again before the pieces get their names. A program that
changes a file through a map may leave its time as it was; nothing here can notice that.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Iterator
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Any

from dmlsplit.atomic import naming
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


def input_state(path: Path) -> list[list[Any]]:
    """Return what changes when the input is replaced: size, time, metadata of its main files."""
    if not path.is_dir():
        path.stat()
        return [[path.name, *(_seen(path) or ()), ""]]
    return [[file.name, *(_seen(file) or ()), _digest(file)] for file in array_files(path)]


def _digest(file: Path) -> str:
    with naming(file):
        return blake2b(file.read_bytes(), digest_size=8).hexdigest()


def block_mark(path: Path, stored: Any, grid: BlockGrid, index: int) -> int:
    """Return a number that changes when a file changes that a block is read from; never 0."""
    files = _chunk_files(path, stored, grid, index) if path.is_dir() else [path]
    seen = repr([_seen(file) for file in files]).encode()
    return int.from_bytes(blake2b(seen, digest_size=8).digest()) or 1


def _chunk_files(path: Path, stored: Any, grid: BlockGrid, index: int) -> Iterator[Path]:
    """Yield the chunks, or shards, that a block of a zarr array touches."""
    sides = zip(grid[index].region, grid.chunk, strict=True)
    for place in product(*(range(s.start // n, -(-s.stop // n)) for s, n in sides)):
        yield path / stored.metadata.encode_chunk_key(place)


def _seen(file: Path) -> tuple[int, int] | None:
    """Return size and time of a file, or None; after a tick, if it was written just now."""
    for wait in (True, False):
        try:
            found = file.stat()
        except FileNotFoundError:
            return None
        age = time.time_ns() - found.st_mtime_ns
        if wait and 0 <= age < TICK_NS:
            time.sleep((TICK_NS - age) / 1e9)
        else:
            break
    if not stat.S_ISREG(found.st_mode):
        with about(file):
            raise InvalidArgumentError("is not a regular file")
    return found.st_size, found.st_mtime_ns
