"""The site: every page can be reached, and what Sphinx fills in is what the library says."""

import importlib
import json
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import ModuleType

import pytest

import dmlsplit as dml
from dmlsplit.cli import build_parser
from dmlsplit.cli.levels import level_json

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


def directives(name: str) -> list[str]:
    """Return the arguments and content of every directive of that name."""
    pattern = rf"^```\{{{name}\}} ?(.*?)^```$"
    return [found for text in TEXTS.values() for found in re.findall(pattern, text, re.M | re.S)]


def below(page: str) -> set[str]:
    """Return the pages in the toctrees of a page."""
    found: set[str] = set()
    for block in re.findall(r"^```{toctree}\n(.*?)^```$", TEXTS.get(page, ""), re.M | re.S):
        for line in block.splitlines():
            if line and not line.startswith(":"):
                entry = re.sub(r"^.*<(.*)>$", r"\1", line)
                for path in (DOCS / page).parent.glob(f"{entry}.md"):
                    found.add(str(path.relative_to(DOCS).with_suffix("")))
    return found


def test_every_page_is_reached_from_the_start() -> None:
    reached, new = set[str](), {"index"}
    while new:
        reached |= new
        new = set.union(*map(below, new)) - reached
    assert reached >= TEXTS.keys()


def test_every_table_is_one_that_the_code_makes(tables: ModuleType) -> None:
    used = {name.strip() for name in directives("from-code")}
    assert used == tables.TABLES.keys()


def test_the_level_table_has_every_level_with_its_types(tables: ModuleType) -> None:
    rows = tables.levels().splitlines()[2:]
    for row, level in zip(rows, json.loads(level_json())["levels"], strict=True):
        assert row.startswith(f"| {level['name'].removeprefix('DML_FEATURE_LEVEL_')} |")
        assert f"| {', '.join(level['input_tensor']['data_types'])} |" in row
        assert not level["windows"] or str(level["windows"]["build"]) in row


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


def test_a_ratio_below_one_is_shown(tables: ModuleType) -> None:
    """The worst ratio of each peer, on any case of two runs, as benchmarks/README.md has them."""
    worst = dict(re.findall(r"\| (\w+ ?\w* \| \d) \| ([\d.]+) \(", tables.peers()))
    assert worst["onnxruntime | 2"] == "0.90"
    assert worst["numpy split | 1"] == "0.87"
    assert worst["torch | 2"] == "1.04"


def test_the_sweeps_are_as_large_as_the_page_says() -> None:
    text = " ".join(TEXTS["reliability"].split())
    sweeps, kills = (
        (ROOT / "tests" / name).read_text("utf-8")
        for name in ("lint/test_sweeps.py", "storage/test_kills.py")
    )
    models, graphs = map(int, re.findall(r"pytest\.param\((\d+), marks=pytest\.mark\.slow", sweeps))
    (chains,) = map(int, re.findall(r"^CHAINS = (\d+)", sweeps, re.MULTILINE))
    assert f"{models * chains:,} graphs of the first kind and {graphs} of the second" in text
    (share,) = map(float, re.findall(r"len\(unknown\) <= ([\d.]+) \*", sweeps))
    assert f"at most {share:.0%} are unknown".replace("%", " %") in text
    (killed,) = re.findall(r"while kills < (\d+)", kills)
    assert f"Another {killed} runs are killed" in text


@pytest.mark.parametrize("block", directives("split-picture"))
def test_a_picture_is_of_a_valid_split_and_has_a_text(block: str) -> None:
    options = dict(re.findall(r"^:([\w-]+): (.*)$", block, re.MULTILINE))
    sizes, split = (list(map(int, options[key].split(","))) for key in ("sizes", "split"))
    tensor = dml.TensorDesc(options["data-type"], sizes)
    desc = dml.SplitOperatorDesc.from_sizes(tensor, axis=int(options["axis"]), sizes=split)
    assert dml.validate(desc).ok
    assert (
        f"Output {len(split) - 1}" in options["alt"] or f"output {len(split) - 1}" in options["alt"]
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


API = "\n".join(text for page, text in TEXTS.items() if page.startswith("api/"))


@pytest.mark.parametrize("name", dml.__all__)
def test_every_public_name_is_in_the_reference(name: str) -> None:
    assert re.search(rf"auto(class|function|exception):: dmlsplit\.{name}\b", API)


def test_every_front_end_is_in_the_reference() -> None:
    for package in (ROOT / "dmlsplit" / "frontends").glob("*/__init__.py"):
        assert f"automodule:: dmlsplit.frontends.{package.parent.name}\n" in API
