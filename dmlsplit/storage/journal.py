"""The record of a long run: what it does and which of its blocks are done.

A journal is a text file: one line of JSON that says what the run does, then one block
number per line. A line counts when it is whole, so a run that was killed can be taken up
again at any time.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from dmlsplit.errors import InvalidArgumentError


class Journal:
    """The open journal of one run.

    Parameters
    ----------
    path
        A journal that `create_journal` made.

    Attributes
    ----------
    header : dict
        What the run does.
    done : set of int
        Blocks that are finished.

    Raises
    ------
    InvalidArgumentError
        If it is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("r+b")
        try:
            self.header, self.done = self._read()
        except (ValueError, TypeError):
            self._file.close()
            raise InvalidArgumentError(
                f"{path} is damaged. Fix: remove {path.parent} and start again"
            ) from None

    def _read(self) -> tuple[dict[str, Any], set[int]]:
        text = self._file.read()
        whole = text[: text.rfind(b"\n") + 1]
        # A line that was cut short is written anew.
        self._file.truncate(len(whole))
        self._file.seek(len(whole))
        first, *lines = whole.splitlines()
        return dict(json.loads(first)), set(map(int, lines))

    def add(self, block: int) -> None:
        """Record that a block is finished."""
        self._file.write(b"%d\n" % block)
        self._file.flush()
        self.done.add(block)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


def create_journal(path: Path, header: dict[str, Any]) -> None:
    """Begin a journal. It appears under its name when the header is whole."""
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(header) + "\n")
    draft.replace(path)


def read_header(path: Path) -> dict[str, Any]:
    """Return what a run does, without taking part in it."""
    with path.open() as file:
        return dict(json.loads(file.readline()))
