"""``dmlsplit explain``: geometry, kernels and time of a split."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dmlsplit.cli.inputs import add_inputs, command_parser, scanned
from dmlsplit.cli.terminal import show, tell

if TYPE_CHECKING:
    from dmlsplit.cli.inputs import Commands
    from dmlsplit.explain.explanation import Explanation

_EXPLAIN = """\
Show how a split is carried out: the bytes that are left when data type, rank and
axis are gone, the kernel that is chosen for them, its launch shape, the bytes
moved, and the time that takes at the memory bandwidth of a GPU.
"""


_EXPLAIN_MORE = """\
exit status:
  0  explained    1  a split is invalid, so that there is nothing to carry out
  2  wrong usage, or a file could not be read

examples:
  dmlsplit explain --data-type FLOAT32 --sizes 1,1,6,2 --axis 2 --split 2,1,3
  dmlsplit explain model.onnx --gpu H200 --format json
  dmlsplit explain descriptor.json --svg picture.svg
"""


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = command_parser(
        commands,
        "explain",
        "show the geometry, kernel, launch shape and expected time of a split",
        _EXPLAIN,
        _EXPLAIN_MORE,
    )
    add_inputs(parser)
    parser.add_argument(
        "--gpu",
        "--card",
        metavar="NAME",
        help="the GPU that the time is for: the name of a known one, such as H200 or RTX 4090; "
        "default: the first CUDA device, else H200",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument(
        "--svg", metavar="FILE", help="draw which bytes of the input go to which output"
    )
    parser.set_defaults(command=explain)


def explain(arguments: argparse.Namespace) -> int:
    """Show how splits are carried out."""
    from dmlsplit.backends.cuda.gpus import find_gpu, this_gpu
    from dmlsplit.explain.explanation import explain as explain_split
    from dmlsplit.explain.report import explanation_json, explanation_text
    from dmlsplit.lint.discovery import ENDINGS
    from dmlsplit.lint.judge import Outcome, assess
    from dmlsplit.lint.report.phrases import location
    from dmlsplit.lint.target import resolve_target

    gpu = this_gpu() if arguments.gpu is None else find_gpu(arguments.gpu)
    sites, unreadable = scanned(arguments, ENDINGS)
    assessment = assess(sites, resolve_target(), unreadable, {Outcome.REFUSED})
    explained = []
    for verdict in assessment.verdicts:
        place = location(verdict.site)
        if assessment.fails(verdict) or verdict.outcome is Outcome.UNKNOWN:
            said = "; ".join(f"{r.rule.id} {r.message}" for r in verdict.diagnostics)
            tell(f"{place}: {verdict.outcome}: {said}")
        else:
            used = verdict.legalized or verdict.descriptors
            explained += [explain_split(place, desc, gpu) for desc in used]
    if arguments.format == "json":
        show(explanation_json(explained))
    else:
        show("\n\n".join(map(explanation_text, explained)))
    if arguments.svg is not None:
        _draw(Path(arguments.svg), explained)
    return assessment.status


def _draw(path: Path, explained: Sequence[Explanation]) -> None:
    from dmlsplit.atomic import write_text
    from dmlsplit.errors import InvalidArgumentError
    from dmlsplit.explain.picture import svg_picture

    if len(explained) != 1:
        raise InvalidArgumentError(
            f"--svg draws one split; there are {len(explained)}. Name one by flags"
        )
    write_text(path, svg_picture(explained[0].geometry, str(explained[0].desc)))
