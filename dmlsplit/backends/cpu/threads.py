"""How many threads a split may use."""

import os
from functools import lru_cache
from math import ceil
from pathlib import Path

from dmlsplit.errors import InvalidArgumentError
from dmlsplit.system import processors

VARIABLE = "DMLSPLIT_NUM_THREADS"
MAX_THREADS = 1024


def thread_count() -> int:
    """The number of threads for one split.

    DMLSPLIT_NUM_THREADS if it is set, else the processors that this process may use, limited by
    the quota of its control group.
    """
    setting = os.environ.get(VARIABLE, "").strip()
    if not setting:
        return min(len(processors()), _quota() or MAX_THREADS, MAX_THREADS)
    if not setting.isascii() or not setting.isdigit() or not 1 <= int(setting[:9]) <= MAX_THREADS:
        raise InvalidArgumentError(
            f"{VARIABLE} is {setting[:40]!r}; it must be a whole number from 1 to {MAX_THREADS}. "
            f"Fix: unset it to use all {len(processors())} processors of this process"
        )
    return int(setting)


@lru_cache(maxsize=1)
def _quota(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """The processors that the control group allows (cpu.max); None if unlimited."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
        return max(1, ceil(int(quota) / int(period)))
    except (OSError, ValueError, ZeroDivisionError):  # no control group, or "max"
        return None
