"""Atomic writes: files that appear whole or not at all.

A file is written as a hidden draft in the folder of its final name, under a name that nothing else
has, and renamed when it is complete. Only a writer that is killed leaves its draft. No output
replaces a file that the same command reads.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import EINVAL, ELOOP, ENOENT, ENOSPC
from pathlib import Path
from shutil import disk_usage, rmtree

from dmlsplit.errors import InvalidArgumentError
from dmlsplit.files.kinds import is_text, read_beginning

# The most characters of a file's suffix that its draft has, so that the draft's name is not too
# long. A suffix that says how to read a file is shorter.
_MAX_SUFFIX = 16


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
    final = resolve_destination(path)
    with name_in_errors(path):
        is_binary = not is_text(read_beginning(final))
    if is_binary:
        raise InvalidArgumentError(
            f"{path} holds binary data; text must not replace it. Fix: name another file"
        )
    with atomic_write(path) as draft, name_in_errors(path):
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
            raise InvalidArgumentError(f"{path} {relation}{name}. Fix: name another output")


@contextmanager
def name_in_errors(path: Path) -> Iterator[None]:
    """Let every OSError of the block name this file; system calls name no file, or the draft."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        error.filename2 = None
        raise


def check_space(folder: Path, size: int) -> None:
    """Refuse to write more bytes than are free in a folder."""
    disk = disk_usage(folder)
    # Some network file systems do not report their size.
    if size > disk.free and disk.total:
        text = f"does not fit: {size} bytes are needed, {disk.free} are free"
        raise OSError(ENOSPC, text, str(folder))


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

    An OSError is raised for a path that is not a regular file or cannot be written. Errors name
    the path, never the draft. Of two writers of a file, the one that ends last wins.
    """
    final = resolve_destination(path)
    draft = final.with_name(_hidden_name() + final.suffix[:_MAX_SUFFIX])
    try:
        with name_in_errors(path):
            draft.touch(exist_ok=False)
        yield draft
        with name_in_errors(path):
            with draft.open("rb+") as file:
                os.fsync(file.fileno())  # otherwise a power failure could leave an empty file
            draft.replace(final)
    except BaseException as error:
        with suppress(OSError):
            draft.unlink()
        if isinstance(error, OSError) and error.filename == str(draft):
            error.filename = str(path)
            error.filename2 = None
        raise


@contextmanager
def hidden_folder(parent: Path) -> Iterator[Path]:
    """A new hidden folder, in which files are written that get their names in `parent` later.

    It is removed after the block, even if the first interrupt comes while it is made or removed:
    `tempfile` would then leave it.
    """
    folder = parent / _hidden_name()
    try:
        with name_in_errors(parent):
            folder.mkdir()
        yield folder
    finally:
        try:
            rmtree(folder, ignore_errors=True)
        except KeyboardInterrupt:
            rmtree(folder, ignore_errors=True)
            raise


def _hidden_name() -> str:
    """A name that no other file has, as `tempfile` makes it."""
    return f".dmlsplit-{os.urandom(8).hex()}"
