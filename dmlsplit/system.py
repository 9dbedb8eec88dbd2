"""Functions that differ by operating system: locks, processors, open files."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# Only Windows has O_BINARY, without which it opens files as text; all others have O_NOFOLLOW.
OPEN_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)

# The byte that msvcrt locks. Nobody else can read or write a locked byte, so it is past the end of
# most files. The C library takes the position as a 32-bit long.
_LOCKED_BYTE = (1 << 31) - 2


def lock_file(handle: int) -> bool:
    """Lock a file until its descriptor is closed; False if another process holds the lock."""
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(handle, _LOCKED_BYTE, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # flock; msvcrt
        return False
    return True


@contextmanager
def closing_locked_file(handle: int) -> Iterator[None]:
    """Close a locked file that the block renames or removes: after the block, except on Windows.

    Windows cannot rename or remove open files, so there the file is closed first. If another
    process takes the lock in between, the block fails with a PermissionError.
    """
    if sys.platform == "win32":
        os.close(handle)
        yield
    else:
        try:
            yield
        finally:
            os.close(handle)


def processors() -> set[int]:
    """The numbers of the processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def allow_open_files(count: int) -> None:
    """Let this process open `count` files, if its hard limit allows that."""
    if sys.platform == "win32":  # 8192 files, a fixed limit
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        with suppress(ValueError):  # beyond the hard limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
