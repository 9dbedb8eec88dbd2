"""What a DxDispatch model prints, and the files that it writes.

One deviation: DxDispatch streams 8-bit integers as characters; here they are numbers.
"""

from collections.abc import Iterator, Sequence
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
    """The text of a ``print`` command; `verbose` has a line for each element, with its bits."""
    # Six significant digits: a C++ stream's default.
    form = "{:g}" if values.dtype.kind == "f" else "{}"
    texts = [form.format(value) for value in values.tolist()]
    if not verbose:
        return f"Resource '{name}': {', '.join(texts)}"
    digits = 2 * values.dtype.itemsize
    width = len(str(len(values)))
    bits = values.view(f"u{values.dtype.itemsize}").tolist()
    # Widths are padded with spaces, those of the bits too.
    lines = [
        f"[{index:{width}}] {text} (0x{word:{digits}X})\n"
        for index, (text, word) in enumerate(zip(texts, bits, strict=True))
    ]
    return f"Resource '{name}':\n{''.join(lines)}"


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
