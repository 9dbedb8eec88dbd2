"""Directives that the library itself fills with content at build time."""

from __future__ import annotations

import os
from html import escape
from typing import Any, ClassVar

from chart import CHARTS
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


class Chart(SphinxDirective):
    """A chart, chosen by its name in `CHARTS`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Draw it into the page, whose colours it then has."""
        return [nodes.raw("", CHARTS[self.arguments[0]](), format="html")]


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


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("chart", Chart)
    app.add_directive("command-help", CommandHelp)
    app.add_directive("from-code", FromCode)
    app.add_directive("split-picture", SplitPicture)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
