"""Sphinx extension that writes a page per rule, and an index, into rules/ of the sources.

It generates the pages from the rules when a build begins; they are not under version control.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from dmlsplit.directml.rules.rule import Rule
from dmlsplit.lint.rule_page import rule_page
from dmlsplit.lint.rules import RULES

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_FAMILIES = {
    "DML-": "Descriptors and bindings",
    "SPLIT-": "Nodes of models",
    "ORT-": "ONNX Runtime's DirectML provider",
}
_HEAD = """\
# Rules

Every rule that dmlsplit checks, by its id. `dmlsplit explain ID` prints the same pages. The tests
run the examples of every page. The basis says how dmlsplit knows a rule, and links to its source:

- `documented`: in the documents of DirectML, ONNX or ONNX Runtime
- `source`: read in the source code of ONNX Runtime
- `reported`: by users, in a public issue
- `policy`: a choice of dmlsplit where the documents are silent

Nobody has compared these rules with a DirectML.dll yet: [what is known](../status.md).
"""


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages when a builder starts, before Sphinx looks for sources."""
    app.connect("builder-inited", lambda app: write_pages(Path(app.srcdir) / "rules"))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def write_pages(folder: Path) -> None:
    """Write the page of every rule and the index, and remove pages of rules that are gone."""
    pages = {f"{rule.id}.md": rule_page(rule) for rule in RULES.values()}
    pages["index.md"] = index()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def index() -> str:
    """The page that lists the rules, in the order in which they are defined."""
    parts = [_HEAD]
    for prefix, title in _FAMILIES.items():
        rules = [rule for rule in RULES.values() if rule.id.startswith(prefix)]
        parts += [f"## {title}\n", "| rule | what it says | basis | severity |\n|---|---|---|---|"]
        parts += [*map(_row, rules), "\n```{toctree}\n:hidden:\n"]
        parts += [*(rule.id for rule in rules), "```\n"]
    return "\n".join(parts)


def _row(rule: Rule) -> str:
    basis = f"[{rule.basis}]({rule.source})" if "://" in rule.source else rule.basis
    return f"| [{rule.id}]({rule.id}.md) | {rule.sentence} | {basis} | {rule.severity} |"
