"""A cache for the output of compilers and disassemblers, keyed by their input.

Several processes can share a folder of builds, which outlives them: the tests keep theirs in
pytest's cache (the fixture `builds`). The name of a file or folder in it is a hash of everything
that it depends on, so nothing in it is ever out of date.
"""

import fcntl
import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MAX_BYTES = 1 << 30


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

    It appears complete. Of processes that need it at once, one makes it.
    """
    if _is_there(path):
        return path
    partial = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    with _locked(path):
        if not _is_there(path):
            try:
                make(partial)
                partial.rename(path)
            finally:
                _remove(partial)
    return path


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one process and thread at a time make a build, and those that share its lock."""
    lock = path.with_name(f"lock-{path.name[:2]}")
    with lock.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
        yield


def _is_there(path: Path) -> bool:
    """Whether a build exists; if so, note that it was used."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # The cache is read-only.
    return True


def prune(folder: Path, most_bytes: int = MAX_BYTES) -> None:
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
