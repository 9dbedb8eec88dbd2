"""Commands in children, without starting Python and its imports each time.

They are forked from a process that has imported what commands import.
"""

import atexit
import multiprocessing
import os
import sys
import tempfile
import threading
from functools import cache
from multiprocessing import forkserver
from pathlib import Path

import pytest

from dmlsplit.__main__ import main
from tests.support.command import ROOT

_IMPORTED = ["numpy", "onnx.reference", "pytest", "dmlsplit.cli.validate", __name__]
_IMPORTED += ["zarr.codecs", "dask.array", "dmlsplit.storage.stores"]
_TIME_LIMIT_S = 120
_NAMES = "stdin", "stdout", "stderr"


@cache
def _context() -> multiprocessing.context.ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        forkserver.ensure_running()
    return context


def forked(line: str, streams: str = "", before: str = "") -> tuple[int | None, str, str]:
    """How a command ends, with redirections of the shell such as ``2>&-``: status and output."""
    with tempfile.TemporaryDirectory() as folder:
        child = _context().Process(target=_command, args=(line, streams, before, folder))
        child.start()
        child.join(_TIME_LIMIT_S)
        child.kill()
        child.join()
        out, err = ((Path(folder) / name).read_text() for name in _NAMES[1:])
    return child.exitcode, out, err


def _command(line: str, streams: str, before: str, folder: str) -> None:
    for number, name in enumerate(_NAMES):
        os.dup2(os.open(f"{folder}/{name}", os.O_RDWR | os.O_CREAT), number)
    for stream in streams.split():
        number = {"<": 0, ">": 1, "2": 2}[stream[0]]
        if stream.endswith("&-"):
            os.close(number)
            setattr(sys, _NAMES[number], None)  # as Python does when it starts
        else:
            os.dup2(os.open(stream[1:], os.O_WRONLY), number)
    sys.argv[1:] = line.split()
    exec(before, {})
    status = main()
    threading._shutdown()  # as at the end of Python
    atexit._run_exitfuncs()
    sys.exit(status)
