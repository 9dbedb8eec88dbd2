"""``dmlsplit validate``: what happens to the splits of a model."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dmlsplit.cli.inputs import (
    Commands,
    add_command,
    add_inputs,
    add_target,
    scan_inputs,
    target_of,
    windows_note,
)
from dmlsplit.cli.reports import (
    add_report,
    check_outputs,
    is_one_file,
    known_findings,
    outputs,
    write_reports,
)
from dmlsplit.cli.terminal import (
    EXIT_OK,
    EXIT_REFUSED,
    EXIT_UNUSABLE,
    print_message,
    progress_bar,
    status_of,
)
from dmlsplit.errors import DmlError, InvalidArgumentError, UnsupportedError
from dmlsplit.messages import MAX_SHOWN, counted, omitted_line

if TYPE_CHECKING:
    from dmlsplit.lint.fix.rewrite import Rewriting
    from dmlsplit.lint.target import Target
    from dmlsplit.lint.verdict import Assessment
    from dmlsplit.models.discovery import Scan

_DESCRIPTION = """\
Find every split in each PATH, in nested graphs and functions too, and say what
happens to it: does the model load; does the split run on DirectML, on the CPU,
or not at all; may its numbers be wrong; the descriptor that it becomes, why,
and what to change. The model is not run, and no GPU is needed.

An ONNX model is checked for ONNX Runtime (--ort) or Windows ML (--winml), who
pass its splits to DirectML; other files are checked for a program that calls
DirectML itself. When DirectML refuses a split at run time, it returns 80070057
(E_INVALIDARG, "The parameter is incorrect").

The verdicts, those that fail first:
  the model does not load
      its opset, its IR version, a type that contradicts another, or an operator
      that the runtime lacks; a model without a split gets this verdict too
  refused
      a runtime writes none of the pieces, because one of them is empty; or, for
      a program of one's own, DirectML refuses the split, and no equivalent
      descriptor is known (refused for every size: whatever the dynamic sizes)
  refused, an equivalent exists
      DirectML refuses the split of a program of one's own but accepts the
      descriptor that is shown, which moves the same bytes
  fails when it runs
      the model loads, and the runtime fails at the node
  unknown
      it depends on sizes that are known only when the model runs, or on what no
      source says about the runtime
  runs on the CPU
      the provider leaves the node to the CPU
  runs on DirectML, runs on DirectML at any size
      the second one holds for all dynamic sizes up to the limit that is shown
  folded away
      ONNX Runtime computes the node when it loads the model, because its input
      is a constant or the known shape of a value
  never runs
      the node is in a branch of an If, or in the body of a Loop, that a
      constant switches off
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
  dmlsplit validate --data-type FLOAT32 --sizes 1,1,6,2 --axis 2 --split 2,1,3 \\
      --feature-level 3_0
"""


def add_to(commands: Commands) -> None:
    """Add the command."""
    from dmlsplit.lint.report import FORMATS

    summary = "say whether the splits of a model run on DirectML, why not, and how to fix it"
    formats = "".join(f"  {name:<6}  {text}\n" for name, text in FORMATS.items())
    more = f"formats:\n{formats}\n"
    parser = add_command(commands, validate, summary, _DESCRIPTION, _EXAMPLES, _STATUSES, more)
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
        metavar="OUT.onnx",
        help="write the model with each refused split replaced by standard ONNX nodes that the "
        "target accepts. Dynamic sizes stay dynamic, except for those given with --dim. First, "
        "each split and its replacement run on random inputs, in ONNX Runtime if it is installed; "
        "if a bit of their outputs differs, nothing is written. The report, which begins with the "
        "changes, and the exit status are those of the written model; --verbose also reports the "
        "old one. Only splits are checked, not other nodes",
    )
    fixing.add_argument("--overwrite", action="store_true", help="replace OUT.onnx if it exists")


def validate(arguments: argparse.Namespace) -> int:
    """Check every split of the paths."""
    from dmlsplit.files.atomic import refuse_inputs
    from dmlsplit.lint.advice import without_rewriting

    target = target_of(arguments)
    _check_files(arguments)
    check_outputs(arguments)
    known = known_findings(arguments.baseline)
    scan = scan_inputs(arguments)
    assessment = _assessed(arguments, scan, target, known or frozenset())
    inputs = list(scan.inputs()) if outputs(arguments) else []
    for file in outputs(arguments).values():  # those in folders too, before the model is written
        refuse_inputs(Path(file), list(map(Path, inputs)))
    rewriting: Rewriting | None = None
    failure: DmlError | OSError | None = None
    if arguments.write_fixed is not None:
        try:
            with progress_bar("rewrite"):
                rewriting = _write_fixed(arguments, assessment)
        except (DmlError, OSError) as error:
            failure = error
    changes: list[str] = []
    reported: Sequence[Assessment] = (assessment,)
    if rewriting is not None:
        changes = _changes(rewriting, arguments.write_fixed)
        reported = tuple(map(without_rewriting, filter(None, (rewriting.written, assessment))))
    write_reports(arguments, reported, changes, inputs)
    if failure is not None:
        raise failure
    if note := windows_note(arguments):
        print_message(note)
    return status_of(reported[0])


def _assessed(
    arguments: argparse.Namespace,
    scan: "Scan",
    target: "Target",
    known: frozenset[tuple[str, str]],
) -> "Assessment":
    from dmlsplit.lint.check import assess
    from dmlsplit.lint.verdict import FAILING, WITHOUT_EQUIVALENT, Outcome

    failing = WITHOUT_EQUIVALENT if "equivalent" in arguments.allow else FAILING
    outcomes = {"unknown": Outcome.UNKNOWN, "cpu": Outcome.ON_CPU}
    failing |= {outcome for word, outcome in outcomes.items() if word in arguments.fail_on}
    defects_fail = "defect" in arguments.fail_on
    models = scan.without_splits
    assessment = assess(scan.sites, target, scan.unreadable, failing, defects_fail, models)
    return replace(assessment, baseline=known)


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
    if not (is_one_file(arguments.paths) and _is_onnx(arguments.paths[0])):
        raise InvalidArgumentError("--write-fixed needs exactly one PATH, an .onnx file")
    from dmlsplit.models.onnx.scanner import check_output

    # Here before the model is checked, which may take a while; `write_fixed` checks it again.
    check_output(Path(arguments.paths[0]), Path(fixed), arguments.overwrite)


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
    return (
        f"{whose} bit for bit{sizes} on {' or '.join(map(str, counts))} random inputs, compared in "
        f"{runtimes}, not with DirectML"
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
