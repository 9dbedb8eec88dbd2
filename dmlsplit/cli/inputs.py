"""What the commands have in common: their parsers, integer lists, and what to judge."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dmlsplit.cli.terminal import complain, progress_bar

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

    from dmlsplit.frontends import SplitSite


def integers(text: str) -> tuple[int, ...]:
    """Read ``2,1,3``; argparse reports anything else."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"is {text!r}; it must be integers joined by commas, such as 2,1,3"
        ) from None


def command_parser(
    commands: Commands, name: str, summary: str, description: str, epilog: str
) -> argparse.ArgumentParser:
    """Add a command whose help keeps its line breaks."""
    return commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name files, and the flags that describe a split without one."""
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="model.onnx, OpenVINO model.xml, DxDispatch or descriptor .json; a folder, which is "
        "searched for models; or a quoted pattern such as 'models/**/*.onnx'",
    )
    flags = parser.add_argument_group("a descriptor by flags, in place of a PATH")
    flags.add_argument("--data-type", metavar="TYPE", help="such as FLOAT32")
    flags.add_argument("--sizes", type=integers, metavar="1,1,6,2", help="sizes of the input")
    flags.add_argument("--axis", type=int, metavar="A", help="from 0; DirectML's is unsigned")
    flags.add_argument("--split", type=integers, metavar="2,1,3", help="size of each piece")


def scanned(
    arguments: argparse.Namespace, endings: Sequence[str]
) -> tuple[tuple[SplitSite, ...], tuple[tuple[str, str], ...]]:
    """Return the splits of the paths, or the one of the flags; report what could not be read."""
    from dmlsplit.errors import InvalidArgumentError
    from dmlsplit.lint.discovery import flag_site, scan_paths

    flags = ("data_type", "sizes", "axis", "split")
    given = [name for name in flags if getattr(arguments, name) is not None]
    if bool(given) == bool(arguments.paths) or 0 < len(given) < len(flags):
        raise InvalidArgumentError(
            "give either PATHs, or all of --data-type, --sizes, --axis and --split"
        )
    if given and ".json" not in endings:
        raise InvalidArgumentError(
            "--via ort applies to ONNX models only; drop it to check a descriptor given by flags"
        )
    if given:
        return (flag_site(*(getattr(arguments, name) for name in flags)),), ()
    with progress_bar("scan") as progress:
        scan = scan_paths(arguments.paths, endings, progress)
    for file, message in scan.unreadable:
        complain(f"{file}: {message}")
    return scan.sites, scan.unreadable
