"""What the commands have in common: their parsers, lists of integers, and the splits to judge."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from dmlsplit.cli.terminal import progress_bar, tell
from dmlsplit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from dmlsplit.lint.discovery import Scan

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

_FLAGS = ("data_type", "sizes", "axis", "split")


def add_command(
    commands: Commands,
    command: Callable[[argparse.Namespace], int],
    summary: str,
    description: str,
    epilog: str = "",
) -> argparse.ArgumentParser:
    """Add a command, named like its function; its help keeps the line breaks."""
    parser = commands.add_parser(
        command.__name__,
        help=summary,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=command)
    return parser


def integers(text: str) -> tuple[int, ...]:
    """Read ``2,1,3``; argparse reports anything else."""
    try:
        return tuple(map(int, text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"is {text!r}; it must be integers joined by commas, such as 2,1,3"
        ) from None


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


def scanned(arguments: argparse.Namespace, endings: Sequence[str]) -> Scan:
    """Return the splits of the paths, or of the flags, and report what could not be read."""
    from dmlsplit.lint.discovery import Scan, flag_site, scan_paths

    flags = [getattr(arguments, name) for name in _FLAGS]
    given = any(flag is not None for flag in flags)
    if given == bool(arguments.paths) or (given and None in flags):
        raise InvalidArgumentError(
            "give either PATHs, or all of --data-type, --sizes, --axis and --split"
        )
    if given and ".json" not in endings:
        raise InvalidArgumentError(
            "--via ort applies to ONNX models only; drop it to check a descriptor given by flags"
        )
    if given:
        return Scan((flag_site(*flags),), ())
    with progress_bar("scan") as progress:
        scan = scan_paths(arguments.paths, endings, progress)
    for file, message in scan.unreadable:
        tell(f"error: {file}: {message}")
    return scan
