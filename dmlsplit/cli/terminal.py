"""What the command line prints, and where. Nothing else prints."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dmlsplit.messages import printable

# Exit status.
ACCEPTED, REFUSED, UNUSABLE = 0, 1, 2
INTERRUPTED = 130


def show(text: str) -> None:
    """Print a result; a reader that goes early does not change the exit status."""
    if not text:
        return
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        print(text, flush=True)
    except BrokenPipeError:
        forget_stdout()
    except OSError:
        forget_stdout()
        raise


def forget_stdout() -> None:
    """Keep Python from complaining about a closed pipe or full disk once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(message: str) -> None:
    """Report an error."""
    tell(f"error: {message}")


def tell(message: str) -> None:
    """Say something that is not the result."""
    print(f"dmlsplit: {printable(message)}", file=sys.stderr)


def wants_colour() -> bool:
    """Whether to colour: on a terminal, unless the user says no (no-color.org)."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


@contextmanager
def progress_bar(name: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function of (bytes done, bytes in all) that draws a bar on a terminal."""
    from tqdm import tqdm

    with tqdm(
        desc=name, unit="B", unit_scale=True, disable=None, delay=0.5, leave=False, file=sys.stderr
    ) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield progress
