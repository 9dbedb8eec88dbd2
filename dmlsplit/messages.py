"""Text for people: safe to print, and in lines that fit."""

from __future__ import annotations

import textwrap

# Columns of a terminal that nobody has widened.
WIDTH = 80


def printable(text: str) -> str:
    """Return text with everything a terminal or XML could trip over written as an escape."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def wrapped(text: str, indent: str) -> str:
    """Return text in lines of at most `WIDTH` columns, the second and later ones indented."""
    lines = textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines)
