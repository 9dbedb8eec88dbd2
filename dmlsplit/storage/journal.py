"""The record of a run: what it does, which of its blocks are done, and from which input.

A journal is a text file: one line of JSON that says what the run does, then a line for each
finished block with its number and the mark of the files that it was read from. A line counts when
it is whole, so a run that was killed can be resumed at any time.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypedDict, cast

import numpy as np

from dmlsplit.atomic import naming, write_text
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.storage.blocks import BlockGrid


class RunHeader(TypedDict):
    """What a run does."""

    input: str  # absolute path of the array to split
    format: str  # of the pieces
    state: list[list[Any]]  # what changes when the input is replaced
    data_type: str  # a NumPy type string
    grid: dict[str, Any]  # a `BlockGrid` as JSON
    pieces: list[int]  # the inode of each piece, which stays when it is renamed
    run: str  # a name that no other run has


@dataclass(frozen=True, slots=True)
class Journal:
    """The open journal of one run."""

    header: RunHeader
    marks: np.ndarray  # of each block: that of its input if the block is done, else 0
    file: IO[bytes]

    def add(self, block: int, mark: int) -> None:
        """Record that a block is finished, read from files with this mark."""
        with naming(Path(self.file.name)):
            self.file.write(b"%d %x\n" % (block, mark))
            self.file.flush()
        self.marks[block] = mark


def run_header(
    path: Path, form: str, state: list[list[Any]], data_type: np.dtype, grid: BlockGrid
) -> RunHeader:
    """Return what a run is about to do; its pieces do not exist yet."""
    return {
        "input": str(path.absolute()),
        "format": form,
        "state": state,
        "data_type": data_type.str,
        "grid": grid.to_json(),
        "pieces": [],
        "run": uuid.uuid4().hex,
    }


def create_journal(path: Path, header: RunHeader) -> None:
    """Begin a journal. It appears under its name when the header is whole."""
    write_text(path, json.dumps(header) + "\n")


def read_header(path: Path) -> RunHeader:
    """Return what a run does, without taking part in it; a damaged journal is refused."""
    with naming(path), path.open("rb") as file:
        line = file.readline()
    try:
        values = dict(json.loads(line))
        grid, pieces = dict(values["grid"]), list(map(int, values["pieces"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _damaged(path) from None
    return cast(RunHeader, {**values, "grid": grid, "pieces": pieces})


@contextmanager
def open_journal(path: Path, blocks: int) -> Iterator[Journal]:
    """Open a journal of `create_journal`, to read and continue it; a damaged one is refused."""
    header = read_header(path)
    with naming(path):
        file = path.open("r+b")
    with file:
        with naming(path):
            text = file.read()
        # A line that was cut short is written anew.
        whole = text[: text.rfind(b"\n") + 1]
        marks = np.zeros(blocks, np.uint64)
        try:
            for line in whole.splitlines()[1:]:
                block, mark = line.split()
                marks[_below(int(block), blocks)] = _below(int(mark, 16), 1 << 64)
        except ValueError:
            raise _damaged(path) from None
        with naming(path):
            file.truncate(len(whole))
            file.seek(len(whole))
        yield Journal(header, marks, file)


def _below(number: int, end: int) -> int:
    if not 0 <= number < end:
        raise ValueError
    return number


def _damaged(path: Path) -> InvalidArgumentError:
    return InvalidArgumentError(f"{path} is damaged. Fix: remove {path.parent} and start again")


def check_same_run(path: Path, wanted: RunHeader, *, is_repaired: bool = False) -> None:
    """Refuse to continue a run of another input or split.

    `is_repaired` says that the input was to be copied again: then its times may differ.
    """
    found = read_header(path)
    before, now = ({**header, **header["grid"]} for header in (found, wanted))
    for field in ("input", "format", "data_type", *wanted["grid"]):
        if before.get(field) != now[field]:
            raise InvalidArgumentError(
                f"{path.parent} holds an unfinished run with {field} "
                f"{_short(before.get(field))}; this one has {_short(now[field])}. "
                "Fix: finish that run, or remove the folder"
            )
    states = [found["state"], wanted["state"]]
    if is_repaired:
        states = [[[name, digest] for name, *_, digest in state] for state in states]
    if states[0] != states[1]:
        raise InvalidArgumentError(
            f"{wanted['input']} was replaced or changed after the unfinished run in "
            f"{path.parent} began. Fix: remove that folder and start again"
        )


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
