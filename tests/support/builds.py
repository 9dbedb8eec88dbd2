"""A cache for the output of compilers and disassemblers, keyed by their input.

Several processes can share a folder of builds, which outlives them: the tests keep theirs in
pytest's cache (the fixture `builds`). The name of a file or folder in it is a hash of everything
that it depends on, so nothing in it is ever out of date.
"""

import hashlib
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

MOST_BYTES = 1 << 30


def key(*parts: str | bytes) -> str:
    """The name for a build that is made from `parts`."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8))
        digest.update(data)
    return digest.hexdigest()[:24]


def made(path: Path, make: Callable[[Path], object]) -> Path:
    """The file or folder `path`; if it is missing, `make(partial)` makes it, then it is renamed.

    It appears complete. Processes that make the same build at once do not disturb each other.
    """
    if _is_there(path):
        return path
    partial = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        make(partial)
        partial.rename(path)
    except OSError:
        # Another process was first, and a folder does not replace a folder.
        if not path.is_dir():
            raise
    finally:
        _remove(partial)
    return path


def _is_there(path: Path) -> bool:
    """Whether a build exists; if so, note that it was used."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # The cache is read-only.
    return True


def prune(folder: Path, most_bytes: int = MOST_BYTES) -> None:
    """Remove the least recently used builds until no more than `most_bytes` are left."""
    ages = {}
    for entry in folder.iterdir():
        with suppress(FileNotFoundError):  # another process has renamed it
            ages[entry] = entry.stat().st_mtime, _bytes(entry)
    total = 0
    for entry, (_, size) in sorted(ages.items(), key=lambda item: item[1], reverse=True):
        total += size
        if total > most_bytes:
            _remove(entry)


def _bytes(entry: Path) -> int:
    parts = entry.rglob("*") if entry.is_dir() else ()
    return sum(part.stat().st_size for part in (entry, *parts))


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
