"""Loads a DxDispatch model."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from dmlsplit.errors import InvalidArgumentError
from dmlsplit.frontends.dxdispatch.model import (
    Model,
    WriteFile,
    read_model,
)
from dmlsplit.frontends.dxdispatch.strict_json import read_json


def load(path: str | PathLike[str]) -> Model:
    """Read a DxDispatch model.

    Nothing is allocated; source files are looked at, but not loaded.

    Parameters
    ----------
    path
        The .json file. Files that it names lie in its folder or below.

    Raises
    ------
    InvalidArgumentError
        If the file is no such model; the message names the field.
    """
    file = Path(path)
    root = read_json(file)
    try:
        model = read_model(root, file.parent)
        for command in model.commands:
            if isinstance(command, WriteFile) and command.target.resolve() == file.resolve():
                raise InvalidArgumentError(f"{command.place}: would write over the model itself")
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{path}: {error}") from None
    return model
