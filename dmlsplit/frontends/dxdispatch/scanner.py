"""Finds the Splits of DxDispatch models and descriptor files."""

from dataclasses import replace
from os import PathLike
from pathlib import Path

from dmlsplit.checks import file_name
from dmlsplit.errors import InvalidArgumentError, about
from dmlsplit.fields import Field
from dmlsplit.frontends.dxdispatch.descriptor import SPLIT_NAMES, read_split
from dmlsplit.frontends.dxdispatch.model import read_dispatchable
from dmlsplit.frontends.dxdispatch.strict_json import read_json
from dmlsplit.frontends.site import SplitSite
from dmlsplit.mistaken import recognised

_OPERATOR = "DML_OPERATOR_SPLIT"


def scan(path: str | PathLike[str]) -> list[SplitSite]:
    """Find the Splits of a DxDispatch model, or the one Split of a descriptor file.

    Parameters
    ----------
    path
        The .json file.

    Returns
    -------
    list of SplitSite
        The Splits in the order of the file; other operators are skipped.

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
                _site(SplitSite(file, "dispatchables", name, index, _OPERATOR), field)
                for index, (name, field) in enumerate(root.get("dispatchables").members())
                if field.get("type", "Type").text() in SPLIT_NAMES
            ]
        if root.find("InputTensor", "desc", "Desc") is None:
            raise InvalidArgumentError(
                "is neither a DxDispatch model, with 'dispatchables', nor a descriptor, "
                "with 'InputTensor'"
            )
        return [_site(SplitSite(file, "", "", 0, _OPERATOR), root)]


def _site(blank: SplitSite, field: Field) -> SplitSite:
    is_alone = not blank.place
    try:
        desc = read_split(field) if is_alone else read_dispatchable("", field).desc
    except InvalidArgumentError as error:
        return replace(blank, problem=error.message)
    assert desc is not None  # only Splits come here
    fields = field.find("Desc", "desc") or field
    warning = "OutputCount is missing; dxdispatch.exe requires it"
    warnings = () if fields.find("OutputCount") else (warning,)
    return replace(blank, descriptors=(desc,), warnings=warnings)
