"""Atomic writes: files that appear whole or not at all.

A file is written as a hidden draft in the folder of its final name, and renamed when it is
complete. The draft is locked while its writer lives; the next writer overwrites what a killed one
left. No output replaces a file that the same command reads.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import EINVAL, ELOOP, ENOENT, ENOSPC, EWOULDBLOCK
from pathlib import Path
from shutil import disk_usage

from dmlsplit.errors import InvalidArgumentError
from dmlsplit.file_kinds import is_text, read_beginning
from dmlsplit.system import OPEN_FLAGS, closing_locked_file, lock_file


def write_text(path: Path, text: str, inputs: Sequence[Path] = ()) -> None:
    """Write a text file atomically; write directly to a device or pipe, such as /dev/stdout.

    Inputs are refused, and so are binary files, such as models and their weights.
    """
    refuse_inputs(path, inputs)
    # A device, a pipe, or a link in /dev or /proc to an open file.
    is_stream = path.is_symlink() and path.absolute().parts[1] in ("dev", "proc")
    if is_stream or (path.exists() and not path.is_file() and not path.is_dir()):
        with name_in_errors(path), path.open("a", encoding="utf-8") as file:
            file.write(text)
        return
    with atomic_write(path) as draft, name_in_errors(path):
        if not is_text(read_beginning(resolve_destination(path))):
            raise InvalidArgumentError(
                f"{path} holds binary data; text must not replace it. Fix: name another file"
            )
        draft.write_text(text, encoding="utf-8")


def refuse_inputs(path: Path, inputs: Sequence[Path]) -> None:
    """Refuse a path that is an input, is inside an input folder, or contains an input."""
    final = Path(os.path.realpath(path))
    for source in inputs:
        real = Path(os.path.realpath(source))
        is_input = final == real
        with suppress(OSError):
            is_input |= final.samefile(real)
        if is_input or final in real.parents or real in final.parents:
            relation = "is the input" if is_input else "contains, or is part of, the input"
            name = "" if path == source else f" {source}"
            raise InvalidArgumentError(f"{path} {relation}{name}; name another output")


@contextmanager
def name_in_errors(path: Path) -> Iterator[None]:
    """Let every OSError of the block name this file; system calls name no file, or the draft."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def lock(path: Path) -> int:
    """Create a file unless it exists, lock it, and return its descriptor.

    The lock ends when the descriptor is closed or the process dies. If another process holds it, a
    BlockingIOError is raised.
    """
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | OPEN_FLAGS, 0o666)
        try:
            if not lock_file(handle):
                why = "is in use: another process is writing it"
                raise BlockingIOError(EWOULDBLOCK, why, str(path))
        except OSError:
            os.close(handle)
            raise
        if is_open_as(handle, path):
            return handle
        # The previous holder removed or renamed the file before it released the lock.
        os.close(handle)


def is_open_as(handle: int, path: Path) -> bool:
    """Whether a descriptor is of the file that has this name now."""
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False


def check_space(folder: Path, size: int) -> None:
    """Refuse to write more bytes than are free in a folder."""
    disk = disk_usage(folder)
    # Some network file systems do not report their size.
    if size > disk.free and disk.total:
        raise OSError(
            ENOSPC, f"does not fit: {size} bytes are needed, {disk.free} are free", str(folder)
        )


def resolve_destination(path: Path) -> Path:
    """The file to replace, a regular one or a new one. Links are followed, so they stay links."""
    final = Path(os.path.realpath(path))
    if final.is_symlink():
        raise OSError(ELOOP, os.strerror(ELOOP), str(path))
    if final.exists() and not final.is_file():
        raise OSError(EINVAL, "is not a regular file", str(path))
    if not final.parent.is_dir():
        if path.is_symlink():
            why = f"is a link to {final}, in a folder that does not exist"
            raise FileNotFoundError(ENOENT, why, str(path))
        raise FileNotFoundError(ENOENT, "there is no such folder", str(path.parent))
    return final


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """An empty hidden file beside the final one, which it becomes if the block succeeds.

    An OSError is raised for a path that is not a regular file, cannot be written, or is being
    written by another process. Errors name the path, never the draft.
    """
    final = resolve_destination(path)
    draft = final.with_name(f".{final.stem}-dmlsplit{final.suffix}")
    with name_in_errors(path):
        handle = lock(draft)
    try:
        with name_in_errors(path):
            os.ftruncate(handle, 0)
        yield draft
        with name_in_errors(path):
            os.fsync(handle)  # otherwise a power failure could leave the name without the bytes
    except BaseException as error:
        # By now the name may belong to the draft of another process.
        is_ours = is_open_as(handle, draft)
        with suppress(OSError), closing_locked_file(handle):
            if is_ours:
                draft.unlink()
        if isinstance(error, OSError) and error.filename == str(draft):
            error.filename, error.filename2 = str(path), None
        raise
    with closing_locked_file(handle), name_in_errors(path):
        try:
            draft.replace(final)
        except OSError:
            with suppress(OSError):
                draft.unlink()
            raise
