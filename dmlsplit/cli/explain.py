"""``dmlsplit explain``: the geometry, kernels and computed time of a split; a rule; an HRESULT."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dmlsplit.cli.inputs import (
    PATH_OR_RULE,
    Commands,
    add_command,
    add_inputs,
    add_target,
    move_path_from_ort,
    scan_inputs,
    target_of,
)
from dmlsplit.cli.page_text import page_text
from dmlsplit.cli.terminal import (
    EXIT_OK,
    EXIT_REFUSED,
    STDOUT,
    is_colour_wanted,
    print_message,
    print_result,
    print_to_stderr,
    status_of,
    write_result,
)
from dmlsplit.errors import InvalidArgumentError, prefix_errors
from dmlsplit.messages import counted, did_you_mean, shown

if TYPE_CHECKING:
    from dmlsplit.directml.operator import SplitOperatorDesc
    from dmlsplit.lint.verdict import Assessment
    from dmlsplit.models.site import SplitSite

# A path of this form is the id of a rule, unless there is such a file or folder.
_RULE_ID = re.compile(r"[A-Z]+(-[A-Z]+)+")
VERDICTS = "verdicts"  # lists what `validate` may say, unless there is such a file or folder
_WORD = re.compile(r"-?\w+")  # without an ending, a folder or a pattern

_DESCRIPTION = """\
Show how a split runs: which bytes go to each output, which kernels copy them,
with how many blocks and threads, and the least time that the memory bandwidth
of a GPU allows. That time is computed, not measured: no GPU has run dmlsplit
yet.

A split that is refused is explained by its equivalent, if it has one. If the
verdict on a split is unknown, the split is not explained; the report says what
decides it, such as --dim.

Given the id of a rule, such as DML-SPLIT-AXIS-RANGE, show the rule, how it is
known, examples, and the fix. Given an HRESULT, such as 80070057, 887A0004 or
887A0005, show what it means and which rules it may come from. Given the word
verdicts, list what validate may say about a split.
"""

_STATUSES = {
    EXIT_OK: "every split, or its equivalent, was explained; unknown ones were listed",
    EXIT_REFUSED: "a split is refused and has no known equivalent, or its model does not load",
}

_EXAMPLES = """\
  dmlsplit explain --data-type FLOAT32 --sizes 1,1,6,2 --axis 2 --split 2,1,3
  dmlsplit explain model.onnx --gpu H200 --node cut --svg picture.svg
  dmlsplit explain DML-SPLIT-AXIS-RANGE
  dmlsplit explain 80070057
  dmlsplit explain verdicts
"""


def add_to(commands: Commands) -> None:
    """Add the command."""
    summary = "show which bytes a split copies, how, in what time; or explain a rule or an HRESULT"
    parser = add_command(
        commands,
        explain,
        summary=summary,
        description=_DESCRIPTION,
        examples=_EXAMPLES,
        statuses=_STATUSES,
    )
    add_inputs(
        parser,
        PATH_OR_RULE,
        "; or the id of a rule, such as DML-SPLIT-AXIS-RANGE, or an HRESULT, such as 80070057",
    )
    add_target(parser)
    parser.add_argument(
        "--node",
        metavar="NAME",
        help="explain only this node: its name, or its graph and name as validate prints them",
    )
    parser.add_argument(
        "--gpu",
        metavar="NAME",
        help="the GPU to compute the time for, such as H200 or RTX 4090 (default: the first CUDA "
        "device, or H200 without one)",
    )
    parser.add_argument(
        "--svg",
        metavar="FILE",
        help="draw which bytes of the input go to which output; - prints the drawing instead of "
        "the text",
    )


def explain(arguments: argparse.Namespace) -> int:
    """Explain rules, or the splits of the paths; those not explained are listed on stderr."""
    if arguments.paths == [VERDICTS] and not Path(VERDICTS).exists():
        from dmlsplit.lint.verdict_page import verdicts_page

        _print_page(verdicts_page())
        return EXIT_OK
    if numbers := _hresults(arguments):
        from dmlsplit.lint.hresult_page import hresult_page

        _print_page("\n".join(map(hresult_page, numbers)))
        return EXIT_OK
    _check_words(arguments.paths)
    is_rule = any(map(_is_rule, arguments.paths))
    return _explain_rules(arguments) if is_rule else _explain_splits(arguments)


def _is_rule(path: str) -> bool:
    """Whether a path has the form of a rule's id, and is not a file."""
    return _RULE_ID.fullmatch(path.upper()) is not None and not Path(path).exists()


def _hresults(arguments: argparse.Namespace) -> list[int]:
    """The HRESULTS that the paths are, if all of them are; a file of that name comes first."""
    from dmlsplit.lint.hresult_page import hresult_of

    numbers = [hresult_of(path) for path in arguments.paths if not Path(path).exists()]
    known = [number for number in numbers if number is not None]
    return known if len(known) == len(arguments.paths) else []


def _check_words(paths: Sequence[str]) -> None:
    """Refuse a word that can be nothing that the command explains."""
    from dmlsplit.lint.rules import HRESULTS, RULES

    for path in paths:
        if _WORD.fullmatch(path) and not _is_rule(path) and not Path(path).exists():
            near = did_you_mean(path.upper(), [*RULES, *(f"{number:08X}" for number in HRESULTS)])
            raise InvalidArgumentError(
                f"{path!r} is neither a rule, an HRESULT of a Split nor a file{near}"
            )


def _print_page(page: str) -> None:
    """Print a page of Markdown as text."""
    print_result(page_text(page, is_bold=is_colour_wanted()))


def _explain_rules(arguments: argparse.Namespace) -> int:
    """Print the pages of rules."""
    from dmlsplit.lint.rule_page import rule_page
    from dmlsplit.lint.rules import RULES

    ids = [path.upper() if _is_rule(path) else path for path in arguments.paths]
    for unknown in (rule for rule in ids if rule not in RULES):
        if not _is_rule(unknown):
            fix = "Fix: give only ids of rules, or only PATHs"
            raise InvalidArgumentError(f"{unknown!r} is not the id of a rule. {fix}")
        fix = ". Fix: give an id that dmlsplit validate prints, such as DML-SPLIT-AXIS-RANGE"
        near = did_you_mean(unknown, RULES) or fix
        raise InvalidArgumentError(f"{unknown!r} is neither the id of a rule nor a file{near}")
    without_options = arguments.parser.parse_args([explain.__name__, *arguments.paths])
    if set_options := [
        f"--{name.replace('_', '-')}"
        for name, value in vars(arguments).items()
        if name != "options" and value != getattr(without_options, name)
    ]:
        raise InvalidArgumentError(
            f"{' and '.join(set_options)} cannot be given with a rule. Fix: give only its id"
        )
    _print_page("\n".join(rule_page(RULES[rule]) for rule in ids))
    return EXIT_OK


def _explain_splits(arguments: argparse.Namespace) -> int:
    """Explain the splits of the paths as text, as a picture, or both; returns the exit status."""
    from dmlsplit.backends.cuda.gpus import find_gpu, this_gpu
    from dmlsplit.explain.explanation import explanations_text
    from dmlsplit.files.atomic import refuse_inputs
    from dmlsplit.lint.check import assess
    from dmlsplit.lint.verdict import WITHOUT_EQUIVALENT

    with prefix_errors("--gpu"):
        gpu = this_gpu() if arguments.gpu is None else find_gpu(arguments.gpu)
    move_path_from_ort(arguments)
    target = target_of(arguments)
    if arguments.svg not in (None, STDOUT):  # before the scan, which may take a while
        inputs = [path for path in map(Path, arguments.paths) if path.is_file()]
        refuse_inputs(Path(arguments.svg), inputs)
    scan = scan_inputs(arguments)
    sites = _sites_named(scan.sites, arguments.node)
    assessment = assess(sites, target, scan.unreadable, failing=WITHOUT_EQUIVALENT)
    splits = _explicable_splits(assessment)
    _print_notes(assessment, arguments.svg)
    if arguments.svg != STDOUT:
        print_result(explanations_text(splits, gpu))
    if arguments.svg is not None:
        write_result(_picture(splits), arguments.svg, scan.inputs())
    # `Assessment.fails` counts "an equivalent may exist" as unknown; it was not explained either.
    refused = any(verdict.outcome in WITHOUT_EQUIVALENT for verdict in assessment.verdicts)
    return max(status_of(assessment), EXIT_REFUSED if refused else EXIT_OK)


def _explicable_splits(assessment: "Assessment") -> list[tuple[str, "SplitOperatorDesc"]]:
    """The splits that can be explained, each with its location; why others cannot is printed."""
    from dmlsplit.lint.report.findings import location
    from dmlsplit.lint.report.paragraph import paragraph
    from dmlsplit.lint.verdict import UNREACHED, WITHOUT_EQUIVALENT, Outcome

    splits = []
    for verdict in assessment.verdicts:
        if verdict.outcome in WITHOUT_EQUIVALENT | {Outcome.UNKNOWN}:
            print_to_stderr(paragraph(verdict))
        elif verdict.outcome in UNREACHED:
            print_message(f"note: {location(verdict.site)}: {verdict.outcome}: {verdict.notes[0]}")
        elif desc := verdict.equivalent or verdict.descriptor:
            sized = " (with dynamic sizes = 1)" if verdict.sizes else ""
            instead = ": refused; this explains its equivalent" if verdict.equivalent else ""
            splits.append((location(verdict.site) + sized + instead, desc))
        else:
            print_message(
                f"note: {location(verdict.site)}: nothing to copy, as all of its outputs are empty"
            )
    return splits


def _print_notes(assessment: "Assessment", svg: str | None) -> None:
    """Print how many splits are not explained; an error if none is there to be drawn."""
    from dmlsplit.lint.verdict import Outcome

    if unknown := assessment.counts[Outcome.UNKNOWN]:
        print_message(
            f"note: not explained: {counted(unknown, 'unknown split')}; see the fix of each above"
        )
    if not assessment.verdicts and not assessment.unreadable:
        if svg is not None:
            raise InvalidArgumentError(
                "--svg draws one split; no splits found. Fix: give a file with a split"
            )
        print_message("note: no splits found")


def _picture(splits: Sequence[tuple[str, "SplitOperatorDesc"]]) -> str:
    """The drawing of the only split."""
    from dmlsplit.explain.picture import svg_picture

    if len(splits) != 1:
        raise InvalidArgumentError(
            f"--svg draws one split, not {len(splits)}. Fix: give one file, and choose a "
            "split with --node"
        )
    ((_, desc),) = splits
    return svg_picture(desc).rstrip("\n")


def _sites_named(sites: Sequence["SplitSite"], name: str | None) -> Sequence["SplitSite"]:
    """The sites with a name or an address; all sites for None."""
    from dmlsplit.lint.report.findings import address

    if name is None:
        return sites
    named = [site for site in sites if name in (site.node, address(site))]
    if not named:
        names = shown([site.node or address(site) for site in sites])
        allowed = f"it must be one of {names}" if sites else "there are no splits"
        raise InvalidArgumentError(f"--node is {name!r}; {allowed}")
    return named
