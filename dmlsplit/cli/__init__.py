"""The command line, the only part that prints. Commands import late, so that help is fast.

inputs.py has the options that several commands share, and terminal.py colours, the width of lines,
progress bars, signals and exit statuses.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from signal import SIGINT

from dmlsplit.cli.terminal import (
    EXIT_OK,
    EXIT_REFUSED,
    EXIT_UNUSABLE,
    INTERRUPTED,
    Parser,
    columns,
    interruptible,
    open_standard_streams,
    print_message,
    redirect_to_devnull,
)
from dmlsplit.errors import DmlError, one_line
from dmlsplit.messages import did_you_mean, wrapped_at

_STATUSES = {
    EXIT_OK: "done",
    EXIT_REFUSED: "a check failed: a split is refused, or a byte is wrong",
}

_EXAMPLES = """\
  dmlsplit validate model.onnx --windows 19041
  dmlsplit run IN.npy --axis 1 --split 1,2 -o OUT
  dmlsplit COMMAND --help"""


def main(
    argv: Sequence[str] | None = None, on_import_signal: Callable[[int], None] | None = None
) -> int:
    """Run a command and return its status. A signal during an import calls `on_import_signal`."""
    open_standard_streams()
    try:
        with interruptible(on_import_signal):
            line = list(sys.argv[1:] if argv is None else argv)
            if line[:1] == ["help"]:
                line = [*line[1:], "--help"]
            arguments, others = build_parser().parse_known_args(line)
            if others:
                own = arguments.command_parser
                option, _, _ = others[0].partition("=")
                near = did_you_mean(option, own._option_string_actions)
                own.error(f"{own.prog} does not accept {' '.join(others)}{near}")
            command: Callable[[argparse.Namespace], int] = arguments.command
            with wrapped_at(columns()):
                return command(arguments)
    except KeyboardInterrupt as stop:
        print_message(": ".join(("interrupted", *getattr(stop, "__notes__", ()))))
        return INTERRUPTED + (stop.args[0] if stop.args else SIGINT)
    except BrokenPipeError:
        redirect_to_devnull(sys.stdout)
        return EXIT_OK
    except (DmlError, OSError) as error:
        if isinstance(error, FileNotFoundError) and error.filename is None:
            error.filename = "the current folder"  # deleted; os.getcwd names no file
        print_message(f"error: {one_line(error)}")
        return EXIT_UNUSABLE


def build_parser() -> argparse.ArgumentParser:
    """The parser of every command."""
    from dmlsplit import __version__
    from dmlsplit.cli import devices, explain, levels, run, selftest, validate
    from dmlsplit.cli.inputs import epilog

    parser = Parser(
        prog="dmlsplit",
        description="Find, explain and fix Splits that DirectML refuses (80070057), or run a "
        f"split.\n\nexamples:\n{_EXAMPLES}",
        epilog=epilog(_STATUSES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND")
    for command in (validate, explain, levels, run, devices, selftest):
        command.add_to(commands)
    parser.set_defaults(command=_help, parser=parser, command_parser=parser)
    return parser


def _help(arguments: argparse.Namespace) -> int:
    """Without a command, print the help to standard error and fail, as ruff does.

    pip succeeds, and a script does not notice that its command is missing.
    """
    arguments.parser.print_help(sys.stderr)
    return EXIT_UNUSABLE
