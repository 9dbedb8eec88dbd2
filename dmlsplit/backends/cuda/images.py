"""Compiled kernels on disk: one file each, shared by processes, up to a limit.

A file's name is a digest of all that its content depends on. If a file is missing, damaged, no
regular file or cannot be written, the kernel is compiled again.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from dmlsplit.atomic import atomic_write

# The most recently read files are kept; a kernel takes 5 to 40 KB.
MOST_FILES = 512
MOST_BYTES = 16 << 20  # of a file
_DIGEST_BYTES = sha256().digest_size


def folder() -> Path | None:
    """The folder of the files, inside CuPy's; None if the user wants no files."""
    if os.environ.get("CUPY_CACHE_IN_MEMORY", "0") not in ("", "0"):
        return None
    try:
        of_cupy = os.environ.get("CUPY_CACHE_DIR") or Path.home() / ".cupy" / "kernel_cache"
    except RuntimeError:  # no HOME, and no entry in the password database
        return None
    return Path(of_cupy) / "dmlsplit"


def file_name(source: str, made_for: Iterable[str]) -> str:
    """The file name of a source that is compiled with options, by a compiler."""
    return sha256("\0".join([source, *made_for]).encode()).hexdigest()[:40] + ".image"


def read(name: str) -> bytes | None:
    """A compiled kernel; None if the file is missing or damaged."""
    directory = folder()
    if directory is None:
        return None
    with suppress(OSError):
        content = _content(directory / name)
        digest, image = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if sha256(image).digest() == digest:
            with suppress(OSError):  # readable, but not writable
                os.utime(directory / name)
            return image
    return None


def _content(path: Path) -> bytes:
    """The content of a regular file that is not too long, else nothing: a FIFO would block."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    return content if len(content) <= MOST_BYTES else b""


def write(name: str, image: bytes) -> None:
    """Keep a compiled kernel, if possible, and remove the least recently used ones."""
    directory = folder()
    if directory is None:
        return
    with suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
        with atomic_write(directory / name) as temporary:
            temporary.write_bytes(sha256(image).digest() + image)
        _prune(directory)


def _prune(directory: Path) -> None:
    """Remove the oldest files, also those of killed processes, beyond MOST_FILES."""
    # Another process may remove files at the same time.
    with os.scandir(directory) as entries:
        files = []
        for entry in entries:
            with suppress(FileNotFoundError):
                files.append((entry.stat().st_mtime_ns, entry.path))
    for _, path in sorted(files)[: max(0, len(files) - MOST_FILES)]:
        Path(path).unlink(missing_ok=True)
