"""The site: what `sphinx -W` does not notice."""

import importlib
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import ModuleType

import pytest

import dmlsplit as dml
from dmlsplit.cli import build_parser

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
TEXTS = {
    str(path.relative_to(DOCS).with_suffix("")): path.read_text("utf-8")
    for path in sorted(DOCS.rglob("*.md"))
    if "rules" not in path.parts  # written when the site is built
}


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    sys.path.append(str(DOCS / "extensions"))
    try:
        return importlib.import_module("tables")
    finally:
        sys.path.pop()


def test_predictions_in_the_text_are_those_of_the_table(tables: ModuleType) -> None:
    text = " ".join((ROOT / "benchmarks" / "README.md").read_text("utf-8").split())
    found = dict(re.findall(r"- (.*): (.*)", tables.predicted_ranges()))
    for gpu in ("H100", "H200"):
        least_and_most = found[f"predicted on {gpu}"].split(" of ")[0]
        assert re.search(rf"{least_and_most} (of a copy's speed )?on an {gpu}", text), gpu
    assert f"{found['instructions issued per 16 bytes']} instructions issued" in text
    read, written = found["sectors read"].split()[2], found["sectors written"].split()[2]
    assert (
        f"sectors read at most {read} times the least possible, written at most {written}" in text
    )


@pytest.mark.parametrize("path", sorted(DOCS.glob("pictures/*.svg")), ids=lambda path: path.name)
def test_a_drawing_has_a_title_and_names_what_exists(path: Path) -> None:
    root = ET.parse(path).getroot()
    texts = [element.text or "" for element in root.iter() if element.tag.endswith("text")]
    named = [text for text in texts if re.fullmatch(r"\w+(/|\.py)", text)]
    assert len(named) > 5
    assert all((ROOT / "dmlsplit" / name).exists() for name in named)
    assert [element for element in root if element.tag.endswith("title")]


def test_the_page_of_commands_has_every_command() -> None:
    (action,) = (each for each in build_parser()._actions if isinstance(each.choices, dict))
    paths = re.findall(r":path: (\w+)", TEXTS["commands"])
    assert action.choices is not None
    assert paths == list(action.choices)
    assert re.findall(r"^## (\w+)$", TEXTS["commands"], re.MULTILINE) == paths


def test_every_public_name_and_front_end_is_in_the_reference() -> None:
    text = "\n".join(text for page, text in TEXTS.items() if page.startswith("api/"))
    named = re.findall(r"auto(?:class|function|exception):: dmlsplit\.(\w+)", text)
    assert set(dml.__all__) <= set(named)
    fronts = {path.parent.name for path in ROOT.glob("dmlsplit/frontends/*/__init__.py")}
    assert fronts <= set(re.findall(r"automodule:: dmlsplit\.frontends\.(\w+)\n", text))
