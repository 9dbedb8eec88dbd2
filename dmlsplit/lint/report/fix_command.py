"""The command that rewrites every model which needs it."""

from collections.abc import Sequence

from dmlsplit.lint.commands import fixing_command, folder_fixing_command
from dmlsplit.lint.verdict import Assessment

_TEMPLATE = "dmlsplit validate {paths}{options} --write-fixed {output}{replace}"


def fix_command(assessment: Assessment, paths: Sequence[str] = ()) -> str:
    """The command for the paths that were checked; empty if no model can be rewritten.

    A model that was given by its name is written beside itself, others into a folder.
    """
    rewritten = [
        verdict
        for verdict in assessment.verdicts
        if verdict.rewriting and verdict.rewriting in verdict.fixes
    ]
    files = list(dict.fromkeys(verdict.site.file for verdict in rewritten))
    options = assessment.target.options
    if not files:
        return ""
    first, *_ = files
    checked_paths = list(paths) or files
    if checked_paths == [first]:
        return fixing_command(_TEMPLATE, first, options)
    return folder_fixing_command(_TEMPLATE, checked_paths, options)
