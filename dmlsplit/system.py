"""Functions that differ by operating system: processors and open files."""

import os
import sys
from contextlib import suppress


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
