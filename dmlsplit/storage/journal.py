"""The record of a long run: what it does and which of its blocks are done.

A journal is a text file: one line of JSON that says what the run does, then one block
number per line. A line counts when it is whole, so a run that was killed can be resumed at
any time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypedDict, cast

from dmlsplit.atomic import write_text
from dmlsplit.errors import InvalidArgumentError


class RunHeader(TypedDict):
    """What a run does."""

    input: str  # absolute path of the array to split
    state: list[list[Any]]  # what changes when the input is written anew
    data_type: str  # a NumPy type string
    grid: dict[str, Any]  # a `BlockGrid` as JSON
    run: str  # a name that no other run has


@dataclass(frozen=True, slots=True)
class Journal:
    """The open journal of one run: what it does, and the blocks that are done."""

    header: RunHeader
    done: set[int]
    file: IO[bytes]

    def add(self, block: int) -> None:
        """Record that a block is finished."""
        self.file.write(b"%d\n" % block)
        self.file.flush()
        self.done.add(block)


def create_journal(path: Path, header: RunHeader) -> None:
    """Begin a journal. It appears under its name when the header is whole."""
    write_text(path, json.dumps(header) + "\n")


def read_header(path: Path) -> RunHeader:
    """Return what a run does, without taking part in it."""
    with path.open("rb") as file:
        return _header(file.readline())


@contextmanager
def open_journal(path: Path) -> Iterator[Journal]:
    """Open a journal of `create_journal`, to read and continue it; a damaged one is refused."""
    with path.open("r+b") as file:
        text = file.read()
        # A line that was cut short is written anew.
        whole = text[: text.rfind(b"\n") + 1]
        try:
            first, *lines = whole.splitlines()
            header, done = _header(first), set(map(int, lines))
        except (ValueError, TypeError, KeyError):
            raise InvalidArgumentError(
                f"{path} is damaged. Fix: remove {path.parent} and start again"
            ) from None
        file.truncate(len(whole))
        file.seek(len(whole))
        yield Journal(header, done, file)


def _header(line: bytes) -> RunHeader:
    values = dict(json.loads(line))
    return cast(RunHeader, {**values, "grid": dict(values["grid"])})
