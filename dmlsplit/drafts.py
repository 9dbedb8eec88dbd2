"""Files that appear whole or not at all."""

from __future__ import annotations

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
        If the folder cannot be written.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
    temporary = Path(name)
    try:
        # mkstemp makes a private file; the result is as readable as any other.
        mask = os.umask(0)
        os.umask(mask)
        os.fchmod(handle, 0o666 & ~mask)
        os.close(handle)
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
