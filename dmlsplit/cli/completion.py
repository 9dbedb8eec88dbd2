"""``dmlsplit completion``: the script that completes commands and options in a shell."""

import argparse
from collections.abc import Iterator

from dmlsplit.cli.inputs import Commands, add_command
from dmlsplit.cli.terminal import ACCEPTED, UNUSABLE, show
from dmlsplit.errors import UnsupportedError

_DESCRIPTION = """\
Print a script that lets a shell complete dmlsplit's commands, options and file
names. The package shtab makes the script: pip install shtab"""

_EXAMPLES = """\
  dmlsplit completion bash > ~/.local/share/bash-completion/completions/dmlsplit
  dmlsplit completion zsh > ~/.zfunc/_dmlsplit
  dmlsplit completion fish > ~/.config/fish/completions/dmlsplit.fish"""

# The names of arguments that are files; a folder is a DIR.
_FILES = ("PATH", "FILE", "FILE.npz", "OUT.onnx", "INPUT", "EXE", "OBSERVED.json")


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
            "completion scripts need the package shtab. Fix: pip install shtab"
        ) from None
    kinds = dict.fromkeys(_FILES, shtab.FILE) | {"DIR": shtab.DIRECTORY}
    for parser in parsers(arguments.parser):
        for action in parser._actions:
            if action.metavar in kinds:
                action.complete = kinds[action.metavar]  # type: ignore[attr-defined]
    script = shtab.complete(arguments.parser, arguments.shell)
    if arguments.shell == "zsh":
        # shtab 1.13 completes only the first of several PATHs; this pattern matches later ones too.
        script = script.replace('"(*)::', '"*:')
    show(script)
    return ACCEPTED


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and those of its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from parsers(command)
