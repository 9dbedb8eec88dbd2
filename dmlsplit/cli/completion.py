"""``dmlsplit completion``: the script that completes commands and options in a shell."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dmlsplit.cli.inputs import command_parser
from dmlsplit.cli.terminal import ACCEPTED, show

if TYPE_CHECKING:
    from dmlsplit.cli.inputs import Commands

SHELLS = ("bash", "zsh", "fish")


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = command_parser(
        commands,
        "completion",
        "print a completion script for a shell",
        "Print the script that makes a shell complete dmlsplit's commands and options.\n"
        "It is made by the package shtab: pip install shtab",
        "examples:\n"
        "  dmlsplit completion bash > ~/.local/share/bash-completion/completions/dmlsplit\n"
        "  dmlsplit completion zsh > ~/.zfunc/_dmlsplit\n"
        "  dmlsplit completion fish > ~/.config/fish/completions/dmlsplit.fish",
    )
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(command=completion)


def completion(arguments: argparse.Namespace) -> int:
    """Print a completion script."""
    from dmlsplit.errors import UnsupportedError

    try:
        import shtab
    except ModuleNotFoundError:
        raise UnsupportedError(
            "completion scripts need the package shtab; pip install shtab"
        ) from None
    show(shtab.complete(arguments.parser, arguments.shell))
    return ACCEPTED
