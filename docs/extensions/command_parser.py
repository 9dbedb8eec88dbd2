"""The parsers of the command line with reStructuredText, as sphinx-argparse needs them.

As an extension, it makes the search show commands by their names, not by their descriptions.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from sphinx.application import Sphinx
from sphinxarg.ext import ArgParseDomain

from dmlsplit.cli import build_parser


def command_parser() -> argparse.ArgumentParser:
    """The parser of all commands; lists and examples in its help texts become literal blocks."""
    top = build_parser()
    for parser in (top, *_commands(top)):
        parser.description = _text(parser.description or "")
        parser.epilog = _text(parser.epilog or "")
        for action in parser._actions:
            action.help = _escaped(action.help or "")
            if "default" in action.help or action.default in (False, []):
                action.default = None  # the help has it already, or it is obvious
    return top


def _commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield command
                yield from _commands(command)


def _text(text: str) -> str:
    """The text with each paragraph of indented lines as a heading and a literal block."""
    return "\n\n".join(map(_paragraph, re.split(r"\n{2,}", text.strip("\n"))))


def _paragraph(text: str) -> str:
    head, _, body = text.partition("\n")
    if not body.startswith("  "):
        return _escaped(text)
    return f"{_escaped(head.rstrip(':'))}::\n\n{body}"


def _escaped(text: str) -> str:
    plain = re.sub(r"([*`|_])", r"\\\1", text)
    return re.sub(r"(?<![\w-])--[a-z][a-z-]+", r"``\g<0>``", plain)


class CommandDomain(ArgParseDomain):
    """The commands of the page."""

    def get_objects(self) -> Iterator[tuple[str, str, str, str, str, int]]:
        """Each under its name."""
        for name, _, *rest in super().get_objects():
            yield (name, name, *rest)


def setup(app: Sphinx) -> dict[str, bool]:
    """Replace sphinx-argparse's own domain."""
    app.add_domain(CommandDomain, override=True)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
