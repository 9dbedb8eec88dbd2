"""Loads a DxDispatch model."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from dmlsplit.errors import InvalidArgumentError, about
from dmlsplit.frontends.dxdispatch.model import Model, WriteFile, read_model
from dmlsplit.frontends.dxdispatch.strict_json import read_json


def load(path: str | PathLike[str]) -> Model:
    """Read a DxDispatch model.

    Nothing is allocated; source files are checked, but not loaded.

    Parameters
    ----------
    path
        The .json file. Files that it names must be in its folder or below.

    Raises
    ------
    InvalidArgumentError
        If the file is not such a model; the message names the field.
    """
    file = Path(path)
    with about(path):
        model = read_model(read_json(file), file.parent)
        for command in model.commands:
            if isinstance(command, WriteFile) and command.target.resolve() == file.resolve():
                raise InvalidArgumentError(f"{command.place}: would write over the model itself")
    return model
