"""Pages that are written in Markdown, as text for a terminal."""

import re
from collections.abc import Iterator

from dmlsplit.messages import wrapped

_FENCE = "```"
_CODE_INDENT = "    "
# Code, strong words, and links.
_INLINE = re.compile(r"`([^`]+)`|\*\*(.+?)\*\*|\[([^\]]+)\]\((\S+?)\)")


def page_text(page: str, *, is_bold: bool = False) -> str:
    """The page without Markdown's marks: programs are indented, and prose is wrapped.

    Headings and strong words are bold if `is_bold` is set.
    """
    return "\n".join(_lines(page, "\x1b[1m{}\x1b[0m" if is_bold else "{}"))


def _lines(page: str, bold: str) -> Iterator[str]:
    """The lines of a page; `bold` is the format of bold text."""
    is_code = False
    for line in page.splitlines():
        if line.startswith(_FENCE):
            is_code = not is_code
        elif is_code:
            yield f"{_CODE_INDENT}{line}".rstrip()
        elif line.startswith("#"):
            yield bold.format(line.lstrip("# "))
        else:
            text = wrapped(_plain(line), "", hanging="  " if line.startswith("- ") else "")
            # Strong words become bold after the text is wrapped: their marks have no width.
            for strong in re.findall(r"\*\*(.+?)\*\*", line):
                text = text.replace(strong, bold.format(strong), 1)
            yield text


def _plain(line: str) -> str:
    """A line without the marks of code, strong words and links."""

    def text_of(match: re.Match[str]) -> str:
        code, strong, name, url = match.groups()
        # Quotes show where a command ends. A line that is only code needs none.
        if code and " " in code and match[0] != line:
            return f"'{code}'"
        return code or strong or f"{name} ({url})"

    return _INLINE.sub(text_of, line)
