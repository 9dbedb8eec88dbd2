"""What a shell sees: standard output for results, standard error for the rest, exit statuses."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dmlsplit.messages import printable

if TYPE_CHECKING:
    from dmlsplit.lint.verdict import Assessment

ACCEPTED = 0
REFUSED = 1
UNUSABLE = 2  # wrong usage, or a file that cannot be read
INTERRUPTED = 130  # as a shell has it: 128 + SIGINT

Progress = Callable[[int, int], None]


def status_of(assessment: Assessment) -> int:
    """Return the exit status of a command that has judged splits."""
    if assessment.unreadable:
        return UNUSABLE
    return ACCEPTED if assessment.accepted else REFUSED


def show(text: str) -> None:
    """Print a result; a reader that closes the pipe early does not change the exit status."""
    if not text:
        return
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        print(text, flush=True)
    except OSError as error:
        forget_stdout()
        if not isinstance(error, BrokenPipeError):
            raise


def forget_stdout() -> None:
    """Keep Python from reporting a closed pipe or a full disk once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def tell(message: str) -> None:
    """Print something that is not the result."""
    print(f"dmlsplit: {printable(message)}", file=sys.stderr)


def wants_colour() -> bool:
    """Whether to colour: on a terminal, unless the user opts out (no-color.org)."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


@contextmanager
def progress_bar(name: str) -> Iterator[Progress]:
    """Yield a function of (bytes done, bytes in all) that draws a bar on a terminal."""
    from tqdm import tqdm

    with tqdm(
        desc=name, unit="B", unit_scale=True, disable=None, delay=0.5, leave=False, file=sys.stderr
    ) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield progress
