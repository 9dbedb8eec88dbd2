"""Functions that differ by operating system: locks, positioned reads, processors, open files."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

# Only Windows has O_BINARY, without which it opens files as text; all others have O_NOFOLLOW.
OPEN_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)

# The byte that msvcrt locks. Nobody else can read or write a locked byte, so it is past the end of
# most files. The C library takes the position as a 32-bit long.
_LOCKED_BYTE = (1 << 31) - 2

# Held during a seek and the read or write that follows it.
_position = Lock()


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
def closing(handle: int) -> Iterator[None]:
    """Close a locked file that the block renames or removes: afterwards, so that the lock holds.

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


def read_at(handle: int, buffer: memoryview, offset: int) -> int:
    """Read bytes at an offset in a file, from any thread; return their number."""
    if hasattr(os, "preadv"):
        return os.preadv(handle, [buffer], offset)
    with _position:
        os.lseek(handle, offset, os.SEEK_SET)
        data = os.read(handle, len(buffer))
    buffer[: len(data)] = data
    return len(data)


def write_at(handle: int, data: memoryview, offset: int) -> int:
    """Write bytes at an offset in a file, from any thread; return their number."""
    if hasattr(os, "pwrite"):
        return os.pwrite(handle, data, offset)
    with _position:
        os.lseek(handle, offset, os.SEEK_SET)
        return os.write(handle, data)


def reserve(handle: int, size: int) -> None:
    """Give a file this size, and reserve its bytes on disk if the system can."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)
    else:
        os.ftruncate(handle, size)


def processors() -> set[int]:
    """The numbers of the processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def allow_open_files(count: int) -> int | None:
    """Let this process open `count` files; return the limit if it stays lower, else None."""
    if sys.platform == "win32":  # 8192 files, a fixed limit
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return None
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    except ValueError:
        return hard
    return None
