"""The printed text and the written files of a DxDispatch model.

8-bit integers are printed as numbers. DxDispatch prints them as characters.
"""

from pathlib import Path

import numpy as np

from dmlsplit.atomic import atomic_write, refuse_inputs
from dmlsplit.errors import InvalidArgumentError, one_line, within
from dmlsplit.frontends.dxdispatch.model import Model, Output
from dmlsplit.frontends.dxdispatch.values import SourceFile
from dmlsplit.messages import printable
from dmlsplit.storage.npy_file import npy_header


def deliver(command: Output, values: np.ndarray) -> str:
    """Write elements to the command's file, atomically, if it has one; return the line to print."""
    name, target, header = printable(command.resource), command.target, b""
    if target is None:
        # Floats have six significant digits, as in C++ streams.
        form = "{:g}" if values.dtype.kind == "f" else "{}"
        return f"Resource '{name}': {', '.join(map(form.format, values.tolist()))}"
    if target.suffix.lower() == ".npy":
        header = npy_header(command.shape or (len(values),), False, values.dtype)
    with within(command.path):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(target) as draft, draft.open("wb") as file:
                file.write(header)
                file.write(values.data)
        except OSError as error:
            why = one_line(error, with_path=False)
            raise InvalidArgumentError(f"{target} cannot be written: {why}") from None
    return f"Resource '{name}' written to '{printable(str(target))}'"


def check_targets(model: Model, file: Path, overwrite: bool) -> None:
    """Refuse to write over inputs, and over existing files unless `overwrite`."""
    values = [resource.values for resource in model.resources]
    inputs = [file, *(value.path for value in values if isinstance(value, SourceFile))]
    for command in model.commands:
        if not isinstance(command, Output) or command.target is None:
            continue
        with within(command.path):
            refuse_inputs(command.target, inputs)
            if command.target.is_dir():
                raise InvalidArgumentError(f"{command.target} cannot be written: it is a folder")
            if command.target.is_file() and not overwrite:
                raise InvalidArgumentError(
                    f"{command.target} exists; it is not replaced. Fix: add --overwrite"
                )
