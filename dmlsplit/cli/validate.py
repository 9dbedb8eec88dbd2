"""``dmlsplit validate``: what happens to the splits of a model."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dmlsplit.cli.inputs import (
    Commands,
    add_command,
    add_inputs,
    add_target,
    move_path_from_ort,
    scan_inputs,
    target_of,
    windows_note,
)
from dmlsplit.cli.reports import (
    add_report,
    check_output_files,
    known_findings,
    output_files,
    write_reports,
)
from dmlsplit.cli.terminal import EXIT_OK, EXIT_REFUSED, EXIT_UNUSABLE, print_message, status_of
from dmlsplit.cli.write_fixed import check_write_fixed, write_fixed

if TYPE_CHECKING:
    from dmlsplit.lint.target import Target
    from dmlsplit.lint.verdict import Assessment
    from dmlsplit.models.discovery import Scan

_DESCRIPTION = """\
Find every split in each PATH, in nested graphs and functions too, and say what
happens to it: does the model load; does the split run on DirectML, on the CPU,
or not at all; may its numbers be wrong; why, and what to change. The model is
not run, and no GPU is needed. 'dmlsplit explain verdicts' lists what may happen
to a split.
"""

_STATUSES = {
    EXIT_OK: "nothing is rejected (with --write-fixed, in the written model)",
    EXIT_REFUSED: "a model does not load, a split fails or is refused (see --allow), or what\n"
    "       --fail-on names",
    EXIT_UNUSABLE: "wrong usage, or a file could not be read (all other files are reported)",
}

_EXAMPLES = """\
  dmlsplit validate model.onnx
  dmlsplit validate models/ --ort 1.17 --format sarif
  dmlsplit validate model.onnx --winml 22000 --dim batch=1 --fail-on unknown
  dmlsplit validate model.onnx --windows 19041 --write-fixed fixed.onnx
  dmlsplit validate models/ --ort 1.24 --write-fixed fixed/
  dmlsplit validate --data-type FLOAT32 --sizes 1,1,6,2 --axis 2 --split 2,1,3 \\
      --feature-level 3_0
"""


def add_to(commands: Commands) -> None:
    """Add the command."""
    from dmlsplit.lint.report import FORMATS

    summary = "say whether the splits of a model run on DirectML, why not, and how to fix it"
    formats = "".join(f"  {name:<6}  {text}\n" for name, text in FORMATS.items())
    more = f"formats:\n{formats}\n"
    parser = add_command(
        commands,
        validate,
        summary=summary,
        description=_DESCRIPTION,
        examples=_EXAMPLES,
        statuses=_STATUSES,
        more=more,
    )
    add_inputs(parser)
    add_target(parser)
    add_report(parser)
    verdicts = parser.add_argument_group("what fails")
    verdicts.add_argument(
        "--fail-on",
        action="append",
        choices=("cpu", "defect", "unknown"),
        default=[],
        help="also exit with 1 if a split runs on the CPU, if a known defect of DirectML may "
        "affect one, or if a verdict is unknown; may be repeated",
    )
    verdicts.add_argument(
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
        metavar="OUT.onnx|DIR",
        help="write the model with each refused split replaced by standard ONNX nodes that the "
        "target accepts; for a folder, a pattern or several PATHs, into a folder, each model that "
        "needs it under its relative path. Dynamic sizes stay dynamic, except for those given with "
        "--dim. First, each split and its replacement run on random inputs, in ONNX Runtime if it "
        "is installed; if a bit of their outputs differs, the model is not written. The report, "
        "which begins with the changes, and the exit status are those of the written models; "
        "--verbose also reports the old ones. Only splits are checked, not other nodes",
    )
    fixing.add_argument(
        "--overwrite", action="store_true", help="replace rewritten models that exist"
    )


def validate(arguments: argparse.Namespace) -> int:
    """Check every split of the paths."""
    from dmlsplit.files.atomic import refuse_inputs

    move_path_from_ort(arguments)
    target = target_of(arguments)
    check_write_fixed(arguments)
    check_output_files(arguments)
    known = known_findings(arguments.baseline)
    scan = scan_inputs(arguments)
    assessment = _assess_scan(arguments, scan, target, known or frozenset())
    files = output_files(arguments).values()
    inputs = list(scan.inputs()) if files else []
    for file in files:  # The scan has found the inputs in folders, and nothing is written yet.
        refuse_inputs(Path(file), list(map(Path, inputs)))
    fixed = write_fixed(arguments, assessment, inputs)
    write_reports(arguments, fixed.reported, fixed.changes, inputs)
    if fixed.failure is not None:
        raise fixed.failure
    if note := windows_note(arguments):
        print_message(note)
    return max(status_of(fixed.reported[0]), EXIT_UNUSABLE if fixed.failed else EXIT_OK)


def _assess_scan(
    arguments: argparse.Namespace,
    scan: "Scan",
    target: "Target",
    known: frozenset[tuple[str, str]],
) -> "Assessment":
    """The verdicts on the scanned splits, and which of them fail by the options."""
    from dmlsplit.lint.check import assess
    from dmlsplit.lint.verdict import FAILING, WITHOUT_EQUIVALENT, Outcome

    failing = WITHOUT_EQUIVALENT if "equivalent" in arguments.allow else FAILING
    outcomes = {"unknown": Outcome.UNKNOWN, "cpu": Outcome.ON_CPU}
    failing |= {outcome for word, outcome in outcomes.items() if word in arguments.fail_on}
    return assess(
        scan.sites,
        target,
        scan.unreadable,
        failing=failing,
        defects_fail="defect" in arguments.fail_on,
        without_splits=scan.without_splits,
        baseline=known,
    )
