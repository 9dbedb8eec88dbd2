"""The command line. Nothing else prints.

Exit status: 0 all is accepted, 1 something is refused, 2 usage or a file that cannot be
read. Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from dmlsplit.cli import completion, devices, explain, levels, run, validate
from dmlsplit.cli.terminal import ACCEPTED, INTERRUPTED, UNUSABLE, complain, forget_stdout
from dmlsplit.errors import DmlError, one_line


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    arguments = build_parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = arguments.command
    try:
        status = command(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        forget_stdout()
        return ACCEPTED
    except KeyboardInterrupt:
        return INTERRUPTED
    except (DmlError, OSError) as error:
        complain(one_line(error))
        return UNUSABLE
    return status


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of every command."""
    parser = argparse.ArgumentParser(
        prog="dmlsplit",
        description="DirectML's Split operator: run it, and learn which level accepts it.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in (validate, explain, levels, run, devices, completion):
        command.add_to(commands)
    parser.set_defaults(parser=parser)  # for completion
    return parser


def _version() -> str:
    from dmlsplit import __version__

    return __version__
