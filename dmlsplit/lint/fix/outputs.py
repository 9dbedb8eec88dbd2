"""Where the rewritten models of a folder go: under the same relative path, never over an input."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from dmlsplit.errors import InvalidArgumentError
from dmlsplit.messages import omitted_lines

_MAX_NAMES = 4


def output_paths(folder: Path, sources: Iterable[tuple[str, str]]) -> dict[str, Path]:
    """The output of each model, from its file and the folder that its path is relative to.

    Raises
    ------
    InvalidArgumentError
        If two models have the same output.
    """
    outputs: dict[str, Path] = {}
    owners: dict[str, str] = {}
    for file, root in sources:
        output = folder / os.path.relpath(file, root)
        owner = owners.setdefault(os.path.normcase(output), file)
        if os.path.realpath(owner) != os.path.realpath(file):
            raise InvalidArgumentError(
                f"{owner} and {file} would both be written as {output}. Fix: validate their "
                "folders one after the other, each with a folder of its own for --write-fixed"
            )
        outputs[file] = output
    return outputs


def check_output_paths(
    outputs: Mapping[str, Path], inputs: Iterable[str], *, overwrite: bool
) -> None:
    """Refuse outputs that are inputs, whatever their names are, or that exist without `overwrite`.

    Raises
    ------
    InvalidArgumentError
        For the first of them.
    """
    taken = {key for file in inputs for key in _identity(Path(file))}
    for output in outputs.values():
        if taken.intersection(_identity(output)):
            raise InvalidArgumentError(
                f"{output} is an input. Fix: name another folder for the rewritten models"
            )
    existing = [str(output) for output in outputs.values() if os.path.lexists(output)]
    if existing and not overwrite:
        names = ", ".join([*existing[:_MAX_NAMES], *omitted_lines(len(existing), _MAX_NAMES)])
        raise InvalidArgumentError(f"{names}: exists and is not replaced. Fix: add --overwrite")


def _identity(path: Path) -> list[object]:
    """What two names of one file have in common: the path without links, or the file itself."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return [os.path.realpath(path)]
    return [os.path.realpath(path), (status.st_dev, status.st_ino)]
