"""The hidden folder ``.NAME.unfinished``, in which pieces are written before they get their names.

It is in the folder of the pieces. It holds ``lock``, which is locked while a run uses the folder,
the drafts of the pieces and, between two renames, an old piece. If a run was killed, the next run
in the folder of the pieces removes its drafts, and gives old pieces their names back.
"""

import ctypes
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import EINVAL, ENOSYS, EOPNOTSUPP, EXDEV
from pathlib import Path
from typing import Any
from uuid import uuid4

from dmlsplit.atomic import lock, name_in_errors, refuse_inputs
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.interrupts import delay_interrupts
from dmlsplit.system import closing_locked_file

# A folder with one of these files is a zarr array.
ARRAY_FILES = ("zarr.json", ".zarray")
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
_OLD = "old-"
# A folder that has any other file was not made here, whatever its name is.
_DRAFT_NAMES = re.compile(rf"lock|\d+-[0-9a-f]{{32}}|{_OLD}.+", re.DOTALL)


def array_files(store: Path) -> list[Path]:
    """The files that make a folder a zarr array, if any."""
    return [store / name for name in ARRAY_FILES if (store / name).is_file()]


@contextmanager
def drafts(
    folder: Path, source: Path, destinations: Sequence[Path], overwrite: bool
) -> Iterator[list[Path]]:
    """A path in a hidden folder for each piece; if the block succeeds, the pieces get their names.

    Raises
    ------
    InvalidArgumentError
        If another run uses the folder, or a destination exists and may not be replaced, or is the
        `source`.
    """
    handle = _lock(folder)
    # A worker of a cluster may still write after its run was stopped, so each run has names of its
    # own.
    run = uuid4().hex
    paths = [folder / f"{index}-{run}" for index in range(len(destinations))]
    try:
        _clear(folder)
        _remove_dead(folder.parent)
        _check_destinations(source, destinations, overwrite)
        try:
            yield paths
        except KeyboardInterrupt as stop:
            stop.add_note("the same command starts over")
            raise
        with delay_interrupts():
            _publish(paths, destinations)
    finally:
        _release(folder, handle)


def _publish(paths: Sequence[Path], destinations: Sequence[Path]) -> None:
    for count, (draft, destination) in enumerate(zip(paths, destinations, strict=True)):
        try:
            _take_name(draft, destination, draft.with_name(_OLD + destination.name))
        except OSError as error:
            raise OSError(
                error.errno,
                f"{error.strerror}; {count} of {len(destinations)} pieces are in place. "
                "Fix: run the same command again with --overwrite",
                str(destination),
            ) from None


def _lock(folder: Path) -> int:
    """Create the hidden folder if needed, and lock it."""
    while True:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(exist_ok=True)
        if not _has_only_drafts(folder):
            raise InvalidArgumentError(
                f"{folder} holds other files than a run's drafts; it is not used. Fix: move it away"
            )
        try:
            with name_in_errors(folder / "lock"):
                return lock(folder / "lock")
        except BlockingIOError:
            raise InvalidArgumentError(
                f"{folder} is in use: another run writes the same pieces. Fix: wait until it ends"
            ) from None
        except FileNotFoundError:  # another run has just ended and removed the folder
            continue


def _has_only_drafts(folder: Path) -> bool:
    return all(_DRAFT_NAMES.fullmatch(entry.name) for entry in folder.iterdir())


def _remove_dead(folder: Path) -> None:
    """Remove the hidden folders that killed runs left. Those of live runs are locked, and stay."""
    for other in folder.glob(".*.unfinished"):
        with suppress(OSError):
            if any(other.iterdir()) and _has_only_drafts(other):
                _release(other, lock(other / "lock"))


def _clear(folder: Path) -> None:
    """Remove everything in a hidden folder but its lock; old pieces get their names back."""
    for entry in folder.iterdir():
        destination = folder.parent / entry.name.removeprefix(_OLD)
        if entry.name.startswith(_OLD) and not os.path.lexists(destination):
            entry.rename(destination)
        elif entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != "lock":
            entry.unlink()


def _release(folder: Path, handle: int) -> None:
    """Remove a hidden folder. The lock file goes last, because other processes look for it."""
    with suppress(OSError):  # the next run removes what is left
        _clear(folder)
    with suppress(OSError), closing_locked_file(handle):
        (folder / "lock").unlink()
        folder.rmdir()


def _check_destinations(source: Path, destinations: Sequence[Path], overwrite: bool) -> None:
    """Refuse to replace the input, or any other file without `overwrite`."""
    inputs = [source, *array_files(source), source / "c"]  # any of them may be a link
    for destination in destinations:
        refuse_inputs(destination, inputs)
        if not os.path.lexists(destination):
            continue
        is_zarr = destination.suffix == ".zarr"
        is_array = array_files(destination) if is_zarr else destination.is_file()
        if not is_array and not destination.is_symlink():
            description = "a zarr array" if is_zarr else "a regular file"
            raise InvalidArgumentError(
                f"{destination} exists and is not {description}; it is not replaced. Fix: move it "
                "away"
            )
        if not overwrite:
            raise InvalidArgumentError(
                f"{destination} exists; it is not replaced. Fix: add --overwrite, or name another "
                "folder"
            )


def _take_name(draft: Path, destination: Path, old: Path) -> None:
    """Rename a piece. An old file is replaced atomically; an old folder moves to `old`."""
    if not draft.is_dir() or not os.path.lexists(destination):
        draft.replace(destination)
    elif not _exchange_names(draft, destination):
        destination.rename(old)
        draft.rename(destination)


def _exchange_names(first: Path, second: Path) -> bool:
    """Exchange two names atomically; False if the file system cannot."""
    if sys.platform != "linux":
        return False
    rename: Any = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    names = os.fsencode(first), os.fsencode(second)
    if not rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE):
        return True
    number = ctypes.get_errno()
    if number in (EINVAL, ENOSYS, EOPNOTSUPP, EXDEV):
        return False
    raise OSError(number, os.strerror(number), str(second))
