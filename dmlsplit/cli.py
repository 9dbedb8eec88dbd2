"""The command line. Nothing else prints.

Exit status: 0 all is accepted, 1 something is refused, 2 usage or a file that cannot be
read. Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dmlsplit.arguments import (
    add_completion,
    add_devices,
    add_explain,
    add_run,
    add_validate,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dmlsplit.explain import Explanation
    from dmlsplit.frontends import Finding
    from dmlsplit.verdicts import Assessment

ACCEPTED, REFUSED, UNUSABLE = 0, 1, 2
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    arguments = build_parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = arguments.command
    from dmlsplit.errors import DmlError

    try:
        status = command(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
        return ACCEPTED
    except KeyboardInterrupt:
        return INTERRUPTED
    except (DmlError, OSError) as error:
        _complain(one_line(error))
        return UNUSABLE
    return status


def one_line(error: Exception) -> str:
    """Return the message of an error, in one line."""
    if isinstance(error, OSError) and error.strerror:
        name = "" if error.filename is None else f"{error.filename}: "
        return f"{name}{error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of every command."""
    parser = argparse.ArgumentParser(
        prog="dmlsplit",
        description="DirectML's Split operator: run it, and learn which level accepts it.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_validate(commands).set_defaults(command=validate)
    add_explain(commands).set_defaults(command=explain)
    _add_levels(commands)
    add_run(commands).set_defaults(command=run)
    add_devices(commands).set_defaults(command=devices)
    add_completion(commands).set_defaults(command=completion)
    return parser


def _version() -> str:
    from dmlsplit import __version__

    return __version__


def validate(arguments: argparse.Namespace) -> int:
    """Judge every split of the targets."""
    from dmlsplit.atomic import write_text
    from dmlsplit.report import REPORTS
    from dmlsplit.sources import ENDINGS
    from dmlsplit.targets import resolve_target
    from dmlsplit.verdicts import Outcome, assess

    target = resolve_target(
        feature_level=arguments.feature_level,
        directml=arguments.directml,
        windows=arguments.windows,
        via=arguments.via,
    )
    endings = (".onnx",) if arguments.via == "ort" else ENDINGS
    findings, unreadable = _findings(arguments, endings)
    failing = {Outcome.REFUSED, Outcome.LEGALIZED}
    failing -= {Outcome.LEGALIZED} if "legalizing" in arguments.allow else set()
    failing |= {Outcome.UNKNOWN} if "unknown" in arguments.fail_on else set()
    assessment = assess(findings, target, unreadable, failing)
    written = REPORTS[arguments.format]
    if arguments.output is not None:
        write_text(Path(arguments.output), written(assessment) + "\n")
    elif arguments.format == "text" and _wants_colour():
        from dmlsplit.report.text import coloured, text_report

        _show(text_report(assessment, coloured))
    else:
        _show(written(assessment))
    if arguments.write_fixed is not None:
        _write_fixed(arguments, assessment)
    return assessment.status


def _findings(
    arguments: argparse.Namespace, endings: Sequence[str]
) -> tuple[tuple[Finding, ...], tuple[tuple[str, str], ...]]:
    """Return what the targets or the flags describe; say what could not be read."""
    from dmlsplit.errors import InvalidArgumentError
    from dmlsplit.sources import flag_finding, scan_targets

    flags = ("data_type", "sizes", "axis", "split")
    given = [name for name in flags if getattr(arguments, name) is not None]
    if bool(given) == bool(arguments.targets) or 0 < len(given) < len(flags):
        raise InvalidArgumentError(
            "give either TARGET files, or all of --data-type, --sizes, --axis and --split"
        )
    if given and ".json" not in endings:
        raise InvalidArgumentError("ONNX Runtime takes models, no descriptors; leave out --via ort")
    if given:
        return (flag_finding(*(getattr(arguments, name) for name in flags)),), ()
    with progress_bar("scan") as progress:
        scan = scan_targets(arguments.targets, endings, progress)
    for file, message in scan.unreadable:
        _complain(f"{file}: {message}")
    return scan.findings, scan.unreadable


def explain(arguments: argparse.Namespace) -> int:
    """Show how splits are carried out."""
    from dmlsplit.backends.cuda.gpus import find_card, this_card
    from dmlsplit.explain import explain as explain_split
    from dmlsplit.report.explanation import explanation_json, explanation_text
    from dmlsplit.report.lines import location
    from dmlsplit.sources import ENDINGS
    from dmlsplit.targets import resolve_target
    from dmlsplit.verdicts import Outcome, assess

    card = this_card() if arguments.card is None else find_card(arguments.card)
    findings, unreadable = _findings(arguments, ENDINGS)
    assessment = assess(findings, resolve_target(), unreadable, {Outcome.REFUSED})
    explained = []
    for verdict in assessment.verdicts:
        place = location(verdict.finding)
        if assessment.fails(verdict) or verdict.outcome is Outcome.UNKNOWN:
            said = "; ".join(f"{r.rule.id} {r.message}" for r in verdict.remarks)
            _tell(f"{place}: {verdict.outcome}: {said}")
        else:
            used = verdict.legalized or verdict.descriptors
            explained += [explain_split(place, desc, card) for desc in used]
    if arguments.format == "json":
        _show(explanation_json(explained))
    else:
        _show("\n\n".join(map(explanation_text, explained)))
    if arguments.svg is not None:
        _draw(Path(arguments.svg), explained)
    return assessment.status


def devices(arguments: argparse.Namespace) -> int:
    """List the CUDA devices."""
    from dmlsplit.backends.cuda.nvml import cuda_devices
    from dmlsplit.report.devices import device_json, device_table

    found = cuda_devices()
    if arguments.format == "json":
        _show(device_json(found))
    elif found:
        _show(device_table(found))
    else:
        _tell("no CUDA device: there is no NVIDIA driver here; splits run on the CPU")
    return ACCEPTED


def _draw(path: Path, explained: Sequence[Explanation]) -> None:
    from dmlsplit.atomic import write_text
    from dmlsplit.errors import InvalidArgumentError
    from dmlsplit.picture import svg_picture

    if len(explained) != 1:
        raise InvalidArgumentError(
            f"--svg draws one split; there are {len(explained)}. Name one by flags"
        )
    write_text(path, svg_picture(explained[0].geometry, str(explained[0].desc)))


def _write_fixed(arguments: argparse.Namespace, assessment: Assessment) -> None:
    """Write the rewritten model; what was done goes to standard error."""
    from dmlsplit.errors import InvalidArgumentError, UnsupportedError

    try:
        from dmlsplit.rewrite import write_fixed
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"--write-fixed needs the package {error.name}; pip install 'dmlsplit[onnx]'"
        ) from None
    if len(arguments.targets) != 1 or not arguments.targets[0].lower().endswith(".onnx"):
        raise InvalidArgumentError("--write-fixed takes exactly one TARGET, an .onnx file")
    if assessment.unreadable:
        return
    done = write_fixed(Path(arguments.targets[0]), Path(arguments.write_fixed), assessment)
    for finding, reason in done.left:
        _tell(f"{finding.place}/{finding.node or finding.index}: left as it is: {reason}")
    if done.replaced:
        count = len(done.replaced)
        _tell(
            f"{arguments.write_fixed}: written with {count} split{'s' if count > 1 else ''} "
            f"replaced; both models agree bit by bit on random inputs ({done.engine})"
        )
    else:
        _tell(f"nothing to replace; {arguments.write_fixed} is not written")


def completion(arguments: argparse.Namespace) -> int:
    """Print a completion script."""
    from dmlsplit.errors import UnsupportedError

    try:
        import shtab
    except ModuleNotFoundError:
        raise UnsupportedError(
            "completion scripts need the package shtab; pip install shtab"
        ) from None
    _show(shtab.complete(build_parser(), arguments.shell))
    return ACCEPTED


def _show(text: str) -> None:
    """Print a result; a reader that goes early does not change the exit status."""
    if not text:
        return
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        print(text, flush=True)
    except BrokenPipeError:
        _forget_stdout()
    except OSError:
        _forget_stdout()
        raise


def _forget_stdout() -> None:
    """Keep Python from complaining about a closed pipe or full disk once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: str) -> None:
    _tell(f"error: {message}")


def _tell(message: str) -> None:
    """Say something that is not the result."""
    from dmlsplit.report.lines import printable

    print(f"dmlsplit: {printable(message)}", file=sys.stderr)


def _wants_colour() -> bool:
    """Whether to colour: on a terminal, unless the user says no (no-color.org)."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


def _add_levels(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "levels",
        help="what each feature level accepts, and which DirectML and Windows have it",
        description="The capability table of Split. Each row adds to the one before. A Windows "
        "build stands where its own DirectML.dll first has the level; f32 is FLOAT32, u16 UINT16.",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.set_defaults(command=levels)


def levels(arguments: argparse.Namespace) -> int:
    """Print the capability table."""
    from dmlsplit.level_listing import level_records, level_table

    if arguments.format == "json":
        print(json.dumps({"schema": 1, "levels": level_records()}, indent=2))
    else:
        print(level_table())
    return ACCEPTED


def run(arguments: argparse.Namespace) -> int:
    """Split a file or a store, or carry out a DxDispatch model."""
    if arguments.input.suffix == ".json":
        return _run_model(arguments)
    from dmlsplit.device import Device
    from dmlsplit.errors import InvalidArgumentError
    from dmlsplit.storage.resumable import split_path

    cut = arguments.count if arguments.split is None else arguments.split
    if arguments.axis is None or cut is None:
        raise InvalidArgumentError(
            f"{arguments.input} needs --axis, and --split 2,1,3 or --count N"
        )
    # Workers of a cluster have devices that this machine may lack.
    device = arguments.device if arguments.scheduler else Device(arguments.device).name
    with progress_bar(arguments.input.name) as progress:
        done = split_path(
            arguments.input,
            cut,
            arguments.axis,
            arguments.output or Path(),
            kind=arguments.format,
            device=device,
            scheduler=arguments.scheduler,
            block_bytes=arguments.block_bytes,
            progress=progress,
        )
    print(
        f"{done.source}: {done.dtype} {done.shape} -> {len(done.paths)} pieces "
        f"along axis {done.axis}, on {device}"
    )
    for path, shape in zip(done.paths, done.shapes, strict=True):
        print(f"  {path}  {done.dtype} {shape}")
    for note in done.notes:
        print(f"dmlsplit: note: {note}", file=sys.stderr)
    return ACCEPTED


def _run_model(arguments: argparse.Namespace) -> int:
    """Carry out a DxDispatch model; it prints what Windows' dxdispatch.exe prints."""
    from dmlsplit.device import Device
    from dmlsplit.errors import InvalidArgumentError
    from dmlsplit.frontends.dxdispatch import run as run_model

    names = ("axis", "split", "count", "output", "format", "scheduler", "block_bytes")
    given = [name for name in names if getattr(arguments, name) is not None]
    if given:
        raise InvalidArgumentError(
            f"--{given[0].replace('_', '-')} is not for a DxDispatch model, which says itself "
            "what to split and where to write"
        )
    run_model(arguments.input, Device(arguments.device), output=_show)
    return ACCEPTED


@contextmanager
def progress_bar(name: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function of (bytes done, bytes in all) that draws a bar on a terminal."""
    from tqdm import tqdm

    with tqdm(
        desc=name, unit="B", unit_scale=True, disable=None, delay=0.5, leave=False, file=sys.stderr
    ) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield progress
