"""Links to files that are not pages of the site lead to the repository.

In the sources, every link is relative, so that it also works on GitHub and in an editor.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
_TARGET = re.compile(r"(?<=\]\()(?!https?:|#)([^)#\s]+)")
_PICTURES = (".svg", ".png")


def linked(text: str, folder: Path, repository: str, is_page: frozenset[Path]) -> str:
    """The Markdown of a file in `folder`, whose links to files off the site are absolute."""

    def target(link: re.Match[str]) -> str:
        path = (folder / link[1]).resolve()
        if path in is_page or path.suffix in _PICTURES or not path.exists():
            return link[1]
        form = "tree" if path.is_dir() else "blob"
        return f"{repository}/{form}/main/{path.relative_to(ROOT).as_posix()}"

    return _TARGET.sub(target, text)


def _linked(app: Sphinx, text: str, file: Path) -> str:
    pages = frozenset(Path(app.env.doc2path(name)).resolve() for name in app.env.found_docs)
    return linked(text, file.parent, app.config.repository, pages)


def _of_page(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = _linked(app, source[0], Path(app.env.doc2path(page)))


def _of_included(app: Sphinx, path: Path, page: str, included: list[str]) -> None:
    """Where a page includes a part of README, its links to the published site stay in the site."""
    site = re.escape(app.config.html_baseurl)
    text = _linked(app, included[0], app.srcdir / path)
    included[0] = re.sub(rf"\({site}([\w-]+)\.html", r"(\1.md", text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Rewrite what is read, of pages and of the files that they include."""
    app.add_config_value("repository", "", "env", str)
    app.connect("source-read", _of_page)
    app.connect("include-read", _of_included)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
