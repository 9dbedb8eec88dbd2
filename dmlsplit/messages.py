"""Text for people: safe to print, and in lines that fit."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import lru_cache

# Columns of a terminal at its usual size.
WIDTH = 80
# Entries of a list that a message spells out.
MOST_SHOWN = 16


def printable(text: str) -> str:
    """Text with everything a terminal or XML could trip over written as an escape."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def shown(values: Sequence[object]) -> str:
    """Return a list for a message, cut where it is long: ``[1, 2, ...] (40 values)``."""
    text = ", ".join(map(str, values[:MOST_SHOWN]))
    count = len(values)
    return f"[{text}]" if count <= MOST_SHOWN else f"[{text}, ...] ({count} values)"


def counted(number: int, noun: str) -> str:
    """Return a number of things: ``1 split``, ``2 splits``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


@lru_cache(maxsize=1024)  # the splits of a model repeat most of their lines
def wrapped(text: str, indent: str) -> str:
    """Text in lines of at most `WIDTH` columns, the second and later ones indented."""
    lines = textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines)
