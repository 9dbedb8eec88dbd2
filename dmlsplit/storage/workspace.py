"""The hidden folder in which pieces grow, ``.NAME.unfinished``, and the publishing of pieces.

It is in the folder of the pieces, and holds:

- ``lock``, which is locked while a run uses the workspace;
- ``0``, ``1``, ...: the pieces until they have their names;
- ``journal``, which vouches for the pieces: it is created after them and removed before them.
  Without a journal the pieces are useless. The run then removes them; if it was killed, the next
  run does.

A run is complete when all pieces have their names and the journal is removed.
"""

import ctypes
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from errno import EINVAL, ENOSYS, EOPNOTSUPP, EXDEV
from pathlib import Path
from typing import Any

from dmlsplit.atomic import lock, naming, refuse_inputs
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.storage.journal import Run, array_files, create_journal, is_continued, read_run
from dmlsplit.system import closing

_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
# A folder with any other file is not a workspace, whatever its name is.
_OURS = re.compile(r"lock|journal|\.journal-dmlsplit|(old-)?\d+")


@dataclass(frozen=True)
class Workspace:
    """The folder where an input's pieces grow, and the names that they get."""

    folder: Path
    input: Path
    targets: tuple[Path, ...]

    @property
    def journal(self) -> Path:
        """The path of the run's record."""
        return self.folder / "journal"

    def draft(self, piece: int) -> Path:
        """The path of a piece until it gets its name."""
        return self.folder / str(piece)

    def vouch(self, run: Run) -> None:
        """Create the journal, which makes the pieces usable by a later run."""
        inodes = tuple(self.draft(piece).stat().st_ino for piece in range(len(self.targets)))
        create_journal(self.journal, replace(run, pieces=inodes))

    def published(self) -> set[int]:
        """The pieces that have their names."""
        inodes = read_run(self.journal).pieces if self.journal.is_file() else ()
        # After an exchange, the draft is the old target until the workspace is removed.
        return {
            piece
            for piece, (target, inode) in enumerate(zip(self.targets, inodes, strict=False))
            if not self.draft(piece).exists() or (target.exists() and target.stat().st_ino == inode)
        }

    def check_unpublished(self) -> None:
        """Refuse to rewrite blocks of pieces that already have their names."""
        if self.published():
            raise InvalidArgumentError(
                f"{self.input} changed after some pieces of the unfinished run in {self.folder} "
                "were published. Fix: remove that folder, and start again with --overwrite"
            )


@contextmanager
def claimed(workspace: Workspace, run: Run, overwrite: bool) -> Iterator[tuple[str, ...]]:
    """Hold a workspace; if the block succeeds, the pieces get their names.

    Yields notes for the user. In the block, a journal exists only if its run can be continued.
    InvalidArgumentError: another run uses the workspace or is unfinished in it, or a target exists
    and may not be replaced.
    """
    drafts = {str(workspace.draft(n)): target for n, target in enumerate(workspace.targets)}
    handle = _lock(workspace.folder)
    try:
        _remove_dead(workspace.folder.parent)
        is_old = workspace.journal.is_file() and not is_continued(workspace.journal, run)
        if is_old:
            workspace.check_unpublished()
            with naming(workspace.journal):
                workspace.journal.unlink()
        if not workspace.journal.is_file():
            _clear(workspace.folder)
        _check_targets(workspace, overwrite)
        yield (f"{workspace.input} was replaced or changed; the split starts over",) * is_old
        _publish(workspace)
    except KeyboardInterrupt as stop:
        does = "resumes the run" if workspace.journal.is_file() else "starts over"
        stop.add_note(f"the same command {does}")
        raise
    except OSError as error:
        if error.filename in drafts:
            error.filename = str(drafts[error.filename])
            kept = f"the finished part is in {workspace.folder}; the same command resumes the run"
            error.strerror = f"{error.strerror}; {kept}"
        raise
    finally:
        _release(workspace.folder, handle)


def _publish(workspace: Workspace) -> None:
    """Give the pieces their names. If this is interrupted, the next run finishes it."""
    published = workspace.published()
    for piece, target in enumerate(workspace.targets):
        if piece in published:
            continue
        try:
            _take_name(workspace.draft(piece), target, workspace.folder / f"old-{piece}")
        except OSError as error:
            raise OSError(
                error.errno,
                f"{error.strerror}; {piece} of {len(workspace.targets)} pieces are in place, the "
                f"rest are in {workspace.folder}. Fix: run the same command again",
                str(target),
            ) from None
    with naming(workspace.journal):
        workspace.journal.unlink()


def _lock(folder: Path) -> int:
    """Create a workspace if needed, and lock it."""
    while True:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(exist_ok=True)
        if not all(_OURS.fullmatch(entry.name) for entry in folder.iterdir()):
            raise InvalidArgumentError(
                f"{folder} holds other files than a run's workspace; it is not used. "
                "Fix: move it away"
            )
        try:
            with naming(folder / "lock"):
                return lock(folder / "lock")
        except BlockingIOError:
            raise InvalidArgumentError(
                f"{folder} is in use: another run writes the same pieces. Fix: wait until it ends"
            ) from None
        except FileNotFoundError:  # another run has just ended and removed the folder
            continue


def _remove_dead(folder: Path) -> None:
    """Remove the workspaces of killed runs that cannot be continued."""
    for other in folder.glob(".*.unfinished"):
        if (other / "lock").is_file() and not (other / "journal").exists():
            with suppress(OSError):
                _release(other, lock(other / "lock"))


def _clear(folder: Path) -> None:
    """Remove everything in a workspace but its lock."""
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != "lock":
            entry.unlink()


def _release(folder: Path, handle: int) -> None:
    """Unlock a workspace, and remove it if it has no journal.

    The lock file is removed last, because other processes look for it.
    """
    is_empty = False
    with suppress(OSError):  # the next run removes what is left
        if not (folder / "journal").exists():
            _clear(folder)
            is_empty = True
    with suppress(OSError), closing(handle):
        if is_empty:
            (folder / "lock").unlink()
            folder.rmdir()


def _check_targets(workspace: Workspace, overwrite: bool) -> None:
    """Refuse to replace the input, or any other file without `overwrite`."""
    source = workspace.input
    inputs = [source, *array_files(source), source / "c"]  # each may be a link to elsewhere
    published = workspace.published()
    for piece, target in enumerate(workspace.targets):
        if piece in published:
            continue
        refuse_inputs(target, inputs)
        if not os.path.lexists(target):
            continue
        is_array = array_files(target) if target.suffix == ".zarr" else target.is_file()
        if not is_array and not target.is_symlink():
            kind = "a zarr array" if target.suffix == ".zarr" else "a regular file"
            raise InvalidArgumentError(
                f"{target} exists and is not {kind}; it is not replaced. Fix: move it away"
            )
        if not overwrite:
            raise InvalidArgumentError(
                f"{target} exists; it is not replaced. Fix: add --overwrite, or name another folder"
            )


def _take_name(draft: Path, target: Path, old: Path) -> None:
    """Rename a piece. An old file is replaced atomically; an old folder moves to the workspace."""
    if not draft.is_dir() or not os.path.lexists(target):
        draft.replace(target)
    elif not _exchanged(draft, target):
        target.rename(old)
        draft.rename(target)


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange two names atomically; False if the file system cannot."""
    if sys.platform != "linux":
        return False
    rename: Any = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    names = os.fsencode(one), os.fsencode(other)
    if not rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE):
        return True
    number = ctypes.get_errno()
    if number in (EINVAL, ENOSYS, EOPNOTSUPP, EXDEV):
        return False
    raise OSError(number, os.strerror(number), str(other))
