"""The printed text and the written files of a DxDispatch model.

8-bit integers are printed as numbers. DxDispatch prints them as characters.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path

import numpy as np

from dmlsplit.arrays.npy_header import npy_header
from dmlsplit.atomic import atomic_write, check_space, refuse_inputs
from dmlsplit.errors import InvalidArgumentError, one_line, within
from dmlsplit.frontends.dxdispatch.model import Model, WriteFile
from dmlsplit.frontends.dxdispatch.values import SourceFile


def printed(name: str, values: np.ndarray, verbose: bool) -> str:
    """The text of a ``print`` command; with `verbose`, one line per element, with its bits."""
    # Floats have six significant digits, as in C++ streams.
    form = "{:g}" if values.dtype.kind == "f" else "{}"
    texts = [form.format(value) for value in values.tolist()]
    if not verbose:
        return f"Resource '{name}': {', '.join(texts)}"
    size, width = values.dtype.itemsize, len(str(len(values)))
    bits = values.view(f"u{size}").tolist()
    lines = [
        f"[{index:{width}}] {text} (0x{word:{2 * size}X})\n"
        for index, (text, word) in enumerate(zip(texts, bits, strict=True))
    ]
    return f"Resource '{name}':\n{''.join(lines)}"


def check_targets(model: Model, file: Path, overwrite: bool) -> None:
    """Refuse to write over inputs, over existing files unless `overwrite`, or on a full disk."""
    values = [resource.values for resource in model.resources]
    read = [file, *(each.path for each in values if isinstance(each, SourceFile))]
    sizes = {resource.name: resource.size_in_bytes for resource in model.resources}
    wanted = 0
    for command in model.commands:
        if not isinstance(command, WriteFile):
            continue
        target = command.path
        wanted += sizes[command.resource]
        with within(command.place), _refusing(target):
            refuse_inputs(target, read)
            if target.exists() and not target.is_file():
                raise InvalidArgumentError(f"{target} cannot be written: it is not a regular file")
            if target.exists() and not overwrite:
                raise InvalidArgumentError(
                    f"{target} exists; it is not replaced. Fix: add --overwrite"
                )
            check_space(next(each for each in target.parents if each.is_dir()), wanted, target)


def write_file(command: WriteFile, values: np.ndarray) -> None:
    """Write the elements of a resource to a file, atomically."""
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


@contextmanager
def _refusing(target: Path) -> Iterator[None]:
    """Turn an OSError into an error that names the file."""
    try:
        yield
    except OSError as error:
        why = one_line(error, with_path=False)
        raise InvalidArgumentError(f"{target} cannot be written: {why}") from None
