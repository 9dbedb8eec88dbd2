"""The printed text and the written files of a DxDispatch model.

8-bit integers are printed as numbers. DxDispatch prints them as characters.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from dmlsplit.atomic import atomic_write, check_space, refuse_inputs
from dmlsplit.errors import InvalidArgumentError, one_line, within
from dmlsplit.frontends.dxdispatch.model import Model, Output
from dmlsplit.frontends.dxdispatch.values import SourceFile
from dmlsplit.messages import printable
from dmlsplit.storage.npy_header import npy_header


def deliver(command: Output, values: np.ndarray) -> str:
    """Write elements to the command's file, atomically, if it has one; return the line to print."""
    name, target, header = printable(command.resource), command.target, b""
    if target is None:
        # Floats have six significant digits, as in C++ streams.
        form = "{:g}" if values.dtype.kind == "f" else "{}"
        return f"Resource '{name}': {', '.join(map(form.format, values.tolist()))}"
    if target.suffix.lower() == ".npy":
        header = npy_header(command.shape or (len(values),), False, values.dtype)
    with within(command.path), _refusing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(target) as draft, draft.open("wb") as file:
            file.write(header)
            file.write(values.data)
    return f"Resource '{name}' written to '{printable(str(target))}'"


def check_targets(model: Model, file: Path, overwrite: bool) -> None:
    """Refuse to write over inputs, over existing files unless `overwrite`, or on a full disk."""
    values = [resource.values for resource in model.resources]
    inputs = [file, *(value.path for value in values if isinstance(value, SourceFile))]
    total = 0
    for command in model.commands:
        if not isinstance(command, Output) or command.target is None:
            continue
        target = command.target
        total += command.size_in_bytes
        with within(command.path), _refusing(target):
            refuse_inputs(target, inputs)
            if target.exists() and not target.is_file():
                raise InvalidArgumentError(f"{target} cannot be written: it is not a regular file")
            if target.exists() and not overwrite:
                raise InvalidArgumentError(
                    f"{target} exists; it is not replaced. Fix: add --overwrite"
                )
            check_space(next(filter(Path.is_dir, target.parents)), total, target)


@contextmanager
def _refusing(target: Path) -> Iterator[None]:
    """Turn an OSError into an error that names the file."""
    try:
        yield
    except OSError as error:
        why = one_line(error, with_path=False)
        raise InvalidArgumentError(f"{target} cannot be written: {why}") from None
