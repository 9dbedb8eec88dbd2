"""Standard output (results), standard error (the rest), signals and exit statuses."""

import argparse
import io
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread, current_thread, main_thread
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from dmlsplit.messages import WIDTH, did_you_mean, printable

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

    from dmlsplit.lint.verdict import Assessment
    from dmlsplit.storage.npy import Progress

EXIT_OK = 0
EXIT_REFUSED = 1
EXIT_UNUSABLE = 2  # wrong usage, or a file that cannot be read
# Shells add the number of the signal that ended a command to this.
INTERRUPTED = 128
MIN_WIDTH = 40  # the least width of text, even on a narrower terminal
BAR_SECONDS = 1.0  # shorter work shows no bar; a bar is redrawn this often
STDOUT = "-"  # the name of a file that means standard output
# Windows has no SIGHUP.
STOP_SIGNALS = tuple(s for s in signal.Signals if s.name in ("SIGINT", "SIGTERM", "SIGHUP"))


def status_of(assessment: "Assessment") -> int:
    """The exit status of a command that checks splits."""
    if assessment.unreadable:
        return EXIT_UNUSABLE
    accepted = assessment.accepted
    if assessment.baseline and not assessment.diagnostics:
        from dmlsplit.lint.report.baseline import failed

        accepted = not any(failed(assessment))
    return EXIT_OK if accepted else EXIT_REFUSED


def print_result(text: str) -> None:
    """Print a result. If the reader closes the pipe early, the exit status is unchanged."""
    if not text:
        return
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        print(text, flush=True)
    except OSError as error:
        redirect_to_devnull(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            error.filename = "standard output"
            raise


def write_result(text: str, output: str | None, inputs: Iterable[str]) -> None:
    """Write a result to a file that is not an input; for None or ``-``, print it."""
    if output is None or output == STDOUT:
        print_result(text)
        return
    from dmlsplit.files.atomic import write_text

    # The file may be a pipe whose reader has ended. On standard output, it is not an error, either.
    with suppress(BrokenPipeError):
        write_text(Path(output), text + "\n", list(map(Path, inputs)))


def redirect_to_devnull(stream: TextIO) -> None:
    """Keep Python from reporting a closed pipe or a full disk again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_message(message: str) -> None:
    """Print a message to standard error."""
    print_to_stderr(f"dmlsplit: {printable(message)}")


def print_to_stderr(text: str) -> None:
    """Print escaped text to standard error, and ignore a closed stream or a full disk."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        redirect_to_devnull(sys.stderr)


class _Once(argparse.Action):
    """An option that may be given once: of two values, one would silently be lost."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Take the option, unless it was taken before."""
        if option_string is not None:
            taken = vars(namespace).setdefault("options", {})
            if self.dest in taken:
                both = " and ".join(map(_value, (taken[self.dest], values)))
                twice = f"{option_string} is given twice{f': {both}' if self.nargs != 0 else ''}"
                parser.error(f"{twice}. Fix: give it once")
            taken[self.dest] = values
        super().__call__(parser, namespace, values, option_string)


def _value(value: object) -> str:
    """A value of an option as on the command line."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _once(action: type[argparse.Action]) -> type[argparse.Action]:
    """An action of argparse that an option takes once."""
    return type(action.__name__, (_Once, action), {})


class Parser(argparse.ArgumentParser):
    """A parser whose help is a result: failing to print it is an error.

    An error is one line without the usage; a second line names the command for help. Options are
    not abbreviated, and only those that collect values may be repeated.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)
        for name in (None, "store", "store_const", "store_true"):
            self.register("action", name, _once(self._registries["action"][name]))

    def error(self, message: str) -> NoReturn:
        """End the program."""
        # argparse says "argument --axis: is 'one'; it must be an integer".
        message = message.removeprefix("argument ").replace(": is ", " is ", 1)
        message = re.sub(r"^the following arguments are required: (.*)", r"\1 is missing", message)
        if exclusive := re.fullmatch(r"(\S+): not allowed with argument (\S+)", message):
            message = "give only one of {} and {}".format(*exclusive.groups())
        print_message(f"error: {message}")
        print_message(f"for help: {self.prog} --help")
        raise SystemExit(EXIT_UNUSABLE)

    def _check_value(self, action: argparse.Action, value: object) -> None:
        choices = list(action.choices or [value])
        if value not in choices:
            allowed = f"it must be one of {', '.join(choices)}{did_you_mean(str(value), choices)}"
            if len(choices) == 1:
                allowed = f"the only value is {choices[0]!r}"
            raise argparse.ArgumentError(action, f"is {value!r}; {allowed}")

    def _print_message(self, message: str, file: "SupportsWrite[str] | None" = None) -> None:
        if file is sys.stdout:
            print_result(message.removesuffix("\n"))
        else:
            super()._print_message(message, file)


@contextmanager
def interruptible(on_import_signal: Callable[[int], None] | None) -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block like Ctrl-C; a second signal kills the process.

    The KeyboardInterrupt has the signal's number. During an import, `on_import_signal` is called
    instead, because Python and C modules lose or replace exceptions there.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        if on_import_signal is not None and _is_importing(frame):
            on_import_signal(number)
        raise KeyboardInterrupt(number)

    # Python sets no handlers outside the main thread.
    stops = STOP_SIGNALS if current_thread() is main_thread() else ()
    before = {number: signal.getsignal(number) for number in stops}
    taken = {n: handler for n, handler in before.items() if handler not in (None, signal.SIG_IGN)}
    try:
        for number in taken:
            signal.signal(number, stop)
        yield
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a frame is in an import."""
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None


def open_standard_streams() -> None:
    """Open the standard streams that the shell closed.

    Otherwise the next file would get the number of such a stream, and its output. Standard output
    is opened read-only, so that printing a result is an error.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number == 1 else os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w"), write_through=True)
    if sys.stderr is None:  # otherwise print would use standard output
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w"), write_through=True)


def is_colour_wanted() -> bool:
    """Whether to colour output: only on a terminal, unless the user opts out (no-color.org)."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


def columns() -> int:
    """The columns at which results are wrapped: the terminal's, or `WIDTH` without a terminal."""
    if not sys.stdout.isatty():
        return WIDTH
    from shutil import get_terminal_size

    return max(MIN_WIDTH, get_terminal_size((WIDTH, 24)).columns)


@contextmanager
def progress_bar(name: str, unit: str = "B") -> Iterator["Progress"]:
    """A function of (bytes done, total bytes) that draws a bar on a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from tqdm import tqdm

    with tqdm(
        desc=printable(name),
        unit=unit,
        unit_scale=True,
        delay=BAR_SECONDS,
        leave=False,
        file=sys.stderr,
    ) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        with _redrawn(bar):
            yield progress


@contextmanager
def _redrawn(bar: Any) -> Iterator[None]:
    """Redraw a bar of tqdm from time to time: its clock moves while one large file is read."""
    over = Event()

    def redraw() -> None:
        while not over.wait(BAR_SECONDS):
            # tqdm clears the bar at the end only if this says that it has been drawn.
            bar.last_print_t = time.time()
            bar.refresh()

    clock = Thread(target=redraw, daemon=True)
    clock.start()
    try:
        yield
    finally:
        over.set()
        clock.join()
