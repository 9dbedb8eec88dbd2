"""Whether DirectML would accept the splits of a model: targets, verdicts, reports, fixes.

`resolve_target` makes a target, `assess` checks the sites of a scan for it, and `render` is the
report about them.

A *target* is what a model is checked against: a level, and the program that passes descriptors to
DirectML. A *diagnostic* is an error, a warning or a note about a site or a target. Its type is
`Violation`. A *finding* is a diagnostic in a report. A *remedy* is what can be done about a split:
its fixes, any one of which suffices, and notes that say why there is no other. Findings that are
alike are a *group*, and a *location* is a split, or a model without one, in a report.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmlsplit.lint.check import assess
    from dmlsplit.lint.report import render
    from dmlsplit.lint.target import resolve_target

__all__ = ["assess", "render", "resolve_target"]

_MODULES = {"assess": "check", "render": "report", "resolve_target": "target"}


def __getattr__(name: str) -> Any:
    """Import a function when it is first used: the help of the command needs none of them."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
