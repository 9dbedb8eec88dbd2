"""Runs of the command line in which one file operation fails or is interrupted by a signal."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support import builds
from tests.support.command import ours

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    status: int  # or the negative number of the signal that ended it
    calls: int  # calls that concern the folder
    failed: str  # the chosen call and its file; empty if there were fewer calls
    err: str


@dataclass(frozen=True)
class Runs:
    """A process that runs the command line in children."""

    process: subprocess.Popen[str]
    scratch: Path

    def run(
        self, line: list[str], folder: Path, call: int = 0, error: int = 0, signal: int = 0
    ) -> Outcome:
        """Run a command in a folder, whose `call`-th call that concerns the folder fails."""
        files = {name: str(self.scratch / name) for name in ("out", "err")}
        fault = {"at": call, "error": error, "signal": signal}
        request = {"line": line, "folder": str(folder), **fault, **files}
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return Outcome(**answer, err=Path(files["err"]).read_text())


def library(folder: Path) -> Path:
    """The compiled library, kept in a folder of `builds`."""
    source = HERE / "faults.cpp"
    line = ["g++", "-std=c++20", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]

    def compile_to(target: Path) -> None:
        subprocess.run([*line, str(source), "-o", str(target), "-ldl"], check=True)

    return builds.made(folder / f"faults-{builds.key(source.read_text(), *line)}.so", compile_to)


@contextmanager
def running(builds_folder: Path, scratch: Path) -> Iterator[Runs]:
    """Start the process, and end it at the end of the block."""
    faults = library(builds_folder)
    environment = {
        **ours(),
        # LD_PRELOAD separates names at spaces, which may be in the folder's path.
        "LD_PRELOAD": faults.name,
        "LD_LIBRARY_PATH": str(faults.parent),
        "DMLSPLIT_NUM_THREADS": "1",
    }
    line = [sys.executable, str(HERE / "server.py")]
    pipe = subprocess.PIPE
    with subprocess.Popen(line, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        yield Runs(process, scratch)
        assert process.stdin
        process.stdin.close()
