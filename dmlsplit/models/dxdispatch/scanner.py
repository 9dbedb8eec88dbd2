"""Finds the Splits of DxDispatch models and descriptor files."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path

from dmlsplit.checks import path_text
from dmlsplit.errors import InvalidArgumentError, path_in_errors
from dmlsplit.files.fields import Field
from dmlsplit.files.kinds import name_kind_in_errors
from dmlsplit.files.strict_json import read_json
from dmlsplit.models.dxdispatch.descriptor import SPLIT_NAMES, read_split
from dmlsplit.models.site import Invalid, Known, SplitSite

_OPERATOR = "DML_OPERATOR_SPLIT"


def scan(path: str | PathLike[str]) -> list[SplitSite]:
    """Find the Splits of a DxDispatch model, or the one Split of a descriptor file.

    Parameters
    ----------
    path : str or os.PathLike
        The .json file.

    Returns
    -------
    list of SplitSite
        The Splits in the order of the file; other operators are skipped.

    Raises
    ------
    InvalidArgumentError
        If the file is neither; see also `read_descriptor`.

    See Also
    --------
    dmlsplit.frontends.SplitSite : A split that a scan found.

    Examples
    --------
    >>> [site.operator for site in scan("tests/data/dispatch.json")]
    ['DML_OPERATOR_SPLIT']
    """
    file = path_text(path)
    with path_in_errors(path), name_kind_in_errors(path):
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


def source_files(path: Path) -> Iterator[Path]:
    """The files that exist among those that a model, which may be damaged, names for its values."""
    with suppress(InvalidArgumentError):
        for _, resource in read_json(path).get("resources").members():
            with suppress(InvalidArgumentError):
                name = resource.get("initialValues").get("sourcePath").text()
                file = path.parent / name.replace("\\", "/")  # Windows' separator
                if os.path.lexists(file):
                    yield file


def _site(blank: SplitSite, field: Field) -> SplitSite:
    try:
        desc = read_split(field)
    except InvalidArgumentError as error:
        return replace(blank, state=Invalid(error.message))
    fields = field.find("Desc", "desc") or field
    warning = "OutputCount is missing; dxdispatch.exe requires it"
    warnings = () if fields.find("OutputCount") else (warning,)
    return replace(blank, state=Known(desc), warnings=warnings)
