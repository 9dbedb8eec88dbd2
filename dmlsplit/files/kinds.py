"""Recognises files that are not what their names promise, by their first bytes."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path

from dmlsplit.errors import InvalidArgumentError, limit_error

BEGINNING_BYTES = 4096
_ARCHIVES = {
    b"PK\x03\x04": "a zip archive",
    b"\x1f\x8b": "gzip data",
    b"BZh": "bzip2 data",
    b"\xfd7zXZ\x00": "xz data",
    b"\x28\xb5\x2f\xfd": "zstd data",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
}
_PAGES = (b"<!doctype html", b"<html>", b"<html ", b"<head>", b"<body>")
# The control characters that text does not have; it may have white space and colours.
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")


@contextmanager
def name_kind_in_errors(path: str | PathLike[str], binary: bool = False) -> Iterator[None]:
    """If the block fails to read a file (of a `binary` format), say what the file is, if known."""
    try:
        yield
    except InvalidArgumentError:
        start = b""
        with suppress(OSError, ValueError):
            start = read_beginning(Path(path))
        description = identify(start)
        if not description and binary and start and is_text(start):
            description = "is text, not an ONNX model, which is binary. Fix: export the model again"
        if not description:
            raise
        raise InvalidArgumentError(description) from None


def check_size(path: Path, most_bytes: int, fix: str = "") -> None:
    """Refuse a path that is not a regular file, and a file of more than `most_bytes` bytes."""
    if not path.exists():
        raise InvalidArgumentError("cannot be read: No such file or directory")
    if not path.is_file():
        raise InvalidArgumentError("is not a regular file. Fix: give the name of one")
    if (size := path.stat().st_size) > most_bytes:
        hint = f". Fix: {fix}" if fix else ""
        raise limit_error(f"it has {size:,} bytes, and at most {most_bytes:,} are read{hint}")


def read_beginning(path: Path) -> bytes:
    """The first bytes of a file; empty for a path that is not a regular file."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(BEGINNING_BYTES)


def identify(start: bytes) -> str:
    """What a file with these first bytes is, and the fix; empty if unknown."""
    if start.startswith(b"version https://git-lfs.github.com/spec/"):
        fix = "git lfs pull; in GitHub Actions, set lfs: true for actions/checkout"
        return f"is a Git LFS pointer. Fix: {fix}"
    for mark, name in _ARCHIVES.items():
        if start.startswith(mark):
            return f"is {name}. Fix: unpack it"
    if start.lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(_PAGES):
        return "is a web page. Fix: download the file that the page links to"
    return ""


def is_text(start: bytes) -> bool:
    """Whether the first bytes of a file are UTF-8 text, whose last character may be cut off."""
    text = start.decode("utf-8", "ignore")
    return len(text.encode()) > len(start) - 4 and not _CONTROLS.search(text)
