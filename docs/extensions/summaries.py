"""What search engines and language models read: a description of each page, and llms.txt.

The description is the beginning of the page's first paragraph, and of a rule its sentence. llms.txt
(https://llmstxt.org) lists all pages with their descriptions, in the order of the site.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmlsplit.lint.rules import RULES

if TYPE_CHECKING:
    from docutils.nodes import document
    from sphinx.application import Sphinx

LONGEST = 200  # characters of a description; search engines show fewer


def shortened(text: str) -> str:
    """As many whole sentences as fit a description, or as many words of the first one."""
    words = " ".join(text.split())
    if len(words) <= LONGEST:
        return words.removesuffix(":")
    sentences, dot, _ = words[: LONGEST + 1].rpartition(". ")
    return sentences + "." if dot else words[: LONGEST - 3].rpartition(" ")[0] + "..."


def summary(page: document) -> str:
    """The first paragraph of a page outside of tables and lists.

    A sentence that only announces what follows is skipped.
    """
    from docutils import nodes

    around = (nodes.section, nodes.document, nodes.container)
    paragraphs = (one for one in page.findall(nodes.paragraph) if isinstance(one.parent, around))
    texts = (one.astext() for one in paragraphs)
    return shortened(next((text for text in texts if "." in text or text[-1:] != ":"), ""))


def description(name: str, page: document) -> str:
    """The description of a page by its name, such as ``rules/DML-SPLIT-AXIS-SUM``."""
    rule = RULES.get(name.removeprefix("rules/"))
    return shortened(rule.sentence) if rule else summary(page)


def _describe(app: Sphinx, page: str, _: str, context: dict[str, Any], tree: document) -> None:
    if tree and (text := description(page, tree)):
        context["metatags"] += f'<meta name="description" content="{escape(text)}">'


def _write_list(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.name == "html":
        path = Path(app.outdir, "llms.txt")
        path.write_text("\n".join(_lines(app)) + "\n", encoding="utf-8", newline="\n")


def _lines(app: Sphinx) -> Iterator[str]:
    root = app.config.root_doc
    yield from (f"# {app.config.project}", "", f"> {summary(app.env.get_doctree(root))}")
    for part in app.env.toctree_includes[root]:
        yield from ("", f"## {app.env.titles[part].astext()}", "")
        for page in _pages(app, part):
            title = app.env.titles[page].astext()
            text = description(page, app.env.get_doctree(page))
            yield f"- [{title}]({app.config.html_baseurl}{page}.html)" + (text and f": {text}")


def _pages(app: Sphinx, page: str) -> Iterator[str]:
    yield page
    for below in app.env.toctree_includes.get(page, ()):
        yield from _pages(app, below)


def setup(app: Sphinx) -> dict[str, bool]:
    """Describe each page when it is written, and list all of them at the end."""
    app.connect("html-page-context", _describe)
    app.connect("build-finished", _write_list)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
