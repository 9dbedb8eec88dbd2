"""The reports of ``dmlsplit validate``: on the terminal and in files, from one scan."""

from __future__ import annotations

import argparse
import glob
import os
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dmlsplit.cli import terminal
from dmlsplit.cli.terminal import STDOUT, print_message, write_result
from dmlsplit.errors import InvalidArgumentError
from dmlsplit.messages import MAX_SHOWN, WIDTH, counted, omitted_lines, wrapped, wrapped_at

if TYPE_CHECKING:
    from dmlsplit.lint.verdict import Assessment

_DETAILS = {
    "quiet": "in a text report, show only what was found, without the totals",
    "verbose": "in a text report, show every split with all that is known about it",
}
# Formats with an option that writes such a report beside the one of --format.
_BESIDE = {
    "sarif": "also write a SARIF report, for code-scanning pages",
    "junit": "also write a JUnit report, for CI servers",
    "github": "also write annotations for GitHub Actions; - prints them after the report",
}


def add_report(parser: argparse.ArgumentParser) -> None:
    """Add the options about reports."""
    from dmlsplit.lint.report import FORMATS

    report = parser.add_argument_group("the report")
    report.add_argument("--format", choices=FORMATS, default="text", help="default: text")
    report.add_argument(
        "-o", "--output", metavar="FILE", help="write the report to a file; - is standard output"
    )
    for name, text in _BESIDE.items():
        report.add_argument(f"--{name}", metavar="FILE", help=text)
    report.add_argument(
        "--baseline",
        metavar="FILE",
        help="let only new findings fail. The first run writes FILE and still fails; later runs "
        "read FILE and never change it",
    )
    detail = report.add_mutually_exclusive_group()
    detail.set_defaults(detail="usual")
    for name, text in _DETAILS.items():
        detail.add_argument(
            f"-{name[0]}", f"--{name}", dest="detail", action="store_const", const=name, help=text
        )


def output_files(arguments: argparse.Namespace) -> dict[str, str]:
    """The files that the command writes, by their options; not standard output."""
    names = ("output", *_BESIDE, "baseline", "write_fixed")
    files = {name.replace("_", "-"): getattr(arguments, name) for name in names}
    return {name: file for name, file in files.items() if file not in (None, STDOUT)}


def check_output_files(arguments: argparse.Namespace) -> None:
    """Refuse, before the scan, files that two options write, and inputs that are named."""
    from dmlsplit.files.atomic import refuse_inputs

    options: dict[str, str] = {}
    for option, file in output_files(arguments).items():
        first_option = options.setdefault(os.path.realpath(file), option)
        if first_option != option:
            raise InvalidArgumentError(
                f"--{first_option} and --{option} name the same file, {file}. Fix: name different "
                "files"
            )
        inputs = [Path(path) for path in arguments.paths if Path(path).is_file()]
        refuse_inputs(Path(file), inputs)
    if arguments.baseline == STDOUT:
        raise InvalidArgumentError("--baseline is '-'; it must be a file, such as known.json")


def is_one_file(paths: Sequence[str]) -> bool:
    """Whether the paths are one file, and neither a folder nor a pattern."""
    if len(paths) != 1 or Path(paths[0]).is_dir():
        return False
    return Path(paths[0]).exists() or not glob.has_magic(paths[0])


def known_findings(file: str | None) -> frozenset[tuple[str, str]] | None:
    """The findings of a baseline; None without one, or if it has to be written."""
    from dmlsplit.lint.report.baseline import read_baseline

    return read_baseline(Path(file)) if file is not None and os.path.lexists(file) else None


def write_reports(
    arguments: argparse.Namespace,
    assessments: Sequence[Assessment],
    changes: Sequence[str],
    inputs: Iterable[str],
) -> None:
    """Write the report, those beside it, and the baseline."""
    from dmlsplit.lint.report import render

    is_printed = arguments.output in (None, STDOUT)
    if not is_printed or arguments.format != "text":
        for line in changes:
            print_message(line)
    sources = list(inputs)
    report = _report(arguments, assessments, changes, is_printed=is_printed)
    write_result(report, arguments.output, sources)
    for report_format in _BESIDE:
        if (file := getattr(arguments, report_format)) is not None:
            write_result(render(assessments[0], report_format), file, sources)
    if arguments.baseline is not None:
        _compare(arguments.baseline, assessments[0], sources)


def _compare(file: str, assessment: Assessment, inputs: Sequence[str]) -> None:
    """Say which findings are new; write the baseline if it is missing."""
    from dmlsplit.lint.report.baseline import baseline_json, failed, failing_count

    count = failing_count(assessment)
    if not os.path.lexists(file):
        if assessment.unreadable:
            print_message(f"note: {file} was not written, because a file could not be read")
            return
        write_result(baseline_json(assessment), file, inputs)
        print_message(f"note: {file} has {counted(count, 'known finding')} now")
        return
    print_message(f"note: {counted(count, 'new finding')}; {file} has the known ones")
    names = [f"new: {each.subject}: {each.headline}" for each in failed(assessment)]
    for line in (*names[:MAX_SHOWN], *omitted_lines(len(names), MAX_SHOWN)):
        print_message(line)


def _report(
    arguments: argparse.Namespace,
    assessments: Sequence[Assessment],
    changes: Sequence[str],
    *,
    is_printed: bool,
) -> str:
    """The report, as wide as the terminal if it is for that; text begins with the changes.

    It is about the first assessment, of the written model if there is one. The verbose text is also
    about the second one, of the model before.
    """
    from dmlsplit.lint.report import render
    from dmlsplit.lint.report.text import text_report

    with wrapped_at(terminal.columns() if is_printed else WIDTH):
        if arguments.format != "text":
            return render(assessments[0], arguments.format)
        shown = partial(
            text_report,
            detail=arguments.detail,
            colour=is_printed and terminal.is_colour_wanted(),
            is_cut=is_printed and sys.stdout.isatty(),
        )
        lines = [wrapped(line, "  " if index else "") for index, line in enumerate(changes)]
        heading = "\n".join(lines)
        for before in assessments[1:] if arguments.detail == "verbose" else ():
            heading = "\n\n".join([heading, shown(before, "Before:"), "After:"])
        return shown(assessments[0], heading, paths=arguments.paths)
