"""``dmlsplit validate``: whether DirectML accepts the splits of a model."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from dmlsplit.cli.inputs import Commands, add_command, add_inputs, add_target, scanned, target_of
from dmlsplit.cli.terminal import (
    ACCEPTED,
    REFUSED,
    STDOUT,
    UNUSABLE,
    columns,
    deliver,
    status_of,
    tell,
    wants_colour,
)
from dmlsplit.errors import InvalidArgumentError, UnsupportedError
from dmlsplit.messages import WIDTH, counted, wrapped_at

if TYPE_CHECKING:
    from dmlsplit.lint.verdict import Assessment

_DESCRIPTION = """\
Find every split in each PATH, also in nested bodies and functions, and report
whether DirectML accepts it: where the split is, the descriptor it becomes, each
broken rule, the lowest feature level, DirectML version and Windows build that
accept it, and what to change. Nothing runs, and no GPU is needed. At run time,
a refusal is 80070057 (E_INVALIDARG, "The parameter is incorrect").

The verdicts:
  ok
      the target accepts it
  ok for every size
      some sizes are dynamic, and the target accepts every value of them, up to
      the limit that is shown
  refused, an equivalent exists
      the target refuses it but accepts the descriptor that is shown, which
      moves the same bytes between the same buffers
  refused
      the target refuses it and every equivalent descriptor
  refused for every size
      some sizes are dynamic, and the target refuses every value of them
  unknown
      the verdict depends on sizes that are known only when the model runs, or
      that could not be inferred; the report shows the --dim that decides it
"""

FORMATS = {
    "text": "for people: as wide as the terminal, with a summary table at the end",
    "json": "for programs: schema 2, described by report.schema.json in the package",
    "github": "annotations for GitHub Actions",
    "sarif": "SARIF 2.1.0, for code-scanning pages",
    "junit": "JUnit XML, one suite per file and one case per split",
}

_DETAILS = {
    "quiet": "in a text report, show only splits that are not ok",
    "verbose": "in a text report, show every split, even if many are ok",
}

_STATUSES = {
    ACCEPTED: "every split is accepted (with --write-fixed, of the written model)",
    REFUSED: "a split is refused (see --allow), is unknown with --fail-on unknown, or\n"
    "       meets a known defect with --fail-on defect; or the target is unusable",
    UNUSABLE: "wrong usage, or a file could not be read; the others are still reported",
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
        help="also exit with 1 for splits of unknown size, or for splits that meet a known defect "
        "of DirectML; may be repeated",
    )
    report.add_argument(
        "--allow",
        action="append",
        choices=("equivalent",),
        default=[],
        help="exit with 0 for splits with an equivalent, because your runtime uses it",
    )
    fixing = parser.add_argument_group("a rewritten model")
    fixing.add_argument(
        "--write-fixed",
        metavar="OUT.onnx",
        help="write the model with each refused split replaced by an equivalent subgraph of "
        "standard ONNX nodes that the target accepts. First, ONNX Runtime, or ONNX's reference "
        "evaluator if that fails, runs both models on several random inputs; if any bit of their "
        "outputs differs, nothing is written. Sizes given with --dim apply to these inputs and "
        "are fixed in the written model. A message says how many of the replaced splits ran. The "
        "exit status is that of the written model. Only splits are checked, not other nodes",
    )
    fixing.add_argument(
        "--input",
        metavar="FILE.npz",
        help="inputs by name for that comparison, as numpy.savez writes them; inputs that the file "
        "lacks are random",
    )


def validate(arguments: argparse.Namespace) -> int:
    """Judge every split of the paths."""
    from dmlsplit.lint.judge import assess
    from dmlsplit.lint.verdict import FAILING, WITHOUT_EQUIVALENT, Outcome

    _check_files(arguments)
    target = target_of(arguments)
    scan = scanned(arguments)
    failing = WITHOUT_EQUIVALENT if "equivalent" in arguments.allow else FAILING
    if "unknown" in arguments.fail_on:
        failing |= {Outcome.UNKNOWN}
    defects_fail = "defect" in arguments.fail_on
    assessment = assess(scan.sites, target, scan.unreadable, failing, defects_fail)
    text = _report(arguments, assessment)
    given = [] if arguments.input is None else [arguments.input]
    deliver(text, arguments.output, [*scan.files, *given])
    if arguments.write_fixed is not None:
        assessment = _write_fixed(arguments, assessment)
    return status_of(assessment)


def _report(arguments: argparse.Namespace, assessment: "Assessment") -> str:
    """The report, as wide as the terminal if it is for that."""
    from dmlsplit.lint.report import REPORTS
    from dmlsplit.lint.report.text import text_report

    is_printed = arguments.output in (None, STDOUT)
    with wrapped_at(columns() if is_printed else WIDTH):
        if arguments.format == "text":
            return text_report(assessment, is_printed and wants_colour(), arguments.detail)
        return REPORTS[arguments.format](assessment)


def _check_files(arguments: argparse.Namespace) -> None:
    """Refuse one name for report and model, a model on standard output, and unused inputs."""
    if arguments.input is not None and arguments.write_fixed is None:
        raise InvalidArgumentError("--input needs --write-fixed, which compares models on it")
    if arguments.write_fixed == STDOUT:
        raise InvalidArgumentError("--write-fixed cannot be -: a model is binary; name a file")
    outputs = {os.path.realpath(each) for each in (arguments.output, arguments.write_fixed) if each}
    if arguments.output and arguments.write_fixed and len(outputs) == 1:
        raise InvalidArgumentError("-o and --write-fixed name the same file; name different files")


def _write_fixed(arguments: argparse.Namespace, assessment: "Assessment") -> "Assessment":
    """Write and assess the rewritten model; say on standard error what was replaced."""
    try:
        from dmlsplit.lint.fix.rewrite import write_fixed
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"--write-fixed needs the package {error.name}. Fix: pip install 'dmlsplit[onnx]'"
        ) from None
    if len(arguments.paths) != 1 or not arguments.paths[0].lower().endswith(".onnx"):
        raise InvalidArgumentError("--write-fixed needs exactly one PATH, an .onnx file")
    if assessment.unreadable:
        return assessment
    source, output = Path(arguments.paths[0]), Path(arguments.write_fixed)
    feed = None if arguments.input is None else Path(arguments.input)
    done = write_fixed(source, output, assessment, dict(arguments.dim), feed)
    for site, reason in done.left:
        tell(f"{site.place}/{site.node or site.index}: not replaced: {reason}")
    if done.agreement is None or done.written is None:
        tell(f"no split was replaced; {arguments.write_fixed} was not written")
        return assessment
    agreed = done.agreement
    tell(
        f"{arguments.write_fixed}: written with {counted(len(done.replaced), 'split')} replaced, "
        f"of which {agreed.ran} ran; both models agree bit for bit on "
        f"{counted(agreed.runs, 'input')} ({agreed.engine})"
    )
    return done.written
