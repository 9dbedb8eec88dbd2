"""DxDispatch: the JSON that Windows' dxdispatch.exe runs, run here for DML_OPERATOR_SPLIT."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from pathlib import Path

from dmlsplit.device import Device
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.frontends import Finding
from dmlsplit.frontends.dxdispatch_descriptor import SPLIT_NAMES, read_descriptor, read_split
from dmlsplit.frontends.dxdispatch_json import Field, read_json
from dmlsplit.frontends.dxdispatch_model import (
    Model,
    WriteFile,
    read_dispatchable,
    read_model,
    read_type,
)
from dmlsplit.frontends.dxdispatch_run import Result, run_model

__all__ = ["Model", "Result", "load", "read_descriptor", "run", "scan"]

_OPERATOR = "DML_OPERATOR_SPLIT"
_NO_COUNT = "OutputCount is missing; dxdispatch.exe requires it"


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


def run(
    path: str | PathLike[str],
    device: Device | str | None = None,
    *,
    output: Callable[[str], object] | None = None,
) -> Result:
    """Run a DxDispatch model: dispatch its Splits, print and write its resources.

    Parameters
    ----------
    path
        The .json file.
    device
        A `Device` or its name; None takes the GPU if there is one.
    output
        Called with each line as it is printed, such as `print`.

    Returns
    -------
    Result
        The printed lines, in DxDispatch's form, and what the resources hold in the end.

    Raises
    ------
    InvalidArgumentError
        If the file is no such model, dispatches anything but a Split, or a descriptor or a
        binding breaks a rule.
    OutOfMemoryError
        If its resources do not fit in memory.
    """
    model = load(path)
    target = device if isinstance(device, Device) else Device(device)
    try:
        return run_model(model, target, output)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{path}: {error}", error.report) from None


def scan(path: str | PathLike[str]) -> list[Finding]:
    """Find the Splits of a DxDispatch model, or the one of a descriptor file.

    Returns
    -------
    list of Finding
        In the order of the file. Operators other than Split are passed over.

    Raises
    ------
    InvalidArgumentError
        If the file is neither; see also `read_descriptor`.
    """
    file = Path(path)
    root = read_json(file)
    try:
        if root.find("dispatchables") is None:
            if root.find("InputTensor", "desc", "Desc") is None:
                raise InvalidArgumentError(
                    "is neither a DxDispatch model, with 'dispatchables', nor a descriptor, "
                    "with 'InputTensor'"
                )
            return [_finding(Finding(str(path), "", "", 0, _OPERATOR), root, read_split)]
        found = [
            _finding(Finding(str(path), "dispatchables", name, index, _OPERATOR), field, _split_of)
            for index, (name, field) in enumerate(root.get("dispatchables").members())
            if _is_split(field)
        ]
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{path}: {error}") from None
    return found


def _is_split(field: Field) -> bool:
    return read_type(field) in SPLIT_NAMES


def _split_of(field: Field) -> SplitOperatorDesc:
    desc = read_dispatchable("", field).desc
    assert desc is not None
    return desc


def _finding(blank: Finding, field: Field, read: Callable[[Field], SplitOperatorDesc]) -> Finding:
    try:
        desc = read(field)
    except InvalidArgumentError as error:
        return replace(blank, problem=str(error))
    fields = field.find("Desc", "desc") or field
    warnings = () if fields.find("OutputCount") else (_NO_COUNT,)
    return replace(blank, descriptors=(desc,), warnings=warnings)
