"""A process with limits of time and memory that compares models: see `comparison`.

ONNX Runtime's loader ends its process for some small models, and others fill the memory. A
comparison that ends the process, or exceeds a limit, is an error; the next one starts another.
"""

import atexit
import json
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Timer
from typing import IO, Any

from dmlsplit.errors import UnsupportedError
from dmlsplit.lint.fix.comparison import Comparison, Pair, compare

# The processor time that a comparison may take.
SECONDS = 60
# The bytes of address space that the process may take. Runtimes need up to 10 times the bytes of an
# input, of which there are at most `MAX_COMPARED_BYTES` of `split_forms`.
MEMORY = 8 << 30
# The most processes that are started: a model with thousands of splits, each of which ends its
# process, must not take hours.
MAX_PROCESSES = 10
_starts = iter(range(MAX_PROCESSES))
# The package need not be installed, so the process is told where it is.
_ROOT = str(Path(__file__).parents[3])
PROGRAM = f"import sys; sys.path.append({_ROOT!r})\n"
PROGRAM += "from dmlsplit.lint.fix import sandbox; sandbox.main()"


def compare_apart(pair: Pair) -> Comparison:
    """`comparison.compare` in the process with limits."""
    comparison = _ask_process(pair)
    if comparison is None and _ask_process(pair._replace(replacement=pair.original)) is None:
        # The original ends ONNX Runtime.
        comparison = _ask_process(pair._replace(runtimes=pair.runtimes[1:]))
    if comparison is None:
        text = f"it ended the process, which may use {SECONDS} s and {MEMORY:,} bytes of memory"
        return Comparison(failed=pair.shapes, error=text)
    return comparison


def _ask_process(pair: Pair) -> Comparison | None:
    """The comparison in the process; None, and a new process next time, if it ended."""
    comparison = _process().compare(pair)
    if comparison is None:
        _process.cache_clear()
    return comparison


class _Process:
    """A running process, which ends when this one does."""

    def __init__(self) -> None:
        # -P: a module in the current folder is not imported.
        self._process = subprocess.Popen(  # noqa: S603 - no shell, and a constant
            [sys.executable, "-P", "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        atexit.register(self.close)

    def close(self) -> None:
        """End the process, and wait for that."""
        atexit.unregister(self.close)
        self._process.kill()
        with suppress(BrokenPipeError):
            self._process.communicate()

    def compare(self, pair: Pair) -> Comparison | None:
        """A comparison, or None if the process did not survive it."""
        # A process that waits takes no processor time, hence a limit of its own.
        timer = Timer(2 * SECONDS, self._process.kill)
        timer.start()
        try:
            assert self._process.stdin
            assert self._process.stdout
            _send(self._process.stdin, pair)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = b""
        finally:
            timer.cancel()
        if not line:
            self.close()
            return None
        return Comparison(*json.loads(line))


def _send(stream: IO[bytes], pair: Pair) -> None:
    """Write a pair: a line of JSON, with the lengths of the models first, then the models."""
    sizes = len(pair.original), len(pair.replacement)
    stream.write(json.dumps([*sizes, *pair[2:]]).encode() + b"\n")
    stream.write(pair.original + pair.replacement)
    stream.flush()


def _receive(stream: IO[bytes]) -> Pair | None:
    """The next pair, or None at the end."""
    line = stream.readline()
    if not line:
        return None
    first, second, *rest = json.loads(line)
    return Pair(stream.read(first), stream.read(second), *rest)


def main() -> None:
    """Answer each pair that is read with its comparison, until the input ends."""
    import os

    # What libraries print must not be taken for an answer.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        _limit_resource("RLIMIT_AS", MEMORY)
        while pair := _receive(sys.stdin.buffer):
            _limit_resource("RLIMIT_CPU", int(sum(os.times()[:2])) + SECONDS)
            answers.write(json.dumps(compare(pair)) + "\n")
            answers.flush()


def _limit_resource(name: str, limit: int) -> None:
    """Lower a limit of this process to `limit`, or to the hard limit if that is lower."""
    if sys.platform == "win32":  # the timer of `_Process` ends the process there
        return
    import resource

    number: Any = getattr(resource, name)
    _, hard = resource.getrlimit(number)
    soft = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(number, (soft, hard))


@cache
def _process() -> _Process:
    """The process that runs now; an UnsupportedError if too many have ended."""
    if next(_starts, None) is None:
        raise UnsupportedError(
            "the comparison with its replacement was not made: others before it crashed or took "
            f"too long {MAX_PROCESSES} times"
        )
    return _Process()
