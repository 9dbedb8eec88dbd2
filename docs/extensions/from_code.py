"""Directives that the library itself fills with content at build time."""

from __future__ import annotations

import os
import re
from html import escape
from pathlib import Path
from typing import Any, ClassVar

from bars import BARS
from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from tables import TABLES

from dmlsplit import SplitOperatorDesc, TensorDesc
from dmlsplit.cli import build_parser
from dmlsplit.explain.picture import svg_picture


class FromCode(SphinxDirective):
    """A table or paragraph, chosen by its name in `TABLES`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Parse its Markdown in place."""
        found = nodes.container(classes=["from-code"])
        lines = TABLES[self.arguments[0]]().splitlines()
        self.state.nested_parse(StringList(lines, "tables.py"), 0, found)
        return [found]


class Bars(SphinxDirective):
    """A bar chart, chosen by its name in `BARS`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Draw it as a table in HTML, which every reader understands."""
        return [nodes.raw("", BARS[self.arguments[0]](), format="html")]


class CommandHelp(SphinxDirective):
    """What ``dmlsplit COMMAND --help`` prints on a terminal of 80 columns."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Show it unchanged, so that its columns stay."""
        os.environ["COLUMNS"] = "80"
        (commands,) = (
            one.choices for one in build_parser()._actions if isinstance(one.choices, dict)
        )
        text = commands[self.arguments[0]].format_help()
        return [nodes.literal_block(text, text, language="none", classes=["help"])]


class SplitPicture(SphinxDirective):
    """The picture that `dmlsplit explain --svg` draws of a descriptor."""

    option_spec: ClassVar[dict[str, Any]] = dict.fromkeys(
        ("data-type", "sizes", "axis", "split", "alt"), directives.unchanged_required
    )

    def run(self) -> list[nodes.Node]:
        """Draw it into the page; hovering over a run shows which bytes it is."""
        sizes, split = (list(map(int, self.options[key].split(","))) for key in ("sizes", "split"))
        tensor = TensorDesc(self.options["data-type"], sizes)
        desc = SplitOperatorDesc.from_sizes(tensor, axis=int(self.options["axis"]), sizes=split)
        svg = svg_picture(desc)
        alt = escape(self.options["alt"], quote=True)
        frame = f'<div class="picture" role="img" tabindex="0" aria-label="{alt}">{svg}</div>'
        return [nodes.raw("", frame, format="html")]


def _site_links(app: Sphinx, page: str, source: list[str]) -> None:
    """If the manual links to a file that a page includes, link to that page instead."""
    source[0] = source[0].replace("../../benchmarks/README.md", "../benchmarks.md")


def _page_links(app: Sphinx, path: Path, page: str, included: list[str]) -> None:
    """Where a page includes a part of README, link to pages instead of to the published site."""
    site = re.escape(app.config.html_baseurl)
    included[0] = re.sub(rf"\({site}([\w-]+)\.html", r"(\1.md", included[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("bars", Bars)
    app.add_directive("command-help", CommandHelp)
    app.add_directive("from-code", FromCode)
    app.add_directive("split-picture", SplitPicture)
    app.connect("source-read", _site_links)
    app.connect("include-read", _page_links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
