"""The Sphinx extension that writes the manual's pages of rules: docs/extensions/rule_pages.py."""

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest

from dmlsplit.lint.report.rule_page import markdown_page
from dmlsplit.lint.rules import RULES

FILE = Path(__file__).parents[1] / "docs" / "extensions" / "rule_pages.py"


@pytest.fixture
def extension() -> ModuleType:
    """The extension, which needs no Sphinx until a build begins."""
    spec = importlib.util.spec_from_file_location("rule_pages", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_is_a_page_per_rule_and_an_index(extension: ModuleType, tmp_path: Path) -> None:
    extension.write_pages(tmp_path / "rules")
    pages = {path.stem: path.read_text("utf-8") for path in (tmp_path / "rules").iterdir()}
    index = pages.pop("index")
    assert pages == {name: markdown_page(rule) for name, rule in RULES.items()}
    for name, rule in RULES.items():
        assert index.count(f"[{name}]({name}.md) | {rule.sentence} | {rule.basis} |") == 1
        assert index.count(f"\n{name}\n") == 1  # in the table of contents


def test_a_page_is_written_only_if_it_changes(extension: ModuleType, tmp_path: Path) -> None:
    extension.write_pages(tmp_path)
    kept, stale = tmp_path / "ORT-VERSION.md", tmp_path / "DML-BIND-SIZE.md"
    gone = tmp_path / "DML-OF-OLD.md"
    for path in (kept, stale):
        os.utime(path, (1, 1))
    stale.write_text("an old page")
    gone.write_text("a rule that is gone")
    extension.write_pages(tmp_path)
    assert kept.stat().st_mtime == 1
    assert stale.read_text("utf-8") == markdown_page(RULES["DML-BIND-SIZE"])
    assert not gone.exists()
