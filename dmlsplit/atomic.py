"""Atomic writes: files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_write(*paths: Path) -> Iterator[list[Path]]:
    """Yield a temporary file beside each path; they take the names if the block succeeds.

    Raises
    ------
    OSError
        If a path exists and is not a regular file, or its folder cannot be written; both
        before the block begins.
    """
    final = [_replaceable(path) for path in paths]
    temporaries: list[Path] = []
    try:
        for path in final:
            temporaries.append(_temporary(path))
        yield temporaries
        for temporary, path in zip(temporaries, final, strict=True):
            temporary.replace(path)
    finally:
        for temporary in temporaries:
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically; a device or pipe, such as /dev/stdout, is written directly."""
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_text(text, encoding="utf-8")
        return
    with atomic_write(path) as (temporary,):
        temporary.write_text(text, encoding="utf-8")


def _replaceable(path: Path) -> Path:
    """Return where a path leads, so that a link stays a link."""
    final = path.resolve()
    if final.exists() and not final.is_file():
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    if not final.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(path.parent))
    return final


def _temporary(path: Path) -> Path:
    """Make an empty hidden file beside `path`, with the same ending."""
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
    # mkstemp makes a private file; the result is as readable as any other.
    mask = os.umask(0)
    os.umask(mask)
    os.close(handle)
    Path(name).chmod(0o666 & ~mask)
    return Path(name)
