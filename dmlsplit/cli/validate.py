"""``dmlsplit validate``: whether DirectML accepts the splits of a model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dmlsplit.cli.inputs import Commands, add_command, add_inputs, scanned
from dmlsplit.cli.terminal import show, status_of, tell, wants_colour
from dmlsplit.errors import InvalidArgumentError, UnsupportedError
from dmlsplit.messages import counted

if TYPE_CHECKING:
    from dmlsplit.lint.verdict import Assessment

FORMATS = ("text", "json", "github", "sarif", "junit")

_DESCRIPTION = """\
Find every split of each PATH, nested bodies and functions included, and say
whether DirectML accepts it: where the split is, the descriptor it becomes, each
broken rule, the lowest feature level, DirectML version and Windows build that
accept it, and what to change. Nothing is run, and no GPU is needed.

The verdicts:
  ok                   the target accepts it as it is
  ok after legalizing  the target refuses it as it is, but accepts an equivalent
                       descriptor on the same buffers, which is shown
  refused              the target refuses it
  unknown              a size is known only when the model runs
"""

_EPILOG = """\
formats:
  text    for people: at most 80 columns, a summary table last
  json    for programs: schema 1, described by report.schema.json of the package
  github  annotations of GitHub Actions
  sarif   SARIF 2.1.0, for code-scanning pages
  junit   JUnit XML, one suite per file and one case per split

exit status:
  0  every split is accepted
  1  a split is refused, or is ok only after legalizing (see --allow), or is
     unknown and --fail-on unknown was given
  2  wrong usage, or a file could not be read; the others are still reported
  130  interrupted

examples:
  dmlsplit validate model.onnx --feature-level 2_0
  dmlsplit validate model.onnx --windows 19041 --write-fixed fixed.onnx
  dmlsplit validate models/ 'more/**/*.onnx' --directml 1.8.0 --format sarif
  dmlsplit validate model.onnx --via ort --fail-on unknown
  dmlsplit validate --data-type FLOAT32 --sizes 1,1,6,2 --axis 2 --split 2,1,3 \\
      --feature-level 3_0
"""


def add_to(commands: Commands) -> None:
    """Add the command."""
    summary = "say which splits of a model DirectML refuses, why, and how to fix it"
    parser = add_command(commands, validate, summary, _DESCRIPTION, _EPILOG)
    add_inputs(parser)
    target = parser.add_argument_group(
        "the DirectML to judge for (default: the newest feature level)"
    ).add_mutually_exclusive_group()
    target.add_argument("--feature-level", metavar="L", help="such as 2_0, or 4.1")
    target.add_argument("--directml", metavar="VERSION", help="version of DirectML.dll, 1.8.0")
    target.add_argument(
        "--windows", metavar="BUILD", help="the DirectML.dll inside a Windows build, 22621"
    )
    parser.add_argument(
        "--via",
        choices=("directml", "ort"),
        default="directml",
        help="judge as DirectML itself (default), or as ONNX Runtime's DirectML provider: its "
        "operators and types, ranks padded to 4, level 5_0 or above, and no empty pieces",
    )
    report = parser.add_argument_group("the report")
    report.add_argument("--format", choices=FORMATS, default="text", help="default: text")
    report.add_argument("-o", "--output", metavar="FILE", help="write the report to a file")
    report.add_argument(
        "--fail-on",
        action="append",
        choices=("unknown",),
        default=[],
        help="exit with 1 for splits of unknown size as well",
    )
    report.add_argument(
        "--allow",
        action="append",
        choices=("legalizing",),
        default=[],
        help="exit with 0 where an equivalent descriptor is accepted: your runtime legalizes",
    )
    parser.add_argument(
        "--write-fixed",
        metavar="OUT.onnx",
        help="write the model with each refused split replaced by an equivalent subgraph of "
        "standard ONNX nodes that the target accepts. Both models are run on random inputs and "
        "compared first; nothing is written if they differ. Nodes other than splits are not judged",
    )


def validate(arguments: argparse.Namespace) -> int:
    """Judge every split of the paths."""
    from dmlsplit.atomic import write_text
    from dmlsplit.lint.discovery import ENDINGS
    from dmlsplit.lint.judge import assess
    from dmlsplit.lint.report import REPORTS
    from dmlsplit.lint.target import resolve_target
    from dmlsplit.lint.verdict import Outcome

    target = resolve_target(
        feature_level=arguments.feature_level,
        directml=arguments.directml,
        windows=arguments.windows,
        via=arguments.via,
    )
    endings = (".onnx",) if arguments.via == "ort" else ENDINGS
    scan = scanned(arguments, endings)
    failing = {Outcome.REFUSED}
    if "legalizing" not in arguments.allow:
        failing.add(Outcome.LEGALIZED)
    if "unknown" in arguments.fail_on:
        failing.add(Outcome.UNKNOWN)
    assessment = assess(scan.sites, target, scan.unreadable, failing)
    report = REPORTS[arguments.format]
    if arguments.output is None:
        show(report(assessment, wants_colour()))
    else:
        write_text(Path(arguments.output), report(assessment, False) + "\n")
    if arguments.write_fixed is not None:
        _write_fixed(arguments, assessment)
    return status_of(assessment)


def _write_fixed(arguments: argparse.Namespace, assessment: Assessment) -> None:
    """Write the rewritten model, and say on standard error what was replaced."""
    try:
        from dmlsplit.lint.fix.rewrite import write_fixed
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"--write-fixed needs the package {error.name}; pip install 'dmlsplit[onnx]'"
        ) from None
    if len(arguments.paths) != 1 or not arguments.paths[0].lower().endswith(".onnx"):
        raise InvalidArgumentError("--write-fixed takes exactly one PATH, an .onnx file")
    if assessment.unreadable:
        return
    done = write_fixed(Path(arguments.paths[0]), Path(arguments.write_fixed), assessment)
    for site, reason in done.left:
        tell(f"{site.place}/{site.node or site.index}: left as it is: {reason}")
    if not done.replaced:
        tell(f"nothing to replace; {arguments.write_fixed} is not written")
        return
    tell(
        f"{arguments.write_fixed}: written with {counted(len(done.replaced), 'split')} replaced; "
        f"both models agree bit for bit on random inputs ({done.engine})"
    )
