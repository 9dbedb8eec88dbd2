"""Compiled kernels on disk: one file each, shared by processes.

A file's name is a digest of everything that its content depends on. If a file cannot be read, is
damaged or is not a regular file, the kernel is compiled again. The number of files does not grow
with the sizes of splits, which are arguments of kernels.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from dmlsplit.atomic import atomic_write

MAX_BYTES = 16 << 20  # of a file
_DIGEST_BYTES = sha256().digest_size


def folder() -> Path | None:
    """The folder of the files, inside CuPy's cache; None if the user has turned that off."""
    if os.environ.get("CUPY_CACHE_IN_MEMORY", "0") not in ("", "0"):
        return None
    try:
        of_cupy = os.environ.get("CUPY_CACHE_DIR") or Path.home() / ".cupy" / "kernel_cache"
    except RuntimeError:  # no HOME, and no entry in the password database
        return None
    return Path(of_cupy) / "dmlsplit"


def file_name(source: str, made_for: Iterable[str]) -> str:
    """The file name of a source; `made_for` are the options and the version of the compiler."""
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
            return image
    return None


def _content(path: Path) -> bytes:
    """The content of a regular file that is not too long, else nothing: a FIFO would block."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    return content if len(content) <= MAX_BYTES else b""


def write(name: str, image: bytes) -> None:
    """Write a compiled kernel, if possible."""
    directory = folder()
    if directory is None:
        return
    with suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
        with atomic_write(directory / name) as temporary:
            temporary.write_bytes(sha256(image).digest() + image)
