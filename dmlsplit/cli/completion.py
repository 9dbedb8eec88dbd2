"""``dmlsplit completion``: the script with which a shell completes our commands.

It completes commands, options, file names, levels, versions, builds and rule ids.
"""

import argparse
from collections.abc import Iterator
from typing import Any

from dmlsplit.cli.inputs import PATH_OR_RULE, Commands, add_command
from dmlsplit.cli.terminal import EXIT_OK, EXIT_UNUSABLE, print_result
from dmlsplit.directml.levels import support_table
from dmlsplit.errors import UnsupportedError

_DESCRIPTION = """\
Print a script that completes commands, options, file names, levels, versions,
builds and rule ids. It needs the extra completion, which is the package shtab:
pip install shtab"""

_EXAMPLES = """\
  dmlsplit completion bash > ~/.local/share/bash-completion/completions/dmlsplit
  dmlsplit completion zsh > ~/.zfunc/_dmlsplit
  dmlsplit completion fish > ~/.config/fish/completions/dmlsplit.fish"""

# The names of arguments that are files; a folder is a DIR.
_FILES = ("PATH", "FILE", "OUT.onnx", "INPUT")


def add_to(commands: Commands) -> None:
    """Add the command."""
    summary = "print a completion script for a shell"
    statuses = {EXIT_OK: "printed", EXIT_UNUSABLE: "wrong usage, or shtab is not installed"}
    parser = add_command(commands, completion, summary, _DESCRIPTION, _EXAMPLES, statuses)
    parser.add_argument(
        "shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish"
    )


def completion(arguments: argparse.Namespace) -> int:
    """Print a completion script."""
    try:
        import shtab
    except ModuleNotFoundError:
        raise UnsupportedError(
            "completion scripts need the package shtab. Fix: pip install shtab"
        ) from None
    kinds = dict.fromkeys(_FILES, shtab.FILE) | {"DIR": shtab.DIRECTORY}
    kinds |= {PATH_OR_RULE: rules_and_files()}
    words = target_values()
    for parser in parsers(arguments.parser):
        for action in parser._actions:
            action.choices = words.get(action.dest, action.choices)
            if action.metavar in kinds:
                action.complete = kinds[action.metavar]  # type: ignore[attr-defined]
    script = shtab.complete(arguments.parser, arguments.shell)
    if arguments.shell == "zsh":
        # shtab 1.13 completes only the first of several PATHs; this pattern matches later ones too.
        script = script.replace('"(*)::', '"*:')
    print_result(script)
    return EXIT_OK


def target_values() -> dict[str, list[str]]:
    """The values of the options that name a target."""
    rows = support_table().values()
    builds = dict.fromkeys(str(row.windows.build) for row in rows if row.windows)
    versions = dict.fromkeys(row.directml for row in rows)
    levels = [str(row.level) for row in rows]
    return {"feature_level": levels, "directml": list(versions), "windows": list(builds)}


def rules_and_files() -> dict[str, Any]:
    """What `explain` takes, in the form of shtab: for each shell, a completion and its function."""
    from dmlsplit.lint.rules import RULES

    ids = " ".join(RULES)
    name = "_dmlsplit_rules_and_files"
    bash = f'{name}() {{\n  compgen -W "{ids}" -- "$1"\n  _shtab_compgen_files "$1"\n}}'
    zsh = f"{name}() {{\n  compadd {ids}\n  _files\n}}"
    fish = f"(string split ' ' '{ids}'; __fish_complete_path (commandline -ct))"
    return {"bash": name, "zsh": name, "fish": fish, "preamble": {"bash": bash, "zsh": zsh}}


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and those of its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from parsers(command)
