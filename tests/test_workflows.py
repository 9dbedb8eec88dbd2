"""The workflows in .github, held to the project without a runner: what they name exists."""

import importlib.util
import re
import shlex
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import benchmarks.__main__ as bench
from dmlsplit.cli import build_parser

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".github" / "workflows"
TEXTS = {path.name: path.read_text("utf-8") for path in sorted(FOLDER.glob("*.yml"))}
# PyYAML reads the key `on` as true, as YAML 1.1 has it.
WORKFLOWS: dict[str, dict[Any, Any]] = {name: yaml.safe_load(text) for name, text in TEXTS.items()}
ACTION = (ROOT / "action.yml").read_text("utf-8")
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = SETTINGS["project"]
PYTHONS = [
    each.rpartition(" ")[2]
    for each in PROJECT["classifiers"]
    if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", each)
]
# No commit of it could be verified; the workflow says so beside it.
UNPINNED = {"pypa/gh-action-pypi-publish@release/v1"}


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, workflow in WORKFLOWS.items():
        for job in workflow["jobs"].values():
            yield name, job


def commands() -> Iterator[tuple[str, str]]:
    """Every line of every script for bash, without the expressions of conditions."""
    for name, job in jobs():
        for step in job["steps"]:
            if "run" in step and step.get("shell") != "pwsh":
                yield from ((name, line.strip()) for line in step["run"].splitlines())


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_takes_no_more_than_it_needs(name: str) -> None:
    workflow = WORKFLOWS[name]
    assert workflow["permissions"] in ({}, {"contents": "read"})
    assert "concurrency" in workflow
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 120, job["name"]
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False
    # Values of a run reach scripts through the environment.
    assert not [
        step
        for job in workflow["jobs"].values()
        for step in job["steps"]
        if "${{" in step.get("run", "")
    ]


def test_every_action_is_pinned_to_one_commit_and_says_its_version() -> None:
    used = defaultdict(set)
    for text in [*TEXTS.values(), ACTION]:
        for name, comment in re.findall(r"uses: (\S+)(?: # (.*))?$", text, re.MULTILINE):
            if name != "./" and name not in UNPINNED:
                assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", name), name
                assert re.fullmatch(r"v\d+\.\d+\.\d+", comment), name
                used[name.partition("@")[0]].add((name, comment))
    assert "actions/checkout" in used
    assert all(len(found) == 1 for found in used.values()), used


def test_the_suite_runs_on_every_python_and_system_that_is_promised() -> None:
    matrix = WORKFLOWS["tests.yml"]["jobs"]["suite"]["strategy"]["matrix"]
    assert matrix["python"] == PYTHONS
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"
    systems = {"ubuntu": "POSIX :: Linux", "windows": "Microsoft :: Windows", "macos": "MacOS"}
    promised = {each for each in PROJECT["classifiers"] if each.startswith("Operating System")}
    tested = {f"Operating System :: {systems[os.partition('-')[0]]}" for os in matrix["os"]}
    assert tested == promised
    action = re.findall(r'python-version: "(.*)"', ACTION)
    chosen = re.findall(r'python-version: "(.*)"', "\n".join(TEXTS.values()))
    assert {*action, *chosen} <= set(PYTHONS)
    # The lowest dependencies with the oldest Python, the newest with the newest.
    for job, python in (("lowest", PYTHONS[0]), ("newest", PYTHONS[-1])):
        steps = WORKFLOWS["tests.yml"]["jobs"][job]["steps"]
        assert [
            s["with"]["python-version"] for s in steps if "python-version" in s.get("with", {})
        ] == [python]


def test_what_is_installed_is_an_extra() -> None:
    extras = set(PROJECT["optional-dependencies"])
    named = [re.findall(r"'\.\[(.*?)\]'", line) for _, line in commands()]
    used = {extra for found in named for each in found for extra in each.split(",")}
    assert {"test", "docs"} <= used <= extras


def test_selected_tests_have_a_marker() -> None:
    markers = {
        each.partition(":")[0] for each in SETTINGS["tool"]["pytest"]["ini_options"]["markers"]
    }
    chosen = [
        words[words.index("-m", words.index("pytest")) + 1]
        for words in (shlex.split(line) for _, line in commands() if " pytest " in line)
    ]
    used = {word for each in chosen for word in each.split() if word != "not"}
    assert used == {"proof", "gpu"}
    assert used <= markers


def test_commands_name_modules_files_and_options_that_exist() -> None:
    from_registry = {"sphinx", "build", "pip", "pytest", "venv"}
    seen = set()
    for _, line in commands():
        module = re.search(r"python\"? -m (\w+)", line)
        if module and module[1] not in from_registry:
            assert importlib.util.find_spec(module[1]), line
        if "benchmarks gpu" in line:
            words = shlex.split(line.strip("'"))
            bench.parser().parse_args(words[words.index("benchmarks") + 1 :])
        if "/bin/dmlsplit" in line:
            build_parser().parse_args(shlex.split(line.strip("'"))[1:])
        if line.startswith(".ci/"):
            assert (ROOT / line).exists()
        seen.add(line.split()[0] if line else "")
    assert ".ci/run" in seen
    folders = [line.split()[-2] for _, line in commands() if "-m sphinx" in line]
    assert folders == ["docs"]


def test_files_given_to_the_action_exist() -> None:
    given = [s["with"]["paths"] for _, job in jobs() for s in job["steps"] if s.get("uses") == "./"]
    assert given
    assert all((ROOT / path).exists() for path in given)


def test_a_gpu_runner_runs_nothing_that_a_stranger_proposes() -> None:
    assert list(WORKFLOWS["gpu.yml"][True]) == ["workflow_dispatch"]
    for name, job in jobs():
        assert ("self-hosted" in job["runs-on"]) == (name == "gpu.yml")


def test_only_a_tag_releases_and_only_what_was_built_and_checked() -> None:
    release = WORKFLOWS["release.yml"]
    assert release[True] == {"push": {"tags": ["v*"]}}
    assert release["jobs"]["pypi"]["needs"] == "build"
    # Trusted publishing: an identity, and no password.
    assert release["jobs"]["pypi"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in TEXTS["release.yml"]
    writing = {name for name, job in jobs() if "write" in job.get("permissions", {}).values()}
    assert writing == {"release.yml", "docs.yml"}


def test_dependabot_looks_at_the_workflows_the_action_and_python() -> None:
    updates = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text("utf-8"))["updates"]
    assert {each["package-ecosystem"] for each in updates} == {"github-actions", "pip"}
    (actions,) = [each for each in updates if each["package-ecosystem"] == "github-actions"]
    assert "/" in actions["directories"]
