"""Removes what Python lacks on Windows or macOS. Import it first, in a process of its own.

The list comes from CPython's documentation, "Availability", and from its sources. This is only a
simulation of Windows and macOS: paths, encodings and the like are those of Linux.
"""

import ctypes
import fcntl
import os
import signal
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

_MODULES = {"win32": ["fcntl", "resource", "pwd", "grp", "termios"], "darwin": []}
_OS = {
    "win32": "fchmod fchown sysconf sysconf_names sched_getaffinity sched_setaffinity mkfifo "
    "posix_fallocate posix_fadvise pread pwrite preadv pwritev statvfs fstatvfs "
    "copy_file_range sendfile fork O_NONBLOCK O_NOFOLLOW O_CLOEXEC O_DIRECTORY O_DIRECT "
    "O_TMPFILE getuid geteuid",
    "darwin": "sched_getaffinity sched_setaffinity posix_fallocate posix_fadvise copy_file_range "
    "O_DIRECT O_TMPFILE",
}
_SIGNALS = {"win32": "SIGHUP SIGPIPE SIGALRM SIGUSR1 SIGCHLD SIGSTOP", "darwin": ""}


def _locking(handle: int, mode: int, count: int) -> None:
    """Lock a file against others, this process included, as `msvcrt.locking` does."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise PermissionError(13, "Permission denied") from error


def _of_closed_files(act: Callable[..., None]) -> Callable[..., None]:
    """The call, but it refuses to rename or remove a file that this process has open."""

    def acting(path: Any, *rest: Any, **options: Any) -> None:
        is_open = str(Path(path).absolute()) in map(
            os.path.realpath, Path("/proc/self/fd").iterdir()
        )
        if is_open and not options:
            raise PermissionError(13, "it is open", str(path))
        act(path, *rest, **options)

    return acting


def pretend(system: str) -> None:
    """Pretend to be the system with that `sys.platform`."""
    # Modules that are already imported may use Linux's functions.
    import argparse  # noqa: F401
    import concurrent.futures.thread
    import inspect  # noqa: F401
    import multiprocessing.connection
    import multiprocessing.popen_spawn_posix  # noqa: F401
    import pathlib  # noqa: F401
    import shutil
    import subprocess  # noqa: F401
    import tempfile  # noqa: F401
    import urllib.request  # noqa: F401

    import numpy as np  # noqa: F401
    import tqdm  # noqa: F401
    import yaml  # noqa: F401

    for name in _MODULES[system]:
        sys.modules[name] = None  # type: ignore[assignment]
    for name in _OS[system].split():
        if hasattr(os, name):
            delattr(os, name)
    for name in _SIGNALS[system].split():
        delattr(signal, name)
    if system == "win32":
        msvcrt = types.ModuleType("msvcrt")
        vars(msvcrt).update(LK_NBLCK=2, LK_UNLCK=0, locking=_locking)
        sys.modules["msvcrt"] = msvcrt
        # On Windows, Python calls the system for this.
        shutil.disk_usage = lambda folder: shutil._ntuple_diskusage(2**40, 0, 2**40)  # type: ignore
        for name in ("rename", "replace", "unlink", "remove"):
            setattr(os, name, _of_closed_files(getattr(os, name)))
        honest = ctypes.CDLL.__init__

        def init(self: ctypes.CDLL, name: object, *rest: object, **options: object) -> None:
            if name is None:
                raise TypeError("LoadLibrary() argument 1 must be str, not None")
            honest(self, name, *rest, **options)  # type: ignore[arg-type]

        ctypes.CDLL.__init__ = init  # type: ignore[method-assign]
    sys.platform = system
    assert concurrent.futures.thread


if __name__ == "__main__":
    pretend(sys.argv[1])
    from dmlsplit.cli import main

    # Each exit status is on a line of its own, after the command's own output.
    for line in sys.argv[2:]:
        status = main(line.split())
        sys.stderr.write(f"status {status}\n")
    import numpy as np

    import dmlsplit as dml

    # 8 MiB, enough for more than one thread.
    whole = np.arange(1 << 21, dtype=np.float32).reshape(-1, 64)
    left, right = dml.split(whole, 2, axis=1)
    assert (left == whole[:, :32]).all()
    assert (right == whole[:, 32:]).all()
