"""How many threads a split may use."""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from math import ceil
from pathlib import Path

from dmlsplit.errors import InvalidArgumentError
from dmlsplit.messages import counted
from dmlsplit.system import processors

VARIABLE = "DMLSPLIT_NUM_THREADS"
MAX_THREADS = 1024


def thread_count() -> int:
    """The number of threads for one split.

    DMLSPLIT_NUM_THREADS if it is set, else the processors that this process may use, limited by
    the quotas of its control groups, and by `torch.get_num_threads()` if PyTorch is imported: a
    worker of its DataLoader has one thread, for what NumPy holds too.
    """
    setting = os.environ.get(VARIABLE, "").strip()
    if not setting:
        return _default_count()
    if not setting.isascii() or not setting.isdigit() or not 1 <= int(setting[:9]) <= MAX_THREADS:
        raise InvalidArgumentError(
            f"{VARIABLE} is {setting[:40]!r}; it must be a whole number from 1 to {MAX_THREADS}. "
            f"Fix: unset it to use {counted(_default_count(), 'thread')}"
        )
    return int(setting)


def _default_count() -> int:
    """The number of threads without the variable."""
    torch_threads = getattr(sys.modules.get("torch"), "get_num_threads", lambda: MAX_THREADS)()
    return min(len(processors()), _quota() or MAX_THREADS, torch_threads, MAX_THREADS)


@lru_cache(maxsize=1)
def _quota(
    root: Path = Path("/sys/fs/cgroup"), table: Path = Path("/proc/self/cgroup")
) -> int | None:
    """The processors that the control groups of this process allow; None if unlimited."""
    try:
        groups = list(_groups(root, table.read_text()))
    except (OSError, ValueError):  # no control groups
        return None
    return min(filter(None, map(_limit, groups)), default=None)


def _groups(root: Path, table: str) -> Iterator[Path]:
    """The folders of this process's group and of those around it, in both versions of groups."""
    for line in table.splitlines():
        _, controllers, group = line.split(":", 2)
        # A line without controllers is version 2. In a container, only outer folders may exist.
        if not controllers or "cpu" in controllers.split(","):
            folder = root / controllers / group.lstrip("/")
            yield from (folder, *folder.parents)


def _limit(folder: Path) -> int | None:
    """The processors that one control group allows; None if unlimited."""
    for names in (["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]):
        with suppress(OSError, ValueError):  # of the other version, or "max"
            words = [word for name in names for word in (folder / name).read_text().split()]
            quota, period = map(int, words)
            if quota > 0 and period > 0:
                return ceil(quota / period)
    return None
