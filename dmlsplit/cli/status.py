"""The exit statuses of the commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmlsplit.lint.verdict import Assessment

ACCEPTED = 0
REFUSED = 1
UNUSABLE = 2  # wrong usage, or a file that cannot be read
INTERRUPTED = 130  # as a shell has it: 128 + SIGINT


def status_of(assessment: Assessment) -> int:
    """Return the exit status of a command that has judged splits."""
    if assessment.unreadable:
        return UNUSABLE
    return ACCEPTED if assessment.accepted else REFUSED
