"""The workflows in .github, held to the project; `zizmor` asks about permissions, pins, scripts."""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import yaml

import benchmarks.__main__ as bench
from dmlsplit.cli import build_parser

ROOT = Path(__file__).parent.parent
TEXTS = {path.name: path.read_text("utf-8") for path in ROOT.glob(".github/workflows/*.yml")}
# PyYAML reads the key `on` as true, as YAML 1.1 has it.
WORKFLOWS: dict[str, dict[Any, Any]] = {name: yaml.safe_load(text) for name, text in TEXTS.items()}
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = PYPROJECT["project"]
PYTHONS = [
    each.rpartition(" ")[2]
    for each in PROJECT["classifiers"]
    if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", each)
]


JOBS = [(name, job) for name, each in WORKFLOWS.items() for job in each["jobs"].values()]


def test_the_suite_runs_on_every_python_and_system_that_is_promised() -> None:
    matrix = WORKFLOWS["tests.yml"]["jobs"]["suite"]["strategy"]["matrix"]
    assert matrix["python"] == PYTHONS
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"
    systems = {"ubuntu": "POSIX :: Linux", "windows": "Microsoft :: Windows", "macos": "MacOS"}
    promised = {each for each in PROJECT["classifiers"] if each.startswith("Operating System")}
    tested = {f"Operating System :: {systems[os.partition('-')[0]]}" for os in matrix["os"]}
    assert tested == promised
    # The lowest dependencies with the oldest Python, the newest with the newest.
    for job, python in (("lowest", PYTHONS[0]), ("newest", PYTHONS[-1])):
        steps = WORKFLOWS["tests.yml"]["jobs"][job]["steps"]
        versions = [step["with"].get("python-version") for step in steps if "with" in step]
        assert python in versions
        assert set(versions) <= {python, None}


def test_commands_name_options_and_extras_that_exist() -> None:
    """Those of the workflows that have not run yet as well."""
    text = "\n".join(step.get("run", "") for _, job in JOBS for step in job["steps"])
    parsers = {"benchmarks": bench.parser(), "dmlsplit": build_parser()}
    found = re.findall(r"(?:-m |^|bin/)(benchmarks|dmlsplit)\"? ([^'>|\n]*)", text, re.MULTILINE)
    assert {name for name, _ in found} == parsers.keys()
    for name, arguments in found:
        parsers[name].parse_args(shlex.split(arguments.partition(" || ")[0]))
    extras = {extra for each in re.findall(r"'\.\[(.*?)\]'", text) for extra in each.split(",")}
    assert {"test", "onnx"} <= extras <= PROJECT["optional-dependencies"].keys()
    groups = set(re.findall(r"--group (\S+)", text + (ROOT / ".ci" / "run").read_text("utf-8")))
    assert {"docs", "frameworks"} <= groups <= PYPROJECT["dependency-groups"].keys()


def test_a_gpu_runner_runs_nothing_that_a_stranger_proposes() -> None:
    assert list(WORKFLOWS["gpu.yml"][True]) == ["workflow_dispatch"]
    for name, job in JOBS:
        assert ("self-hosted" in job["runs-on"]) == (name == "gpu.yml")


def test_only_a_tag_releases_and_only_what_was_built_and_checked() -> None:
    release = WORKFLOWS["release.yml"]
    assert release[True] == {"push": {"tags": ["v*"]}}
    assert release["jobs"]["pypi"]["needs"] == "build"
    # Trusted publishing: an identity, and no password.
    assert release["jobs"]["pypi"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in TEXTS["release.yml"]
    writing = {name for name, job in JOBS if "write" in job.get("permissions", {}).values()}
    assert writing == {"release.yml", "docs.yml"}
    assert all(each["permissions"] in ({}, {"contents": "read"}) for each in WORKFLOWS.values())


def test_nothing_of_microsoft_is_uploaded() -> None:
    """DirectML's licence does not allow sharing the library that the workflow asks."""
    uploads = [
        step["with"]["path"]
        for job in WORKFLOWS["conformance.yml"]["jobs"].values()
        for step in job["steps"]
        if "upload-artifact" in step.get("uses", "")
    ]
    assert uploads == ["kit", "${{ env.OBSERVED }}"]
    assert WORKFLOWS["conformance.yml"]["jobs"]["probe"]["env"]["OBSERVED"].endswith(".json")
