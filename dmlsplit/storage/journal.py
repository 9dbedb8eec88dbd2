"""The record of a run: its task, and the files from which each block was written.

The first line of a journal, in JSON, describes the run. Eight bytes for each block follow: zeros
until it is written, then the mark (a hash of sizes and times) of the files that it was read from. A
block is done if its files still have that mark. Otherwise it was not written, its record is missing
or incomplete, or its files have changed, and it is redone. Changes through a memory map can go
unnoticed, because they need not update a file's time.
"""

import json
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import numpy as np

from dmlsplit.atomic import naming, write_text
from dmlsplit.errors import InvalidArgumentError, about
from dmlsplit.storage.blocks import BlockGrid
from dmlsplit.system import write_at

_MARK_BYTES = 8
# Two changes within one tick of the file system's clock, up to 10 ms, leave the same time.
TICK_NS = 20_000_000
# A folder with one of these files is a zarr array.
ARRAY_FILES = ("zarr.json", ".zarray")
METADATA_FILES = (*ARRAY_FILES, ".zattrs", ".zgroup", ".zmetadata")  # all that zarr reads


@dataclass(frozen=True)
class Run:
    """The task of a run: the first line of its journal."""

    input: str  # absolute path
    format: str  # of the pieces
    grid: BlockGrid
    mark: int  # `input_mark` of the input
    pieces: tuple[int, ...] = ()  # their inodes, which survive renaming
    name: str = field(default_factory=lambda: uuid4().hex)  # unique


@dataclass(frozen=True, slots=True)
class Journal:
    """The open journal of one run."""

    run: Run
    marks: np.ndarray  # for each block, the mark of the files it was read from; 0 if not written
    file: IO[bytes]
    start: int  # the position of the marks in the file

    def record(self, block: int, mark: int) -> None:
        """Record the mark of the files that a block was read from; 0 if it is not written."""
        data = memoryview(mark.to_bytes(_MARK_BYTES, "little"))
        with naming(Path(self.file.name)):
            # If only some of the bytes are written, the mark is wrong and the block is redone.
            write_at(self.file.fileno(), data, self.start + block * _MARK_BYTES)
        self.marks[block] = mark


def create_journal(path: Path, run: Run) -> None:
    """Create a journal. It appears once its first line is complete."""
    write_text(path, json.dumps(asdict(run)) + "\n")


def read_run(path: Path) -> Run:
    """Read the first line of a journal; InvalidArgumentError if it is damaged."""
    with naming(path), path.open("rb") as file:
        line = file.readline()
    try:
        values = dict(json.loads(line))
        values["grid"] = BlockGrid.from_json(values["grid"])
        values["pieces"] = tuple(map(int, values["pieces"]))
        return Run(**values)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InvalidArgumentError(
            f"{path} is damaged, or another version of dmlsplit wrote it. "
            f"Fix: remove {path.parent} and start again"
        ) from None


@contextmanager
def open_journal(path: Path) -> Iterator[Journal]:
    """Open a journal to read and continue it."""
    run = read_run(path)
    marks = np.zeros(len(run.grid), f"<u{_MARK_BYTES}")
    with naming(path):
        file = path.open("r+b")
    with file:
        with naming(path):
            start = len(file.readline())
            file.readinto(marks.view(np.uint8).data)
        yield Journal(run, marks, file, start)


def is_continued(path: Path, wanted: Run) -> bool:
    """Whether a journal's run is the wanted one, and its input is unchanged.

    False if the input has changed since. InvalidArgumentError if the run has another input or is
    another split.
    """
    found = read_run(path)
    is_same = found.mark == wanted.mark
    before, now = ({**asdict(run), **asdict(run.grid)} for run in (found, wanted))
    for name in ("input", "format", *(asdict(wanted.grid) if is_same else ())):
        if before[name] != now[name]:
            raise InvalidArgumentError(
                f"{path.parent} holds an unfinished run with {name} {_short(before[name])}; "
                f"this one has {_short(now[name])}. Fix: finish that run, or remove the folder"
            )
    return is_same


def _short(value: Any) -> str:
    text = str(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def array_files(store: Path) -> list[Path]:
    """The files that make a folder a zarr array, if any."""
    return [store / name for name in ARRAY_FILES if (store / name).is_file()]


def input_mark(path: Path) -> int:
    """The mark of an input file, or of a zarr array's metadata."""
    return _mark(array_files(path) if stat.S_ISDIR(path.stat().st_mode) else [path])


def block_mark(path: Path, stored: Any, grid: BlockGrid, index: int) -> int:
    """The mark of the chunks, or shards, that a block is read from."""
    if not path.is_dir():
        return _mark(())  # because `input_mark` covers a single file
    sides = zip(grid[index].region, grid.chunk, strict=True)
    places = product(*(range(s.start // n, -(-s.stop // n)) for s, n in sides))
    return _mark(path / stored.metadata.encode_chunk_key(place) for place in places)


def check_unchanged(path: Path, mark: int) -> None:
    """Refuse pieces of an input that changed while it was read."""
    if input_mark(path) != mark:
        raise InvalidArgumentError(
            f"{path} changed while it was split; no piece was written. "
            "Fix: run the same command again when nothing writes to it"
        )


def _mark(files: Iterable[Path]) -> int:
    """A number that changes when one of the files changes; never 0."""
    seen = repr(list(map(_seen, files))).encode()
    return int.from_bytes(blake2b(seen, digest_size=8).digest()) or 1


def _seen(file: Path) -> tuple[int, int] | None:
    """The size and time of a file, or None. For a file just written, wait for a clock tick."""
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
