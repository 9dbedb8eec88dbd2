"""The process in which ONNX's shape inference runs, with limits of time and memory.

Small malformed models crash its process, and others make it allocate without end, so it never runs
in the caller's. Importing onnx takes most of the time of a small model, so one child imports it for
many models and answers each from a fork, which no other model can affect. If a model ends its
process, the child ends too, and the next model starts a new one.
"""

import io
import json
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from dmlsplit.errors import UnsupportedError

SECONDS = 60  # of each model
MEMORY_BYTES = 4 << 30  # of each model's process
# An answer begins with whether it is an error, and with its length.
_HEAD = struct.Struct(">?Q")


def is_installed() -> bool:
    """Whether the package onnx is installed."""
    return find_spec("onnx") is not None


class _Child:
    """The process: started by the first model, and again after a model that ended it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] = io.BytesIO()
        self._is_late = False

    def answer(self, path: str, sizes: Mapping[str, int]) -> bytes:
        """The result of `inferred` for a model; if there is none, an UnsupportedError says why."""
        process = self._process or self._start()
        timer = threading.Timer(SECONDS, self._stop)
        timer.start()
        try:
            request = json.dumps([os.path.abspath(path), dict(sizes)])  # noqa: PTH100
            is_error, answer = _asked(process, request.encode() + b"\n")
        finally:
            timer.cancel()
            timer.join()
        if answer is None or self._is_late:
            raise UnsupportedError(self._why_it_ended(process))
        if is_error:
            raise UnsupportedError(_last_line(answer))
        return answer

    def end(self) -> None:
        """End the process, and what it is doing."""
        if self._process is not None:
            self._stop()
            self._why_it_ended(self._process)

    def _start(self) -> subprocess.Popen[bytes]:
        from tempfile import TemporaryFile

        # -P keeps Python from importing from the current folder, which may hold anything.
        line = [sys.executable, "-P", "-m", __name__]
        ours = str(Path(__file__).parents[3])
        folders = os.pathsep.join(filter(None, (ours, os.environ.get("PYTHONPATH"))))
        self._is_late, self._errors = False, TemporaryFile()  # noqa: SIM115 - lives as the child
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                line,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=os.environ | {"PYTHONPATH": folders, "OPENBLAS_NUM_THREADS": "1"},
                process_group=0,  # so that its forks end with it
            )
        except OSError as error:
            raise UnsupportedError(f"its process did not start: {error.strerror}") from None
        return self._process

    def _stop(self) -> None:
        self._is_late = True
        if self._process is not None and sys.platform == "win32":
            self._process.kill()
        elif self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _why_it_ended(self, process: subprocess.Popen[bytes]) -> str:
        self._process = None
        status = process.wait()
        with self._errors, suppress(BrokenPipeError), process:
            self._errors.seek(0)
            why = _last_line(self._errors.read())
        if self._is_late:
            return f"it took over {SECONDS} s"
        if status < 0:
            return f"it ended its process with signal {-status}"
        return f"{why} (exit status {status})"


def _asked(process: subprocess.Popen[bytes], request: bytes) -> tuple[bool, bytes | None]:
    """Whether the answer is an error, and the answer; None if the process ended before."""
    assert process.stdin
    assert process.stdout
    with suppress(BrokenPipeError):
        process.stdin.write(request)
        process.stdin.flush()
    head = process.stdout.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return True, None
    is_error, size = _HEAD.unpack(head)
    answer = process.stdout.read(size)
    return is_error, answer if len(answer) == size else None


def _last_line(said: bytes) -> str:
    lines = said.decode("utf-8", "replace").split("\n")
    why = next((text for text in reversed(lines) if text.strip()), "")
    return " ".join(why.split())[:200]


_KEPT: ContextVar[_Child | None] = ContextVar("_KEPT", default=None)


@contextmanager
def kept() -> Iterator[_Child]:
    """Keep one child for all models of the block."""
    child = _KEPT.get()
    if child is not None:
        yield child
        return
    child = _Child()
    token = _KEPT.set(child)
    try:
        yield child
    finally:
        _KEPT.reset(token)
        child.end()


def _serve() -> None:
    """Answer each line of standard input, from a fork where the system has forks."""
    # Output that libraries print must not get into the answers.
    answers = os.dup(1)
    os.dup2(2, 1)
    if sys.platform != "win32":  # Windows has no such limit.
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    import onnx.shape_inference

    assert onnx
    for request in sys.stdin.buffer:
        if sys.platform != "win32":
            fork = os.fork()
            if fork:
                status = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
                if status < 0:  # end like the fork, unless it has answered
                    os.kill(os.getpid(), -status)
                if status:
                    sys.exit(status)
                continue
            # If the caller is killed, nothing else stops this process.
            signal.alarm(2 * SECONDS)
        _write_answer(answers, *json.loads(request))
        os._exit(0)


def _write_answer(answers: int, path: str, sizes: Mapping[str, int]) -> None:
    from dmlsplit.frontends.onnx.inference import inferred

    is_error = False
    try:
        found = inferred(path, sizes)
    except Exception as error:
        found, is_error = f"{type(error).__name__}: {error}".encode(), True
    with os.fdopen(answers, "wb") as stream:
        stream.write(_HEAD.pack(is_error, len(found)))
        stream.write(found)


if __name__ == "__main__":
    _serve()
