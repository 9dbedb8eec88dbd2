"""``dmlsplit completion``: the script that completes commands and options in a shell."""

import argparse

from dmlsplit.cli.inputs import Commands, add_command
from dmlsplit.cli.terminal import ACCEPTED, UNUSABLE, show
from dmlsplit.errors import UnsupportedError

_DESCRIPTION = """\
Print the script that makes a shell complete dmlsplit's commands and options.
It is made by the package shtab: pip install shtab"""

_EXAMPLES = """\
  dmlsplit completion bash > ~/.local/share/bash-completion/completions/dmlsplit
  dmlsplit completion zsh > ~/.zfunc/_dmlsplit
  dmlsplit completion fish > ~/.config/fish/completions/dmlsplit.fish"""


def add_to(commands: Commands) -> None:
    """Add the command."""
    summary = "print a completion script for a shell"
    statuses = {ACCEPTED: "printed", UNUSABLE: "wrong usage, or shtab is not installed"}
    parser = add_command(commands, completion, summary, _DESCRIPTION, _EXAMPLES, statuses)
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def completion(arguments: argparse.Namespace) -> int:
    """Print a completion script."""
    try:
        import shtab
    except ModuleNotFoundError:
        raise UnsupportedError(
            "completion scripts need the package shtab; pip install shtab"
        ) from None
    show(shtab.complete(arguments.parser, arguments.shell))
    return ACCEPTED
