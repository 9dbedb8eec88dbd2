"""``dmlsplit validate``: whether DirectML accepts the splits of a model."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dmlsplit.cli import terminal
from dmlsplit.cli.inputs import (
    Commands,
    add_command,
    add_inputs,
    add_target,
    scan_inputs,
    target_of,
)
from dmlsplit.cli.terminal import (
    EXIT_OK,
    EXIT_REFUSED,
    EXIT_UNUSABLE,
    STDOUT,
    print_message,
    status_of,
    write_result,
)
from dmlsplit.errors import DmlError, InvalidArgumentError, UnsupportedError
from dmlsplit.messages import MAX_SHOWN, WIDTH, counted, omitted_line, wrapped, wrapped_at

if TYPE_CHECKING:
    from dmlsplit.lint.fix.rewrite import Rewriting
    from dmlsplit.lint.verdict import Assessment

_DESCRIPTION = """\
Find every split in each PATH, in nested graphs and functions too, and report
whether DirectML accepts it: where the split is, the descriptor it becomes, each
broken rule, the lowest feature level, DirectML version and Windows build that
accept it, and what to change. The model is not run, and no GPU is needed. When
DirectML refuses a split at run time, it returns 80070057 (E_INVALIDARG, "The
parameter is incorrect").

The verdicts:
  ok
      the target accepts it
  ok for every size
      some sizes are dynamic; the target accepts all of their values up to the
      limit that is shown
  refused, an equivalent exists
      the target refuses it but accepts the descriptor that is shown, which
      moves the same bytes between the same buffers
  refused
      the target refuses it, and no equivalent descriptor is known; or the node
      is invalid, or never reaches DirectML
  refused for every size
      some sizes are dynamic; the target refuses all of their values
  unknown
      the verdict depends on sizes that are known only when the model runs, or
      that could not be inferred; the report shows the --dim that decides it
  folded
      ONNX Runtime computes the node when it loads the model, because its input
      is a constant or the known shape of a value; DirectML does not get it
  never runs
      the node is in a branch of an If, or in the body of a Loop, that a
      constant switches off
"""

_DETAILS = {
    "quiet": "in a text report, show only splits that are not ok, without the table",
    "verbose": "in a text report, show every split, even if many are ok",
}

_STATUSES = {
    EXIT_OK: "every split is accepted (with --write-fixed, of the written model)",
    EXIT_REFUSED: "a split is refused (see --allow), or is unknown or may be affected by a\n"
    "       known defect (see --fail-on); or, with --via ort, the target is\n"
    "       below feature level 5_0",
    EXIT_UNUSABLE: "wrong usage, or a file could not be read (all other files are reported)",
}

_EXAMPLES = """\
  dmlsplit validate model.onnx --feature-level 2_0
  dmlsplit validate model.onnx --windows 19041 --write-fixed fixed.onnx
  dmlsplit validate models/ 'more/**/*.onnx' --directml 1.8.0 --format sarif
  dmlsplit validate model.onnx --via ort --dim batch=1 --fail-on unknown
  dmlsplit validate --data-type FLOAT32 --sizes 1,1,6,2 --axis 2 --split 2,1,3 \\
      --feature-level 3_0
"""


def add_to(commands: Commands) -> None:
    """Add the command."""
    from dmlsplit.lint.report import FORMATS

    summary = "say which splits of a model DirectML refuses (80070057), why, and how to fix it"
    formats = "".join(f"  {name:<6}  {text}\n" for name, text in FORMATS.items())
    more = f"formats:\n{formats}\n"
    parser = add_command(commands, validate, summary, _DESCRIPTION, _EXAMPLES, _STATUSES, more)
    add_inputs(parser)
    add_target(parser)
    report = parser.add_argument_group("the report")
    report.add_argument("--format", choices=FORMATS, default="text", help="default: text")
    report.add_argument(
        "-o", "--output", metavar="FILE", help="write the report to a file; - is standard output"
    )
    detail = report.add_mutually_exclusive_group()
    detail.set_defaults(detail="usual")
    for name, text in _DETAILS.items():
        detail.add_argument(
            f"-{name[0]}", f"--{name}", dest="detail", action="store_const", const=name, help=text
        )
    report.add_argument(
        "--fail-on",
        action="append",
        choices=("unknown", "defect"),
        default=[],
        help="also exit with 1 if a verdict is unknown, or if a known defect of DirectML may "
        "affect a split; may be repeated",
    )
    report.add_argument(
        "--allow",
        action="append",
        choices=("equivalent",),
        default=[],
        help="count a split as accepted if an equivalent descriptor exists, for programs that "
        "dispatch that descriptor",
    )
    fixing = parser.add_argument_group("a rewritten model")
    fixing.add_argument(
        "--write-fixed",
        metavar="OUT.onnx",
        help="write the model with each refused split replaced by standard ONNX nodes that the "
        "target accepts. Dynamic sizes stay dynamic, except for sizes of the model's inputs that "
        "are given with --dim; give sizes of other values again to check the written model. First, "
        "each split and its replacement run on random inputs, in ONNX Runtime if it is installed; "
        "if a bit of their outputs differs, nothing is written. The report, which begins with the "
        "changes, and the exit status are those of the written model; --verbose also reports the "
        "old one. Only splits are checked, not other nodes",
    )
    fixing.add_argument("--overwrite", action="store_true", help="replace OUT.onnx if it exists")


def validate(arguments: argparse.Namespace) -> int:
    """Check every split of the paths."""
    from dmlsplit.lint.advice import without_rewriting
    from dmlsplit.lint.check import assess
    from dmlsplit.lint.verdict import FAILING, WITHOUT_EQUIVALENT, Outcome

    _check_files(arguments)
    target = target_of(arguments)
    scan = scan_inputs(arguments)
    failing = WITHOUT_EQUIVALENT if "equivalent" in arguments.allow else FAILING
    if "unknown" in arguments.fail_on:
        failing |= {Outcome.UNKNOWN}
    defects_fail = "defect" in arguments.fail_on
    # For a folder or a pattern, `scan.files` has the files that it stands for.
    is_single_file = len(arguments.paths) == 1 and scan.files == (*arguments.paths,)
    if arguments.write_fixed is not None and not (is_single_file and _is_onnx(arguments.paths[0])):
        raise InvalidArgumentError("--write-fixed needs exactly one PATH, an .onnx file")
    assessment = assess(scan.sites, target, scan.unreadable, failing, defects_fail)
    is_printed = arguments.output in (None, STDOUT)
    inputs = [] if is_printed else list(scan.inputs())
    rewriting: Rewriting | None = None
    failure: DmlError | OSError | None = None
    if arguments.write_fixed is not None:
        if not is_printed:
            from dmlsplit.atomic import refuse_inputs

            # Here before the model is written; `write_text` checks it again.
            refuse_inputs(Path(arguments.output), list(map(Path, inputs)))
        try:
            rewriting = _write_fixed(arguments, assessment)
        except (DmlError, OSError) as error:
            failure = error
    changes: list[str] = []
    reported: Sequence[Assessment] = (assessment,)
    if rewriting is not None:
        changes = _changes(rewriting, arguments.write_fixed)
        reported = tuple(map(without_rewriting, filter(None, (rewriting.written, assessment))))
    if not is_printed or arguments.format != "text":
        for line in changes:
            print_message(line)
    write_result(_report(arguments, reported, is_printed, changes), arguments.output, inputs)
    if failure is not None:
        raise failure
    return status_of(reported[0])


def _report(
    arguments: argparse.Namespace,
    assessments: "Sequence[Assessment]",
    is_printed: bool,
    changes: Sequence[str],
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
        colour, detail = is_printed and terminal.is_colour_wanted(), arguments.detail
        lines = [wrapped(line, "  " if index else "") for index, line in enumerate(changes)]
        heading = "\n".join(lines)
        for before in assessments[1:] if detail == "verbose" else ():
            old = text_report(before, colour, detail, "Before:")
            heading = "\n\n".join([heading, old, "After:"])
        return text_report(assessments[0], colour, detail, heading)


def _check_files(arguments: argparse.Namespace) -> None:
    """Refuse options that need --write-fixed, and a file that cannot be the written model."""
    fixed = arguments.write_fixed
    if fixed is None:
        if arguments.overwrite:
            raise InvalidArgumentError(
                "--overwrite applies to --write-fixed only; a report replaces a file without it"
            )
        return
    if not _is_onnx(fixed):
        raise InvalidArgumentError(
            f"--write-fixed is {fixed!r}; it must be a file whose name ends in .onnx"
        )
    if arguments.output and os.path.realpath(arguments.output) == os.path.realpath(fixed):
        raise InvalidArgumentError("-o and --write-fixed name the same file; name different files")
    if len(arguments.paths) == 1 and _is_onnx(arguments.paths[0]):
        from dmlsplit.frontends.onnx.scanner import check_folder

        # Here before the model is checked, which may take a while; `write_fixed` checks it again.
        check_folder(Path(arguments.paths[0]), Path(fixed))


def _is_onnx(path: str) -> bool:
    return path.lower().endswith(".onnx")


def _write_fixed(arguments: argparse.Namespace, assessment: "Assessment") -> "Rewriting | None":
    """Write the rewritten model; None if the model cannot be read."""
    try:
        from dmlsplit.lint.fix.rewrite import write_fixed
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"--write-fixed needs the package {error.name}. Fix: pip install 'dmlsplit[onnx]'"
        ) from None
    if assessment.unreadable:
        return None
    source, output = Path(arguments.paths[0]), Path(arguments.write_fixed)
    return write_fixed(source, output, assessment, dict(arguments.dim), arguments.overwrite)


def _comparison(rewriting: "Rewriting") -> str:
    """How the replaced splits were compared: on what, at which sizes, and where."""
    splits = rewriting.replaced
    counts = sorted({split.input_count for split in splits})
    smallest = [split.smallest_size for split in splits if split.smallest_size is not None]
    sizes = f" for every size{' from 1' * max(smallest)}" if smallest else ""
    whose = "its outputs equal the original's"
    if len(splits) > 1:
        whose = "their outputs equal the originals'"
    runtimes = " and ".join(sorted({split.runtime for split in splits}))
    assert rewriting.written is not None
    return (
        f"{whose} bit for bit{sizes} on {' or '.join(map(str, counts))} random inputs, compared in "
        f"{runtimes}, not in the target's {rewriting.written.target.runtime}"
    )


def _changes(rewriting: "Rewriting", output: str) -> list[str]:
    """Whether the model was written, then a line for each split: what replaces it, or why not."""
    from dmlsplit.lint.report.findings import address

    kept = [f"{address(s)}: not replaced: {reason}" for s, reason in rewriting.not_replaced]
    if rewriting.written is None:
        why = "no split could be replaced" if kept else "no split is refused"
        return [f"{why}, so {output} was not written", *kept]
    replaced = [f"{address(split.site)}: now {split.operators}" for split in rewriting.replaced]
    return [
        f"{output}: {counted(len(replaced), 'split')} replaced; {_comparison(rewriting)}",
        *replaced[:MAX_SHOWN],
        *omitted_line(len(replaced), MAX_SHOWN),
        *kept,
    ]
