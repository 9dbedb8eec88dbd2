"""What the documents say is what the code does: examples run, links lead somewhere."""

import doctest
import re
import shlex
import shutil
import tomllib
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
import zarr
from onnx import TensorProto

from dmlsplit.cli import build_parser, main
from dmlsplit.cli.levels import level_table
from dmlsplit.lint.rules import RULES
from models import single

ROOT = Path(__file__).parent.parent
# Made of the rules when the site is built; tests/lint/test_rule_page.py and test_examples.py hold
# them to what they say.
RULE_PAGES = ROOT / "docs" / "rules"
PAGES = {
    str(path.relative_to(ROOT)): path.read_text("utf-8")
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
    if path.parent != RULE_PAGES
}
MANUAL = [name for name in PAGES if name.startswith("docs/") and "design" not in name]
# Pages whose examples need more than the tests do.
NEEDS = {"docs/jax.md": "jax", "docs/pytorch.md": "torch"}
# Set-up commands, which .ci/run carries out on a clean checkout.
_SETUP = "python3 -m venv "


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGES[name], re.DOTALL)


# Warnings of what pages are about.
MARKS = {
    "docs/pytorch.md": pytest.mark.filterwarnings(
        "ignore:Warning only once for all operators:UserWarning"
    )
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=MARKS.get(name, ())) for name in PAGES if ">>> " in PAGES[name]],
)
def test_python_examples_work(name: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"{NEEDS[name]} is not installed")
    page = doctest.DocTestParser().get_doctest(PAGES[name], {}, name, name, 0)
    # Not cleared: torch.compile removes later what it has put there.
    results = doctest.DocTestRunner().run(page, clear_globs=False)
    assert results.attempted > 0
    assert results.failed == 0


def test_every_example_is_one_that_is_tested() -> None:
    for name in PAGES:
        assert all(">>> " in block for block in blocks(name, "python")), name
        for block in blocks(name, "console"):
            assert block.startswith(("$ dmlsplit ", f"$ {_SETUP}")), name


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the examples name."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "tests" / "data", "tests/data")
    onnx.save(single(TensorProto.INT64, (6,), (2, 4), 0), "model.onnx")
    np.save("IN.npy", np.arange(48).reshape(16, 3))
    zarr.save_array("IN.zarr", np.ones((2, 4096), "f4"))
    return tmp_path


CONSOLE = [
    (name, block)
    for name in PAGES
    for block in blocks(name, "console")
    if block.startswith("$ dmlsplit ")
]


@pytest.mark.parametrize(("name", "block"), CONSOLE, ids=[f"{n}:{b[2:40]}" for n, b in CONSOLE])
def test_console_examples_print_what_they_show(
    name: str, block: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All commands of a block are run; what the last one prints is compared, if it is shown."""
    lines = re.findall(r"^\$ dmlsplit (.*)$", block, re.MULTILINE)
    shown = block.rpartition("\n$ ")[2].partition("\n")[2]
    for line in lines:
        capsys.readouterr()
        assert main(shlex.split(line)) in (0, 1), line
    assert not shown or capsys.readouterr().out == shown


@pytest.mark.parametrize("name", [name for name in PAGES if blocks(name, "sh")])
def test_commands_that_need_more_than_this_machine_are_understood(name: str) -> None:
    commands = [line for block in blocks(name, "sh") for line in block.splitlines()]
    for line in commands:
        if line.startswith("dmlsplit "):
            build_parser().parse_args(shlex.split(line, comments=True)[1:])


def test_the_first_command_of_the_readme_prints_what_it_shows(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line, shown = blocks("README.md", "console")[0].split("\n", 1)
    assert main(shlex.split(line.rpartition("bin/dmlsplit ")[2])) == 0
    assert capsys.readouterr().out == shown


def test_the_level_table_is_the_real_one() -> None:
    (shown,) = re.findall(r"<!-- levels:.*?```text\n(.*?)```", PAGES["docs/levels.md"], re.DOTALL)
    assert shown == level_table() + "\n"


@cache
def headings(text: str) -> frozenset[str]:
    """The anchors that GitHub makes of a page's headings."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles)


@pytest.mark.parametrize("name", [*PAGES, "benchmarks/README.md"])
def test_links_inside_the_project_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    for target, anchor in re.findall(r"\]\((?!http)([^)#]*)#?([^)]*)\)", text):
        found = (ROOT / name).parent / target if target else ROOT / name
        if found.parent == RULE_PAGES:
            assert found.name in {"index.md", *(f"{rule}.md" for rule in RULES)}, target
            continue
        assert found.exists(), target
        assert not anchor or anchor in headings(found.read_text("utf-8")), f"{target}#{anchor}"


def test_the_manual_and_the_decisions_are_listed() -> None:
    for name in MANUAL:
        assert f"]({name})" in PAGES["README.md"], name
    for path in (ROOT / "docs" / "design").glob("[0-9]*.md"):
        assert f"]({path.name})" in PAGES["docs/design/README.md"], path.name


def test_the_readme_is_a_screen_and_a_half() -> None:
    assert len(PAGES["README.md"].splitlines()) <= 120


# ---- ARCHITECTURE.md ---------------------------------------------------------------------------

ARCHITECTURE = PAGES["ARCHITECTURE.md"]
NAMED = set(re.findall(r"`([\w./*{},-]+)`", ARCHITECTURE))


def parts(package: Path) -> list[str]:
    """Every package and every module of the root, as ARCHITECTURE.md names them."""
    modules = [path.name for path in package.glob("*.py")]
    packages = [
        f"{path.parent.relative_to(package)}/"
        for path in package.rglob("__init__.py")
        if path.parent != package
    ]
    return sorted(modules + packages)


@pytest.mark.parametrize("part", parts(ROOT / "dmlsplit"))
def test_the_architecture_names_every_package_and_root_module(part: str) -> None:
    assert part in NAMED


def test_every_path_in_the_architecture_exists() -> None:
    paths = [name for name in NAMED if "/" in name or name.endswith((".py", ".yaml", ".toml"))]
    assert len(paths) > 20
    for path in paths:
        assert (ROOT / "dmlsplit" / path).exists() or (ROOT / path).exists(), path


def test_the_import_diagram_is_the_contract() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = settings["contracts"][0]["layers"]
    drawn = re.findall(r"<!-- layers:.*?```text\n(.*?)```", ARCHITECTURE, re.DOTALL)[0]
    assert [line.partition("  ")[0] for line in drawn.splitlines()] == layers


DECISIONS = [name for name in PAGES if name.startswith("docs/design/0")]


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_names_files_that_exist(name: str) -> None:
    # Not the texts of links: those are other projects' files.
    for path in re.findall(r"`([\w./-]+(?:/|\.(?:py|cuh?|hpp|yaml)))`(?!\])", PAGES[name]):
        found = [*ROOT.glob(f"dmlsplit/**/{path}"), *ROOT.glob(f"cuda/{path}"), ROOT / path]
        assert any(file.exists() for file in found), path


# ---- CONTRIBUTING.md ---------------------------------------------------------------------------


def test_the_recipes_name_tests_and_files_that_exist() -> None:
    named = re.findall(r"`([\w./*-]+)`", PAGES["CONTRIBUTING.md"])
    sources = "\n".join(path.read_text("utf-8") for path in ROOT.glob("tests/**/*.py"))
    for name in named:
        if name.startswith("test_"):
            assert f"def {name}(" in sources, name
        elif name.startswith(("dmlsplit/", "tests/", "benchmarks/", "docs/", "cuda/", ".ci/")):
            assert "NAME" in name or (ROOT / name).exists(), name
