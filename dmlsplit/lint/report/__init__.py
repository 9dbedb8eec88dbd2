"""Reports, each a pure function of an `Assessment` in the module of its format."""

from importlib import import_module
from typing import TYPE_CHECKING

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


def render(assessment: "Assessment", form: str) -> str:
    """The report in one of the `FORMATS`; no other is imported."""
    module = import_module(f"{__name__}.{form}")
    return str(getattr(module, f"{form}_report")(assessment))
