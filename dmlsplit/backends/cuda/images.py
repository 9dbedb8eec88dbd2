"""Compiled kernels on disk: one file each, at most so many, shared by processes.

A file is named by all that its content depends on. Any may be missing or damaged: the kernel is
then compiled. What cannot be written is compiled again by the next process.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from dmlsplit.atomic import atomic_write

# Files that are kept, those read last; a kernel takes 5 to 40 KB.
MOST_FILES = 512
_DIGEST_BYTES = sha256().digest_size


def folder() -> Path | None:
    """The folder of the files, beside CuPy's; None if there are to be none."""
    if os.environ.get("CUPY_CACHE_IN_MEMORY", "0") not in ("", "0"):
        return None
    try:
        of_cupy = os.environ.get("CUPY_CACHE_DIR") or Path.home() / ".cupy" / "kernel_cache"
    except RuntimeError:  # HOME is not set, and the user has no entry in the password database.
        return None
    return Path(of_cupy) / "dmlsplit"


def file_name(source: str, made_for: Iterable[str]) -> str:
    """The file name of a source that is compiled with options, by a compiler."""
    return sha256("\0".join([source, *made_for]).encode()).hexdigest()[:40] + ".image"


def read(name: str) -> bytes | None:
    """A compiled kernel; None if there is no file of this name or it is damaged."""
    place = folder()
    if place is None:
        return None
    with suppress(OSError):
        content = (place / name).read_bytes()
        digest, image = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if sha256(image).digest() == digest:
            with suppress(OSError):  # Not ours to touch, but to read.
                os.utime(place / name)
            return image
    return None


def write(name: str, image: bytes) -> None:
    """Keep a compiled kernel, if files can be written, and remove those not used for longest."""
    place = folder()
    if place is None:
        return
    with suppress(OSError):
        place.mkdir(parents=True, exist_ok=True)
        with atomic_write(place / name) as (temporary,):
            temporary.write_bytes(sha256(image).digest() + image)
        _prune(place)


def _prune(place: Path) -> None:
    """Remove the oldest files, also what killed processes left, until MOST_FILES are there."""
    # Another process may remove files at the same time.
    with os.scandir(place) as entries:
        found = []
        for entry in entries:
            with suppress(FileNotFoundError):
                found.append((entry.stat().st_mtime_ns, entry.path))
    for _, path in sorted(found)[: max(0, len(found) - MOST_FILES)]:
        Path(path).unlink(missing_ok=True)
