"""Text for people: safe to print, and in lines that fit the terminal."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Self

# The columns of a terminal of the usual size, and of text that is not for a terminal.
WIDTH = 80
_width = ContextVar("_width", default=WIDTH)
# The number of entries of a list that a message spells out.
MAX_SHOWN = 16
_ELLIPSIS = "..."
# The columns that an error gives to a wrong value.
_MAX_VALUE = 60
_UNBROKEN = "\0"  # a space at which text is not wrapped
# Python prints at least 640 digits, whatever its limit is set to.
_MAX_BITS = 2048
# Commands of pip, those with a quoted argument, and options that name a model. Text is not wrapped
# inside them, so that they can be pasted into a shell.
_QUOTED = re.compile(
    r"""dmlsplit validate .* --write-fixed (?:"[^"\n]*"|\S+)"""
    r"""|(?:(?<!\S)\S+ -+\w+ )?"[^"\n]*"|--[\w-]+ \S+\.onnx"""
    r"""|pip install '\S+'|pip uninstall -y [^&]+ &&"""
)


def printable(text: str) -> str:
    """Text with every unprintable character escaped, safe for terminals and XML."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


class Fix(str):
    """How to mend something, as a text that knows which of its parts are commands.

    Attributes
    ----------
    commands : tuple of str
        Commands about one node or one file: they differ from place to place.
    """

    commands: tuple[str, ...]

    def __new__(cls, text: str = "", commands: Iterable[str] = ()) -> Self:
        """A text, and the commands in it."""
        fix = super().__new__(cls, text)
        fix.commands = tuple(commands)
        return fix

    @classmethod
    def joined(cls, separator: str, fixes: Iterable[str]) -> Self:
        """Several fixes in one."""
        parts = list(fixes)
        return cls(separator.join(parts), [command for part in parts for command in commands(part)])


class Note(str):
    """A text that says what is wrong, and then how to mend it; reports can show the two apart.

    Attributes
    ----------
    fault : str
        What is wrong.
    fix : Fix
        How to mend it; empty if that is not known.
    """

    fault: str
    fix: Fix

    def __new__(cls, fault: str, fix: str = "", joint: str = ". Fix: ") -> Self:
        """A fault and its fix, with a joint between them."""
        note = super().__new__(cls, f"{fault}{joint}{fix}" if fix else fault)
        note.fault = fault
        note.fix = fix if isinstance(fix, Fix) else Fix(fix)
        return note


def commands(text: str) -> tuple[str, ...]:
    """The commands in a text, if it is one that knows them."""
    fix = text.fix if isinstance(text, Note) else text
    return fix.commands if isinstance(fix, Fix) else ()


def without_commands(text: str) -> str:
    """A text without its commands: what it says at every place."""
    for command in commands(text):
        text = text.replace(command, "")
    return text


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """The end of an error about a word: ``. Did you mean text?``, or nothing if none is similar."""
    from difflib import get_close_matches

    listed = list(words)
    longer = [known for known in listed if word and known.startswith(word)]
    near = longer or get_close_matches(word, listed, n=1, cutoff=0.75)
    return f". Did you mean {near[0]}?" if near else ""


def shown(values: Sequence[object]) -> str:
    """A list for a message, shortened if it is long: ``[1, 2, ...] (40 values)``."""
    text = ", ".join(map(str, values[:MAX_SHOWN]))
    count = len(values)
    return f"[{text}]" if count <= MAX_SHOWN else f"[{text}, ...] ({count} values)"


def digits(number: int) -> str:
    """A number in digits; one that Python may not print, as a power of two that is near."""
    bits = number.bit_length()
    return str(number) if bits <= _MAX_BITS else f"about {'-' if number < 0 else ''}2^{bits}"


def counted(number: int, noun: str) -> str:
    """A number and a noun: ``1 split``, ``2 splits``, ``2 launches``."""
    plural = "es" if noun.endswith("ch") else "s"
    return f"{number} {noun}{'' if number == 1 else plural}"


def omitted_lines(count: int, limit: int, noun: str = "") -> list[str]:
    """A list with the line ``... and 2 more``, for what follows the first `limit` of `count`.

    It is empty if nothing follows.
    """
    left = count - limit
    if left <= 0:
        return []
    return [f"... and {counted(left, f'more {noun}') if noun else f'{left} more'}"]


def unbroken(text: str) -> str:
    """Text that `wrapped` keeps on one line."""
    return text.replace(" ", _UNBROKEN)


def cut_middle(text: str, room: int) -> str:
    """Text that is cut in the middle to fit the columns: names differ at their ends."""
    if len(text) <= room:
        return text
    kept = max(2, room - len(_ELLIPSIS))
    end = (kept + 1) // 2
    return text[: kept - end] + _ELLIPSIS + text[-end:]


def value_text(value: object) -> str:
    """A value as Python writes it, cut in the middle if it is long."""
    return cut_middle(repr(value), _MAX_VALUE)


@contextmanager
def wrapped_at(columns: int) -> Iterator[None]:
    """Wrap the text of the block at `columns` instead of `WIDTH`."""
    token = _width.set(columns)
    try:
        yield
    finally:
        _width.reset(token)


def width() -> int:
    """The columns at which text is wrapped."""
    return _width.get()


def wrapped(text: str, indent: str, hanging: str = "    ") -> str:
    """Text in indented lines of at most `width()` columns; later ones also begin with `hanging`."""
    return _wrapped(text, indent, hanging, width())


@lru_cache(maxsize=1024)  # because the splits of a model have most lines in common
def _wrapped(text: str, indent: str, hanging: str, columns: int) -> str:
    """`wrapped` at a number of columns; commands, and words with hyphens, stay whole."""
    lines = textwrap.wrap(
        _QUOTED.sub(lambda quoted: unbroken(quoted[0]), text),
        columns,
        initial_indent=indent,
        subsequent_indent=indent + hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace(_UNBROKEN, " ")
