"""The files that a DxDispatch model writes: which may be replaced, and how they appear whole."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path

import numpy as np

from dmlsplit.arrays.npy_header import npy_header
from dmlsplit.atomic import atomic_write, check_space, refuse_inputs
from dmlsplit.errors import InvalidArgumentError, one_line, within
from dmlsplit.frontends.dxdispatch.files import SourceFile
from dmlsplit.frontends.dxdispatch.model import Model, WriteFile


def check_targets(model: Model, file: Path, overwrite: bool) -> None:
    """Refuse to write over what the run reads or what is not to be replaced, or a full disk."""
    values = [resource.values for resource in model.resources]
    read = [file, *(each.path for each in values if isinstance(each, SourceFile))]
    sizes = {resource.name: resource.size_in_bytes for resource in model.resources}
    wanted = 0
    for command in model.commands:
        if isinstance(command, WriteFile):
            wanted += sizes[command.resource]
            with within(command.place), _refusing(command.path):
                _check_target(command.path, read, overwrite)
                folder = next(each for each in command.path.parents if each.is_dir())
                check_space(folder, wanted, command.path)


def write_file(command: WriteFile, values: np.ndarray) -> None:
    """Write the elements of a resource to a file that appears whole."""
    target, header = command.path, b""
    if command.is_npy:
        shape = command.dimensions or (len(values),)
        values = values[: prod(shape)]
        header = npy_header(shape, False, values.dtype)
    with within(command.place), _refusing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(target) as (draft,), draft.open("wb") as file:
            file.write(header)
            file.write(values.data)


def _check_target(target: Path, read: Sequence[Path], overwrite: bool) -> None:
    refuse_inputs(target, read)
    if not target.exists():
        return
    if not target.is_file():
        raise InvalidArgumentError(f"{target} cannot be written: it is not a regular file")
    if not overwrite:
        raise InvalidArgumentError(f"{target} exists; it is not replaced. Fix: --overwrite")


@contextmanager
def _refusing(target: Path) -> Iterator[None]:
    """Turn errors of the system into refusals that name the file."""
    try:
        yield
    except OSError as error:
        why = one_line(error, with_path=False)
        raise InvalidArgumentError(f"{target} cannot be written: {why}") from None
