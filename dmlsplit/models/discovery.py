"""Finds the splits of files, folders, patterns and options."""

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.directml.tensor import TensorDesc, parse_data_type
from dmlsplit.errors import DmlError, InvalidArgumentError, one_line
from dmlsplit.models.site import Known, OnnxModel, SplitSite

if TYPE_CHECKING:
    from dmlsplit.models.onnx.dimensions import FixedSizes

ENDINGS = (".onnx", ".xml", ".json")
# In a folder, only models are found: any .json may be there, and most .xml files are not models.
_FOLDER_ENDINGS = (".onnx", ".xml")
# The models that a search of folders skips.
SKIPPED = "hidden, in a virtual environment, or a link out of the folder"


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of scanning some files."""

    # The splits, in the order of the files.
    sites: tuple[SplitSite, ...]
    # The files that cannot be read, and why, in one line each.
    unreadable: tuple[tuple[str, str], ...]
    files: tuple[str, ...] = ()
    # How many models the search of folders skipped.
    skipped_count: int = 0
    # The names of dimensions that none of several models has, each with what to give instead.
    unused: tuple[tuple[str, str], ...] = ()
    # The ONNX models without a split, which a runtime may still refuse to load.
    without_splits: tuple[OnnxModel, ...] = ()

    def inputs(self) -> Iterator[str]:
        """The files, and those in which models keep their weights and values."""
        for file in self.files:
            yield file
            # A folder is not an input, and would keep the report out of all files in it.
            names = map(str, _data_files(Path(file)))
            # Unlike Path.is_dir, this raises nothing for a name that is too long.
            yield from (name for name in names if not os.path.isdir(name))  # noqa: PTH112


class FileScan(NamedTuple):
    """The splits of a file, and if it is an ONNX model, what decides whether it loads."""

    sites: list[SplitSite]
    model: OnnxModel | None = None


class _Search(NamedTuple):
    """The files that paths stand for."""

    # The bytes of each file, in the order of the paths.
    files: dict[str, int]
    # The models that the search of folders skipped.
    skipped: set[str]
    # The paths that cannot be read, and why, in one line each.
    unreadable: list[tuple[str, str]]


def _data_files(model: Path) -> Iterable[Path]:
    """The files in which a model keeps its weights and values."""
    match model.suffix.lower():
        case ".onnx":
            from dmlsplit.models.onnx.scanner import weight_files

            return weight_files(model)
        case ".json":
            from dmlsplit.models.dxdispatch.scanner import source_files

            return source_files(model)
    return [model.with_suffix(".bin")]


def scan_paths(
    paths: Sequence[str],
    progress: Callable[[int, int], None] = lambda done, total: None,
    dimensions: "FixedSizes | None" = None,
    *,
    include_hidden: bool = False,
) -> Scan:
    """Scan files, folders and glob patterns; one bad file does not stop the others.

    Unless `include_hidden` is set, models in a folder that are hidden or in a virtual environment
    are skipped: they are rarely the user's own. `progress` gets the bytes done and the total
    after each file. `dimensions` apply to ONNX models; a name in them that no model has is an
    error, unless there are several models.
    """
    files, skipped, unreadable = _search(paths, include_hidden=include_hidden)
    scans: list[FileScan] = []
    done = 0
    for file, size in files.items():
        try:
            scans.append(scan_any(file, dimensions))
        except (DmlError, OSError, RecursionError, MemoryError) as error:
            unreadable.append((file, one_line(error, with_path=False)))
        done += size
        progress(done, sum(files.values()))
    return Scan(
        sites=tuple(site for scan in scans for site in scan.sites),
        unreadable=tuple(unreadable),
        files=tuple(files),
        skipped_count=len(skipped.difference(files)),
        unused=_unused_sizes(dimensions, files) if dimensions and not unreadable else (),
        without_splits=tuple(scan.model for scan in scans if scan.model and not scan.sites),
    )


def _search(paths: Iterable[str], *, include_hidden: bool) -> _Search:
    """Search for the files that paths stand for."""
    files: dict[str, int] = {}
    skipped: set[str] = set()
    unreadable: list[tuple[str, str]] = []
    for path in paths:
        try:
            found, left, errors = _files(path, include_hidden=include_hidden)
        except (DmlError, OSError) as error:
            unreadable.append((path, one_line(error, with_path=False)))
        else:
            files |= {file: _size(file) for file in found}
            skipped.update(left)
            unreadable += [(str(e.filename), one_line(e, with_path=False)) for e in errors]
    return _Search(files, skipped, unreadable)


def _unused_sizes(dimensions: "FixedSizes", files: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The names of sizes that no model has, with what to give instead; an error for one model."""
    models = [file for file in files if file.lower().endswith(".onnx")]
    # CI may pass many models, or only changed ones, so there an unused name is not a mistake.
    if len(models) == 1:
        dimensions.check_all_used()
    return tuple((name, dimensions.fix(name)) for name in dimensions.unused)


def model_files(paths: Sequence[str], *, include_hidden: bool = False) -> list[tuple[str, str]]:
    """The files that `scan_paths` scans, each with the folder that its path is relative to.

    That is the folder that was given, that of the file, or the part of a pattern before its first
    ``*``. Paths that lead nowhere are left out; the scan says why.
    """
    files: list[tuple[str, str]] = []
    for path in paths:
        with suppress(DmlError, OSError):
            files += [
                (file, _root(path)) for file in _files(path, include_hidden=include_hidden)[0]
            ]
    return files


def _root(path: str) -> str:
    """The folder that the files of a path are relative to; `model_files` says which."""
    if Path(path).is_dir():
        return path
    if Path(path).exists():
        return str(Path(path).parent)
    parts = takewhile(lambda part: not glob.has_magic(part), Path(path).parent.parts)
    return str(Path(*parts))


def scan_file(file: str, dimensions: "FixedSizes | None" = None) -> list[SplitSite]:
    """The splits of one model or descriptor file, of the type that its suffix names."""
    return scan_any(file, dimensions).sites


def scan_any(file: str, dimensions: "FixedSizes | None" = None) -> FileScan:
    """Scan one model or descriptor file, of the type that its suffix names."""
    ending = Path(file).suffix.lower()
    if file != "-" and not Path(file).exists():
        raise InvalidArgumentError("cannot be read: No such file or directory")
    if ending not in ENDINGS:
        if file == "-":
            raise InvalidArgumentError("standard input cannot be read. Fix: give a file")
        raise InvalidArgumentError(
            f"its name must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}. Fix: export the "
            "model to ONNX, or rename the file"
        )
    if not Path(file).is_file():
        raise InvalidArgumentError("is not a regular file. Fix: copy its bytes to one")
    if ending == ".onnx":
        from dmlsplit.models.onnx import scanner as onnx

        result = onnx.scan_declarations(file, dimensions)
        return FileScan(result.sites, result.model)
    if ending == ".xml":
        from dmlsplit.models.openvino import scanner as openvino

        return FileScan(openvino.scan(file))
    from dmlsplit.models.dxdispatch import scanner as dxdispatch

    return FileScan(dxdispatch.scan(file))


def option_site(data_type: str, sizes: Sequence[int], axis: int, split: Sequence[int]) -> SplitSite:
    """The site of a descriptor given by command-line options."""
    parsed = parse_data_type(data_type, "--data-type")
    desc = SplitOperatorDesc.from_sizes(TensorDesc(parsed, sizes), axis=axis, sizes=split)
    return SplitSite(
        file="",
        graph="",
        node="descriptor",
        index=0,
        operator="DML_OPERATOR_SPLIT",
        state=Known(desc),
    )


def _size(file: str) -> int:
    """The bytes of a file; 0 if it cannot be read, which the scan reports."""
    with suppress(OSError):
        return Path(file).stat().st_size
    return 0


def _files(path: str, *, include_hidden: bool) -> tuple[list[str], list[str], list[OSError]]:
    """The files that a path stands for, those that are skipped, and errors of folders."""
    skipped: list[str] = []
    errors: list[OSError] = []
    if Path(path).is_dir():
        files, skipped, errors = _models_in(path, include_hidden=include_hidden)
    elif glob.has_magic(path) and not Path(path).exists():
        files = sorted(name for name in set(_matches(path, errors)) if not Path(name).is_dir())
    else:
        return [path], [], []
    if not files and not errors:
        fix = f"; skipped {len(skipped)} ({SKIPPED}). Fix: name them, or give --hidden"
        raise InvalidArgumentError(f"no .onnx or .xml model found{fix if skipped else ''}")
    return files, skipped, errors


def _matches(pattern: str, errors: list[OSError]) -> Iterator[str]:
    """The paths that match a pattern, and the errors of folders that cannot be read.

    Unlike in `glob`, ``**`` follows no links, which may lead in circles.
    """
    parts = Path(pattern).parts
    if "**" not in parts:
        yield from glob.iglob(pattern)  # noqa: PTH207 - Path.glob rejects absolute patterns
        return
    position = parts.index("**")
    rest = parts[position + 1 :] or ("*",)
    tops = glob.iglob(str(Path(*parts[:position]))) if position else ["."]  # noqa: PTH207
    for top in filter(os.path.isdir, tops):
        for folder, names, _ in os.walk(top, onerror=errors.append):
            names[:] = [name for name in names if not name.startswith(".")]
            yield from _matches(str(Path(glob.escape(folder), *rest)), errors)


def _models_in(folder: str, *, include_hidden: bool) -> tuple[list[str], list[str], list[OSError]]:
    """The models of a folder, those that are skipped, and errors of folders that are not skipped.

    None is skipped if `include_hidden` is set.
    """
    files: list[str] = []
    skipped: list[str] = []
    errors: list[OSError] = []
    skipped_folders: set[Path] = set()
    top = Path(folder).resolve()

    def add_error(error: OSError) -> None:
        here = Path(error.filename)
        is_skipped = here.name.startswith(".") or here.parent in skipped_folders
        if include_hidden or not is_skipped or str(here) == folder:
            errors.append(error)

    for root, _, names in os.walk(folder, onerror=add_error):
        here = Path(root)
        foreign = root != folder and (here.name.startswith(".") or "pyvenv.cfg" in names)
        if not include_hidden and (foreign or here.parent in skipped_folders):
            skipped_folders.add(here)
        for path in (here / name for name in names if _is_model(here / name)):
            is_hidden = here in skipped_folders or path.name.startswith(".")
            target = path.resolve() if path.is_symlink() else None
            if (is_hidden and not include_hidden) or not (target or top).is_relative_to(top):
                skipped.append(str(path))
            # The search finds a link's target itself, unless its name is not that of a model.
            elif target is None or target.suffix.lower() not in _FOLDER_ENDINGS:
                files.append(str(path))
    return sorted(files), skipped, errors


def _is_model(path: Path) -> bool:
    """Whether a search of folders takes a file for a model."""
    ending = path.suffix.lower()
    if ending not in _FOLDER_ENDINGS or not path.is_file():
        return False
    with suppress(OSError), path.open("rb") as file:
        return ending != ".xml" or b"<net" in file.read(4096)
    return True  # The scan reports it as unreadable.
