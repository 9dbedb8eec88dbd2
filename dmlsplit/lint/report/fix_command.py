"""The command that rewrites every model which needs it."""

from collections.abc import Sequence

from dmlsplit.lint.commands import fixing_command, folder_fixing_command
from dmlsplit.lint.verdict import Assessment

_TEMPLATE = "dmlsplit validate {paths}{options} --write-fixed {output}{replace}"


def fix_command(assessment: Assessment, paths: Sequence[str] = ()) -> str:
    """The command for the paths that were checked; empty if no model can be rewritten.

    One model is written beside the old one, several into a folder.
    """
    rewritten = (v for v in assessment.verdicts if v.rewriting and v.rewriting in v.fixes)
    files = list(dict.fromkeys(verdict.site.file for verdict in rewritten))
    options = assessment.target.options
    if len(files) > 1:
        return folder_fixing_command(_TEMPLATE, paths or files, options)
    return fixing_command(_TEMPLATE, files[0], options) if files else ""
