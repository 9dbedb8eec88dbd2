"""The record of a run: what it does, and from which files each of its blocks was written.

The first line of a journal, JSON, says what the run does. Eight bytes for each block follow: zeros
until it is written, then the mark of the files that it was read from. A block is done if that is
the mark of these files now. Otherwise it is done again, whether it was never written, written but
not recorded, recorded by half, or written from files that have changed.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import numpy as np

from dmlsplit.atomic import naming, write_text
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.storage.blocks import BlockGrid
from dmlsplit.system import write_at

_MARK_BYTES = 8


@dataclass(frozen=True)
class Run:
    """What a run does."""

    input: str  # absolute path of the array to split
    format: str  # of the pieces
    grid: BlockGrid
    mark: int  # of the files that make the input what it is
    pieces: tuple[int, ...] = ()  # the inode of each, which stays when it is renamed
    name: str = field(default_factory=lambda: uuid4().hex)  # no other run has it


@dataclass(frozen=True, slots=True)
class Journal:
    """The open journal of one run."""

    run: Run
    marks: np.ndarray  # of the files that each block was written from, else 0
    file: IO[bytes]
    start: int  # of the marks in the file

    def record(self, block: int, mark: int) -> None:
        """Record that a block is written from files with this mark; 0 if it is not written."""
        data = memoryview(mark.to_bytes(_MARK_BYTES, "little"))
        with naming(Path(self.file.name)):
            # A part of the bytes is a wrong mark, so that the block is done again.
            write_at(self.file.fileno(), data, self.start + block * _MARK_BYTES)
        self.marks[block] = mark


def create_journal(path: Path, run: Run) -> None:
    """Begin a journal. It appears under its name when its first line is whole."""
    write_text(path, json.dumps(asdict(run)) + "\n")


def read_run(path: Path) -> Run:
    """Read what a run does, without taking part in it; a damaged journal is refused."""
    with naming(path), path.open("rb") as file:
        line = file.readline()
    try:
        values = dict(json.loads(line))
        values["grid"] = BlockGrid.from_json(values["grid"])
        values["pieces"] = tuple(map(int, values["pieces"]))
        return Run(**values)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InvalidArgumentError(
            f"{path} is damaged, or of another version. Fix: remove {path.parent} and start again"
        ) from None


@contextmanager
def open_journal(path: Path) -> Iterator[Journal]:
    """Open a journal of `create_journal`, to read and continue it."""
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
    """Whether the run of a journal is the wanted one, and its input is still the same.

    Another input or split is refused.
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
