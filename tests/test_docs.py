"""The documentation agrees with the code: examples run, and links lead somewhere."""

import doctest
import json
import re
import shlex
import tomllib
from functools import cache
from pathlib import Path

import pytest
import yaml

from benchmarks import __main__ as benchmarks
from dmlsplit.backends.cuda.gpus import GPUS
from dmlsplit.cli import build_parser, main
from dmlsplit.cli.levels import level_table
from dmlsplit.lint.rules import RULES
from tests.conformance import __main__ as conformance
from tests.golden import pages
from tests.support.command import ROOT, every_parser
from tests.support.each import each

PAGES = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in pages.paths()}

# Pages whose examples need more software than the tests.
NEEDS = {"docs/jax.md": "jax", "docs/pytorch.md": "torch"}
# Blocks that need a GPU: tests/simulated_card/cases_docs.py runs the pages that have them.
_ON_A_CARD = re.compile(r"```python\n(?:(?!```).)*\b(?:cp|graph)\..*?```", re.DOTALL)
# Set-up commands, which .ci/run runs on a clean checkout.
_SETUP = "python3 -m venv "


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGES[name], re.DOTALL)


# Warnings that belong to the subjects of pages.
MARKS = {
    "docs/pytorch.md": pytest.mark.filterwarnings(
        "ignore:Warning only once for all operators:UserWarning",
        "ignore:.*treespec:FutureWarning",  # by torch's own run_decompositions
    )
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=MARKS.get(name, ()))
        for name in PAGES
        if ">>> " in _ON_A_CARD.sub("", PAGES[name])
    ],
)
def test_python_examples_work(name: str, here: Path) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"{NEEDS[name]} is not installed")
    text = _ON_A_CARD.sub("", PAGES[name])
    page = doctest.DocTestParser().get_doctest(text, {}, name, name, 0)
    # The folder is not cleared, because torch.compile removes its files later.
    results = doctest.DocTestRunner().run(page, clear_globs=False)
    assert results.attempted > 0
    assert results.failed == 0


@each(name=PAGES)
def test_every_code_block_is_of_a_known_language_and_well_formed(name: str) -> None:
    """No page has examples in untested languages; sh and text are for other machines."""
    fences = set(re.findall(r"^```(\w*)", PAGES[name], re.MULTILINE))
    assert fences <= {"", "python", "console", "sh", "text", "yaml", "json", "toml"}
    assert all(">>> " in block for block in blocks(name, "python"))
    for block in blocks(name, "console"):
        assert block.startswith(("$ dmlsplit ", f"$ {_SETUP}"))
    for language, read in {
        "yaml": yaml.safe_load,
        "json": json.loads,
        "toml": tomllib.loads,
    }.items():
        assert all(isinstance(read(block), (dict, list)) for block in blocks(name, language))


def test_the_five_minutes_of_the_start_page_work_in_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    results = doctest.testfile(str(ROOT / "docs/index.md"), module_relative=False)
    assert results.failed == 0
    for block in blocks("docs/index.md", "console"):
        for line in re.findall(r"^\$ dmlsplit (.*)$", block, re.MULTILINE):
            assert main(shlex.split(line)) in (0, 1), line
    file_names = sorted(path.name for path in tmp_path.iterdir())
    assert file_names == ["IN.npy", "OUT", "glu.onnx", "rgb.fixed.onnx", "rgb.onnx"]


# A page for each of ten tasks, with the word that a reader searches for and what its example runs.
TASKS = {
    "ci": ("SARIF", "github/codeql-action/upload-sarif"),
    "errors": ("80070057", "$ dmlsplit validate model.onnx"),
    "fix": ("fix a folder", "--write-fixed"),
    "preallocated": ("preallocated", "out=[left, right]"),
    "strides": ("strides", 'feature_level="2_1"'),
    "cuda-graphs": ("graph", "begin_capture()"),
    "devices": ("selftest", "dmlsplit selftest -o report.json"),
    "scale": ("cluster", "LocalCluster("),
    "levels": ("INT64", "{from-code} windows"),
    "performance": ("how fast", "{chart} cpu"),
}


@each(name=TASKS)
def test_the_page_of_a_task_is_indexed_under_its_word_and_has_its_example(name: str) -> None:
    word, example = TASKS[name]
    text = PAGES[f"docs/{name}.md"]
    # In MyST, "!" makes an entry of the index the main one, which a search shows first.
    assert f"! {word}" in "".join(re.findall(r"^```{index} .*$", text, re.MULTILINE))
    assert example in text


@pytest.fixture
def here(here: Path) -> Path:
    """A folder with the files that the examples name."""
    pages.write_inputs(here)
    return here


CONSOLE = [(name, block) for name in PAGES for block in pages.blocks(PAGES[name])]


@pytest.mark.parametrize(("name", "block"), CONSOLE, ids=[f"{n}:{b[2:40]}" for n, b in CONSOLE])
def test_console_examples_print_the_output_that_they_show(
    name: str, block: str, here: Path
) -> None:
    """All commands of a block are run; the output of the last one is compared, if it is shown."""
    assert pages.with_output(block, main) == block


SHELL = [
    (name, line)
    for name in PAGES
    for block in blocks(name, "sh")
    for line in block.replace("\\\n", "").splitlines()
]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PYPROJECT["project"]["optional-dependencies"]


@pytest.mark.parametrize(("name", "line"), SHELL)
def test_commands_that_need_more_than_this_machine_can_be_parsed(name: str, line: str) -> None:
    words = shlex.split(line, comments=True)
    if "dmlsplit" in words[:5] and "install" not in words:  # after uvx or pipx run
        build_parser().parse_args(words[words.index("dmlsplit") + 1 :])
    elif words[:3] == ["python", "-m", "tests.conformance"]:
        conformance.build_parser().parse_args(words[3:])
    elif words[:3] == ["python", "-m", "benchmarks"]:
        benchmarks.parser().parse_args(words[3:])
    for extra in re.findall(r"\[([\w,]+)\]", line):
        assert set(extra.split(",")) <= EXTRAS.keys(), line
    assert set(re.findall(r"--group (\S+)", line)) <= PYPROJECT["dependency-groups"].keys(), line


# Options of other programs.
FOREIGN = {
    *("--slow", "--exhaustive", "--adversary", "--dml_feature_level"),  # pytest, DxDispatch
    *("--only", "--sweep", "--planner"),  # benchmarks
    *("--branch", "--group", "--all-files"),  # git, pip, pre-commit
    *("--from", "--spec", "--shell"),  # uvx, pipx, shtab
    *("--port", "--nthreads"),  # dask
}


def options(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text))


# The probe is a program of its own.
PROBE = (ROOT / "tests" / "conformance" / "probe.py").read_text("utf-8")


@cache
def known_options() -> set[str]:
    commands = (*every_parser(build_parser()), *every_parser(conformance.build_parser()))
    helps = "".join(parser.format_help() for parser in commands)
    return options(helps) | set(re.findall(r'"(--[a-z]+)"', PROBE))


@each(name=[name for name in PAGES if name.startswith(("docs/", "README"))])
def test_every_option_in_the_documentation_is_in_a_help(name: str) -> None:
    assert options(PAGES[name]) <= known_options() | FOREIGN


def test_the_last_command_of_the_readmes_set_up_prints_the_output_shown(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up = next(
        block for block in blocks("README.md", "console") if block.startswith(f"$ {_SETUP}")
    )
    line, expected_output = set_up.split("\n", 1)
    assert main(shlex.split(line.rpartition("bin/dmlsplit ")[2])) == 0
    assert capsys.readouterr().out == expected_output


def test_the_level_table_of_the_page_is_that_of_the_command() -> None:
    assert pages.LEVEL_TABLE.findall(PAGES["docs/levels.md"]) == [level_table() + "\n"]


@cache
def headings(text: str) -> frozenset[str]:
    """The anchors that GitHub makes from a page's headings."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles)


# Generated from the rules when the site is built; tests/lint/test_rule_page.py and test_examples.py
# test their content.
RULE_PAGES = ROOT / "docs" / "rules"


@each(name=[*PAGES, "benchmarks/README.md"])
def test_relative_links_have_a_target(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    for target, anchor in re.findall(r"\]\((?!http)([^)#]*)#?([^)]*)\)", text):
        linked_file = (ROOT / name).parent / target if target else ROOT / name
        if linked_file.parent == RULE_PAGES:
            assert linked_file.name in {"index.md", *(f"{rule}.md" for rule in RULES)}, target
            continue
        assert linked_file.exists(), target
        assert not anchor or anchor in headings(linked_file.read_text("utf-8")), (
            f"{target}#{anchor}"
        )


# ---- README, as a package index shows it -------------------------------------------------------

URLS = PYPROJECT["project"]["urls"]


def test_every_link_of_the_readme_works_outside_the_repository() -> None:
    targets = re.findall(r"\]\(([^)]*)\)", PAGES["README.md"])
    assert len(targets) > 8
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []
    raw = URLS["Repository"].replace("github.com", "raw.githubusercontent.com") + "/main/"
    files = (raw, URLS["Repository"] + "/blob/main/")
    for target in targets:
        if target.startswith(files):
            assert (ROOT / target.partition("/main/")[2]).is_file(), target
            continue
        assert target.startswith(URLS["Documentation"]), target
        page, _, anchor = target.removeprefix(URLS["Documentation"]).partition("#")
        text = PAGES[f"docs/{page.replace('.html', '.md') or 'index.md'}"]
        assert not anchor or anchor in headings(text), target


_INCLUDE = r"```{include} ../README.md\n:start-after: \"(.*)\"\n:end-before: \"(.*)\""


def test_parts_of_the_readme_that_pages_include_are_marked_once() -> None:
    readme = PAGES["README.md"]
    marks = re.findall(_INCLUDE, "".join(PAGES.values()))
    assert len(marks) == 2
    assert [mark for pair in marks for mark in pair if readme.count(mark) != 1] == []


def test_before_the_release_no_page_installs_a_released_version() -> None:
    """README says that there is no release; the release workflow looks for the passage."""
    passage = PAGES["README.md"].partition("<!-- unreleased")[2]
    assert "not released yet" in passage
    assert f"'dmlsplit[onnx] @ git+{URLS['Repository']}'" in passage
    needs = re.compile(
        r"dmlsplit@v\d|rev: v\d|--branch v\d|(?:uvx|pipx run) dmlsplit|pip install dmlsplit$", re.M
    )
    assert [name for name in PAGES if name.startswith("docs/") and needs.search(PAGES[name])] == []


# ---- GPUs --------------------------------------------------------------------------------------

# Pages name a GPU only with a time or a speed.
NAMED_GPU = re.compile(rf"\b(?:H100|{'|'.join(re.escape(gpu.name) for gpu in GPUS)})\b")


@each(name=[*PAGES, "benchmarks/README.md"])
def test_a_page_with_the_time_of_a_gpu_says_that_none_was_measured(name: str) -> None:
    text = " ".join((ROOT / name).read_text("utf-8").split())
    caveat = r"[Nn]o GPU has run|not been measured on a GPU"
    assert not NAMED_GPU.search(text) or re.search(caveat, text)


# ---- ARCHITECTURE.md ---------------------------------------------------------------------------

ARCHITECTURE = PAGES["ARCHITECTURE.md"]


def test_the_architecture_names_every_room_within_a_room() -> None:
    package = ROOT / "dmlsplit"
    rooms = {str(path.parent.relative_to(package)) for path in package.glob("*/*/**/__init__.py")}
    assert len(rooms) > 8
    assert rooms <= set(re.findall(r"`([\w/]+)/`", ARCHITECTURE))


def test_the_picture_of_the_house_has_the_layers_of_the_contract() -> None:
    """The contract is exhaustive: it has every file and room of the package."""
    layers = PYPROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
    picture = re.findall(r"<!-- layers:.*?```text\n(.*?)```", ARCHITECTURE, re.DOTALL)[0]
    assert [line.partition("  ")[0] for line in picture.splitlines()] == layers


@cache
def names_of_tests() -> frozenset[str]:
    sources = (path.read_text("utf-8") for path in ROOT.glob("tests/**/test_*.py"))
    return frozenset(name for source in sources for name in re.findall(r"def (test_\w+)", source))


@each(name=PAGES)
def test_files_and_tests_that_the_pages_name_exist(name: str) -> None:
    # Texts of links are skipped, because they name other projects' files.
    files = re.findall(r"`([\w./-]+(?:/|\.(?:py|cuh?|hpp|yaml|toml)))`(?!\])", PAGES[name])
    for word in files:
        patterns = (f"dmlsplit/**/{word}", f"tests/conformance/{word}", f"*/{word}", word)
        matching_files = [path for pattern in patterns for path in ROOT.glob(pattern)]
        assert matching_files or "NAME" in word, word
    words = re.findall(r"`((?:dmlsplit|tests|benchmarks|docs|cuda|\.ci)/[\w./-]*)", PAGES[name])
    for arguments in re.findall(r"python -m pytest ([^`\n]*)", PAGES[name]):
        words += re.findall(r"\S+/\S*", arguments)
    for word in words:
        assert (ROOT / word).exists() or "NAME" in word, word
    assert set(re.findall(r"`(test_\w+)`", PAGES[name])) <= names_of_tests()
