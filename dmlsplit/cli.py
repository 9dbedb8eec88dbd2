"""The command line. Nothing else prints.

Exit status: 0 all is accepted, 1 something is refused, 2 usage or a file that cannot be
read. Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        # The reader has gone; Python must not complain about it once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ACCEPTED
    except KeyboardInterrupt:
        return INTERRUPTED
    except (DmlError, OSError) as error:
        print(f"dmlsplit: error: {one_line(error)}", file=sys.stderr)
        return UNUSABLE
    return status


def one_line(error: Exception) -> str:
    """Return the message of an error, in one line."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of every command."""
    parser = argparse.ArgumentParser(
        prog="dmlsplit",
        description="DirectML's Split operator: run it, and learn which level accepts it.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_levels(commands)
    _add_run(commands)
    return parser


def _version() -> str:
    from dmlsplit import __version__

    return __version__


def integers(text: str) -> tuple[int, ...]:
    """Read ``2,1,3``; argparse reports anything else."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"is {text!r}; it must be integers joined by commas, such as 2,1,3"
        ) from None


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


def _add_run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "run",
        help="split a .npy file or a zarr array into files of the same kind",
        description="Split INPUT along an axis into NAME_0.npy, NAME_1.npy, ... or NAME_0.zarr, "
        "... INPUT may be larger than memory. The pieces appear when all are complete. A run that "
        "writes zarr can be interrupted: the same command goes on where it stopped.",
    )
    parser.add_argument("input", type=Path, metavar="INPUT", help=".npy file or zarr array")
    parser.add_argument("--axis", type=int, required=True, help="negative counts from the end")
    cut = parser.add_mutually_exclusive_group(required=True)
    cut.add_argument("--split", type=integers, metavar="2,1,3", help="size of each piece")
    cut.add_argument("--count", type=int, metavar="N", help="number of equal pieces")
    parser.add_argument("--device", default="cpu", help="cpu (default), cuda or cuda:N")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path(), metavar="DIR", help="default: here"
    )
    parser.add_argument(
        "--format", choices=("npy", "zarr"), help="of the pieces; default: that of INPUT"
    )
    parser.add_argument(
        "--scheduler", metavar="ADDRESS", help="run on a Dask cluster, such as tcp://host:8786"
    )
    parser.add_argument(
        "--block-bytes", type=int, metavar="N", help="of INPUT per task; zarr only, default 8388608"
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Split a file or a store."""
    from dmlsplit.device import Device
    from dmlsplit.resumable import split_path

    # Workers of a cluster have devices that this machine may lack.
    device = arguments.device if arguments.scheduler else Device(arguments.device).name
    cut = arguments.count if arguments.split is None else arguments.split
    with progress_bar(arguments.input.name) as progress:
        done = split_path(
            arguments.input,
            cut,
            arguments.axis,
            arguments.output,
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
