"""Reports, each a pure function of an `Assessment` in the module of its format."""

from importlib import import_module
from typing import TYPE_CHECKING

from dmlsplit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from dmlsplit.lint.verdict import Assessment

# What `dmlsplit validate --help` says of each format.
FORMATS = {
    "text": "for people: as wide as the terminal, with the totals at the end",
    "json": "for programs: schema 3, described by report.schema.json in the package",
    "github": "annotations for the log of GitHub Actions, one per cause and file",
    "sarif": "SARIF 2.1.0, for code-scanning pages",
    "junit": "JUnit XML, one suite per file and one case per split",
}


def render(assessment: "Assessment", report_format: str) -> str:
    """The report about an assessment.

    Parameters
    ----------
    assessment : Assessment
        What `dmlsplit.lint.assess` found.
    report_format : str
        One of ``text``, ``json``, ``github``, ``sarif`` and ``junit``.

    Returns
    -------
    str
        The report, without a line break at its end.

    Raises
    ------
    InvalidArgumentError
        If there is no such format.

    Examples
    --------
    >>> from dmlsplit.lint import assess, resolve_target
    >>> from dmlsplit.models.discovery import option_site
    >>> site = option_site("FLOAT32", sizes=(2, 6), axis=1, split=(2, 4))
    >>> assessment = assess([site], resolve_target(feature_level="6_4"))
    >>> print(render(assessment, "text"))
    1 split at feature level 6_4:
      1 runs on DirectML
    """
    if report_format not in FORMATS:
        allowed = ", ".join(FORMATS)
        raise InvalidArgumentError(
            f"report_format is {report_format!r}; it must be one of {allowed}"
        )
    module = import_module(f"{__name__}.{report_format}")
    return str(getattr(module, f"{report_format}_report")(assessment))
