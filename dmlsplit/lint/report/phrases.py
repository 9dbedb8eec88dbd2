"""Phrases shared by all report formats."""

import os
from pathlib import PureWindowsPath

from dmlsplit.directml.rules.violation import Violation
from dmlsplit.frontends import SplitSite
from dmlsplit.lint.verdict import Assessment, Verdict
from dmlsplit.messages import counted, printable

# The name of each HRESULT, and how a call fails with it.
HRESULTS = {
    0x80070057: ("E_INVALIDARG", ', "The parameter is incorrect"'),
    0x887A0004: ("DXGI_ERROR_UNSUPPORTED", ": no device is created"),
    0x887A0005: (
        "DXGI_ERROR_DEVICE_REMOVED",
        ", at the next call; dmlsplit raises InvalidArgumentError before that",
    ),
}


def address(site: SplitSite) -> str:
    """The place of a split in its file, on one line."""
    name = site.node or f"#{site.index}"
    return printable(f"{site.place}/{name}" if site.place else name)


def location(site: SplitSite) -> str:
    """File and address of a split."""
    return f"{printable(site.file)}:{address(site)}"


def headline(verdict: Verdict, assessment: Assessment) -> str:
    """The verdict on one line, without the place."""
    operator, target = verdict.site.operator, assessment.target
    return f"{operator} at {target}: {outcome_of(verdict)}"


def outcome_of(verdict: Verdict) -> str:
    """The verdict, with its range of sizes, or with the HRESULT that users search for."""
    said = "" if verdict.hresult is None else numbered(verdict.hresult)
    if verdict.sizes is not None:
        said = printable(str(verdict.sizes))
    return f"{verdict.outcome}: {said}" if said else str(verdict.outcome)


def numbered(hresult: int) -> str:
    """An HRESULT in the form that users search for: its number and name."""
    return f"{hresult:08X} ({HRESULTS[hresult][0]})"


def with_slashes(file: str) -> str:
    """A file name with slashes, as annotations and URIs need it."""
    # In other names a backslash is an ordinary, if rare, character.
    is_windows = os.sep == "\\" or PureWindowsPath(file).is_absolute()
    return (file.replace("\\", "/") if is_windows else file).removeprefix("./")


def grouped(verdict: Verdict) -> list[tuple[Violation, str]]:
    """Each diagnostic once, with ``(the same in 2 other tensors)`` if three tensors share it."""
    alike: dict[tuple[str, ...], list[Violation]] = {}
    for each in verdict.diagnostics:
        said = (each.field, each.found, each.allowed) if each.field else (each.message,)
        alike.setdefault((each.rule.id, each.severity, *said), []).append(each)
    return [
        (first, f" (the same in {counted(len(others), 'other tensor')})" if others else "")
        for first, *others in alike.values()
    ]


def details(verdict: Verdict) -> list[str]:
    """The diagnostics and the fix of a verdict, one per line."""
    lines = [
        f"{each.rule.id}: {printable(each.message)}{others}" for each, others in grouped(verdict)
    ]
    return [*lines, f"Fix: {verdict.fix}"] if verdict.fix else lines
