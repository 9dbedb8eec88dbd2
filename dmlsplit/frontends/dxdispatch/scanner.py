"""Finds the Splits of DxDispatch models and descriptor files."""

from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from pathlib import Path

from dmlsplit.checks import file_name
from dmlsplit.directml.operator import SplitOperatorDesc
from dmlsplit.errors import InvalidArgumentError, about
from dmlsplit.fields import Field
from dmlsplit.frontends.dxdispatch.descriptor import SPLIT_NAMES, read_split
from dmlsplit.frontends.dxdispatch.model import read_dispatchable, read_type
from dmlsplit.frontends.dxdispatch.strict_json import read_json
from dmlsplit.frontends.site import SplitSite
from dmlsplit.mistaken import recognised

_OPERATOR = "DML_OPERATOR_SPLIT"
_NO_COUNT = "OutputCount is missing; dxdispatch.exe requires it"


def scan(path: str | PathLike[str]) -> list[SplitSite]:
    """Find the Splits of a DxDispatch model, or the one of a descriptor file.

    Parameters
    ----------
    path
        The .json file.

    Returns
    -------
    list of SplitSite
        In the order of the file. Operators other than Split are skipped.

    Raises
    ------
    InvalidArgumentError
        If the file is neither; see also `read_descriptor`.
    """
    file = file_name(path)
    with about(path), recognised(path):
        root = read_json(Path(path))
        if root.find("dispatchables") is not None:
            return [
                _site(SplitSite(file, "dispatchables", name, index, _OPERATOR), field, _split_of)
                for index, (name, field) in enumerate(root.get("dispatchables").members())
                if read_type(field) in SPLIT_NAMES
            ]
        if root.find("InputTensor", "desc", "Desc") is None:
            raise InvalidArgumentError(
                "is neither a DxDispatch model, with 'dispatchables', nor a descriptor, "
                "with 'InputTensor'"
            )
        return [_site(SplitSite(file, "", "", 0, _OPERATOR), root, read_split)]


def _split_of(field: Field) -> SplitOperatorDesc:
    desc = read_dispatchable("", field).desc
    assert desc is not None
    return desc


def _site(blank: SplitSite, field: Field, read: Callable[[Field], SplitOperatorDesc]) -> SplitSite:
    try:
        desc = read(field)
    except InvalidArgumentError as error:
        return replace(blank, problem=error.message)
    fields = field.find("Desc", "desc") or field
    warnings = () if fields.find("OutputCount") else (_NO_COUNT,)
    return replace(blank, descriptors=(desc,), warnings=warnings)
