"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def draft(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside `path` that takes its name if the block succeeds.

    Raises
    ------
    OSError
        If `path` is there and no regular file, or its folder cannot be written.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(path.parent))
    temporary = new_draft(target.parent, path.stem, path.suffix)
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def new_draft(folder: Path, stem: str, suffix: str) -> Path:
    """Make an empty hidden file with a name of its own; who asks for it renames or removes it."""
    handle, name = tempfile.mkstemp(prefix=f".{stem}-", suffix=suffix, dir=folder)
    # mkstemp makes a private file; the result is as readable as any other.
    mask = os.umask(0)
    os.umask(mask)
    os.fchmod(handle, 0o666 & ~mask)
    os.close(handle)
    return Path(name)


def write_text(path: Path, text: str) -> None:
    """Write a text file at once; what is no file, such as /dev/stdout, is written to directly."""
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_text(text, encoding="utf-8")
        return
    with draft(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
