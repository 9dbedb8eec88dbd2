"""Finds the splits of files, folders, patterns and flags."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.tensor import TensorDesc
from dmlsplit.errors import DmlError, InvalidArgumentError, UnsupportedError
from dmlsplit.frontends import SplitSite

# The module that scans a file, by the end of its name.
SCANNERS = {
    ".onnx": "dmlsplit.frontends.onnx",
    ".xml": "dmlsplit.frontends.openvino",
    ".json": "dmlsplit.frontends.dxdispatch",
}
ENDINGS = tuple(SCANNERS)
# A folder is searched for models only: any .json may lie in it, and most .xml are no models.
_IN_FOLDERS = (".onnx", ".xml")


@dataclass(frozen=True, slots=True)
class Scan:
    """What the scan of some files found.

    Attributes
    ----------
    sites : tuple of SplitSite
        In the order of the files.
    unreadable : tuple of (str, str)
        Files that could not be read, and why in one line.
    """

    sites: tuple[SplitSite, ...]
    unreadable: tuple[tuple[str, str], ...]


def scan_paths(
    paths: Sequence[str],
    endings: Sequence[str] = ENDINGS,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Scan:
    """Scan files, folders and glob patterns; one bad file does not stop the others.

    Parameters
    ----------
    paths
        Files by name; folders, searched for .onnx and OpenVINO .xml models; patterns such as
        ``models/**/*.onnx``.
    endings
        The kinds of files to take.
    progress
        Called with the bytes done and the bytes in all after each file.
    """
    unreadable: list[tuple[str, str]] = []
    files: dict[str, int] = {}
    for path in paths:
        try:
            files |= {file: _size(file) for file in _files(path, endings)}
        except (DmlError, OSError) as error:
            unreadable.append((path, one_line(error, path)))
    sites: list[SplitSite] = []
    done, total = 0, sum(files.values())
    for file, size in files.items():
        try:
            sites += scan_file(file, endings)
        except (DmlError, OSError, RecursionError, MemoryError) as error:
            unreadable.append((file, one_line(error, file)))
        done += size
        progress(done, total)
    return Scan(tuple(sites), tuple(unreadable))


def scan_file(file: str, endings: Sequence[str] = ENDINGS) -> list[SplitSite]:
    """Scan one model or descriptor file, by the end of its name.

    Raises
    ------
    InvalidArgumentError
        If the file is damaged, or of no known kind.
    UnsupportedError
        If a package that its format needs is not installed.
    OSError
        If it cannot be read.
    """
    ending = Path(file).suffix.lower()
    if ending not in endings:
        raise InvalidArgumentError(
            f"its name ends in {ending!r}; it must end in {' or '.join(endings)}"
        )
    if Path(file).exists() and not Path(file).is_file():
        raise InvalidArgumentError("is not a regular file")
    try:
        scanner = import_module(SCANNERS[ending])
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"{ending} files need the package {error.name}; pip install 'dmlsplit[{error.name}]'"
        ) from None
    sites: list[SplitSite] = scanner.scan(file)
    return sites


def flag_site(data_type: str, sizes: Sequence[int], axis: int, split: Sequence[int]) -> SplitSite:
    """Return the site of a descriptor that was given by flags.

    Raises
    ------
    InvalidArgumentError
        If there is no such data type.
    """
    try:
        tensor = TensorDesc(data_type, sizes)
    except ValueError as error:
        raise InvalidArgumentError(str(error)) from None
    desc = SplitOperatorDesc.from_sizes(tensor, axis=axis, sizes=split)
    return SplitSite("flags", "", "descriptor", 0, "DML_OPERATOR_SPLIT", (desc,))


def one_line(error: Exception, file: str = "") -> str:
    """Return the message of an error in one line, without the name of the file before it."""
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = " ".join(str(error).split()) or type(error).__name__
    return text.removeprefix(repr(file)).removeprefix(file).lstrip(": ") if file else text


def _size(file: str) -> int:
    try:
        return Path(file).stat().st_size
    except OSError:
        return 0


def _files(target: str, endings: Sequence[str]) -> Iterator[str]:
    path = Path(target)
    if path.is_dir():
        yield from _found(target, _models_in(target, endings))
    elif glob.has_magic(target) and not path.exists():
        # Path.glob takes no absolute pattern.
        names = glob.iglob(target, recursive=True)  # noqa: PTH207
        matches = (name for name in names if not Path(name).is_dir())
        yield from _found(target, matches)
    else:
        yield target


def _found(target: str, files: Iterator[str]) -> list[str]:
    found = sorted(files)
    if not found:
        raise InvalidArgumentError("no .onnx or .xml model found")
    return found


def _models_in(folder: str, endings: Sequence[str]) -> Iterator[str]:
    wanted = set(_IN_FOLDERS).intersection(endings)
    for root, _, names in os.walk(folder, followlinks=False):
        for name in names:
            path = Path(root, name)
            # Nothing outside the folder is read: links are left alone.
            plain = path.is_file() and not path.is_symlink()
            if plain and path.suffix.lower() in wanted and _looks_like_a_model(path):
                yield str(path)


def _looks_like_a_model(path: Path) -> bool:
    if path.suffix.lower() != ".xml":
        return True
    try:
        with path.open("rb") as file:
            return b"<net" in file.read(4096)
    except OSError:
        return True
