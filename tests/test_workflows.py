"""The workflows in .github agree with the project; `zizmor` checks permissions, pins, scripts."""

import os
import re
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml

import benchmarks.__main__ as bench
import dmlsplit as dml
from dmlsplit.cli import build_parser
from tests.conformance import __main__ as conformance
from tests.support.command import ROOT, git, ran

posix = pytest.mark.skipif(sys.platform == "win32", reason="on Windows `bash` may be that of WSL")
TEXTS = {path.name: path.read_text("utf-8") for path in ROOT.glob(".github/workflows/*.yml")}
# PyYAML reads the key `on` as true, which it is in YAML 1.1.
WORKFLOWS: dict[str, dict[Any, Any]] = {name: yaml.safe_load(text) for name, text in TEXTS.items()}
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = PYPROJECT["project"]
PYTHONS = [
    classifier.rpartition(" ")[2]
    for classifier in PROJECT["classifiers"]
    if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", classifier)
]


# Jobs with steps: the others run another workflow.
JOBS = [
    (name, job)
    for name, workflow in WORKFLOWS.items()
    for job in workflow["jobs"].values()
    if "steps" in job
]


def script(workflow: str, job: str, name: str) -> str:
    """The script of a step."""
    steps = WORKFLOWS[workflow]["jobs"][job]["steps"]
    (step_text,) = (step["run"] for step in steps if step.get("name") == name)
    return str(step_text)


def test_the_suite_runs_on_every_promised_python_and_system() -> None:
    matrix = WORKFLOWS["tests.yml"]["jobs"]["suite"]["strategy"]["matrix"]
    assert matrix["python"] == PYTHONS
    assert PROJECT["requires-python"].startswith(f">={PYTHONS[0]}.")
    systems = {"ubuntu": "POSIX :: Linux", "windows": "Microsoft :: Windows", "macos": "MacOS"}
    classifiers = {
        classifier
        for classifier in PROJECT["classifiers"]
        if classifier.startswith("Operating System")
    }
    tested = {f"Operating System :: {systems[os.partition('-')[0]]}" for os in matrix["os"]}
    # A classifier is a promise: only a system that the suite has run on has one.
    assert classifiers <= tested
    # The lowest dependencies with the oldest Python, the newest with the newest.
    for job, python in (("lowest", PYTHONS[0]), ("newest", PYTHONS[-1])):
        steps = WORKFLOWS["tests.yml"]["jobs"][job]["steps"]
        versions = [step["with"].get("python-version") for step in steps if "with" in step]
        assert python in versions
        assert set(versions) <= {python, None}


def test_commands_name_options_and_extras_that_exist() -> None:
    """This includes workflows that have not run yet."""
    text = "\n".join(step.get("run", "") for _, job in JOBS for step in job["steps"])
    parsers = {
        "benchmarks": bench.parser(),
        "dmlsplit": build_parser(),
        "tests.conformance": conformance.build_parser(),
    }
    names = "|".join(map(re.escape, parsers))
    commands = re.findall(rf"(?:-m |^|bin/)({names})\"? ([^'>|\n]*)", text, re.MULTILINE)
    assert {name for name, _ in commands} == parsers.keys()
    for name, arguments in commands:
        parsers[name].parse_args(shlex.split(arguments.partition(" || ")[0]))
    extras = {
        extra
        for extra_list in re.findall(r"'\.\[(.*?)\]'", text)
        for extra in extra_list.split(",")
    }
    assert {"test", "onnx"} <= extras <= PROJECT["optional-dependencies"].keys()
    groups = set(re.findall(r"--group (\S+)", text + (ROOT / ".ci" / "run").read_text("utf-8")))
    assert {"docs", "frameworks"} <= groups <= PYPROJECT["dependency-groups"].keys()


@posix
def test_a_release_has_the_conformance_kit_which_pypi_does_not_get(tmp_path: Path) -> None:
    step = script("release.yml", "build", "The kit for the real DirectML, docs/conformance.md")
    install, rest = step.split("\n", 1)
    assert install == "pip install dist/*.whl"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"GITHUB_REF_NAME": "v1.2.3", "PATH": path, "PYTHONPATH": str(ROOT)}
    assert ran("bash", "-ec", rest, cwd=tmp_path, env=environment).returncode == 0
    kit = tmp_path / "directml-kit-1.2.3.zip"
    assert kit.stat().st_size < 2 << 20
    with ZipFile(kit) as files:
        assert {"probe.py", "cases.json"} <= {Path(name).name for name in files.namelist()}
    jobs = WORKFLOWS["release.yml"]["jobs"]
    assert jobs["build"]["steps"][-2]["with"]["path"] == "directml-kit-*.zip"
    assert "dist/* kit/*" in jobs["github"]["steps"][-1]["run"]
    assert len(jobs["pypi"]["steps"]) == 2  # dist/ alone, and its publication


def test_a_gpu_runner_runs_nothing_from_a_strangers_pull_request() -> None:
    assert list(WORKFLOWS["gpu.yml"][True]) == ["workflow_dispatch"]
    for name, job in JOBS:
        assert ("self-hosted" in job["runs-on"]) == (name == "gpu.yml")


def test_only_a_tag_releases_and_only_after_tests_and_builds() -> None:
    release = WORKFLOWS["release.yml"]
    assert release[True] == {"push": {"tags": ["v*"]}}
    order = "tag tests wheels build pypi github".split()
    needs = [(name, job.get("needs")) for name, job in release["jobs"].items()]
    assert needs == list(zip(order, [None, *order], strict=False))
    assert release["jobs"]["tests"]["uses"] == "./.github/workflows/tests.yml"


def test_a_release_and_the_tests_that_it_calls_do_not_wait_for_each_other() -> None:
    """In one group they would. In a call, `github.workflow` is the caller's."""
    assert "workflow_call" in WORKFLOWS["tests.yml"][True]
    assert "github.workflow" not in WORKFLOWS["tests.yml"]["concurrency"]["group"]


def test_a_release_is_published_without_a_password_and_few_jobs_may_write() -> None:
    """Trusted publishing uses an identity instead."""
    jobs = WORKFLOWS["release.yml"]["jobs"]
    assert jobs["pypi"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in TEXTS["release.yml"]
    writing = {name for name, job in JOBS if "write" in job.get("permissions", {}).values()}
    assert writing == {"release.yml", "docs.yml"}
    assert all(
        workflow["permissions"] in ({}, {"contents": "read"}) for workflow in WORKFLOWS.values()
    )


@posix
def test_a_tag_of_a_commit_that_is_not_on_main_is_refused(tmp_path: Path) -> None:
    def refused(commit: str) -> bool:
        environment = {"GITHUB_SHA": commit, "GITHUB_REF_NAME": "v1.2.3"}
        process = ran("bash", "-ec", step, cwd=tmp_path, env=environment)
        assert process.returncode == ("is not on main" in process.stdout)
        return process.returncode == 1

    step = script("release.yml", "tag", "The tagged commit is on main")
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "one")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "two")
    git(tmp_path, "update-ref", "refs/remotes/origin/main", "HEAD")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "not merged")
    assert not refused(git(tmp_path, "rev-parse", "origin/main"))
    assert not refused(git(tmp_path, "rev-parse", "origin/main~1"))
    assert refused(git(tmp_path, "rev-parse", "HEAD"))


@posix
def test_a_release_is_refused_while_a_page_says_that_there_is_none(tmp_path: Path) -> None:
    step = script("release.yml", "tag", 'The pages no longer say "not released yet"')
    (tmp_path / "docs").mkdir()
    readme = (ROOT / "README.md").read_text("utf-8")
    pages = "README.md", "CHANGELOG.md", "docs/ci.md"
    for page in ("", *pages):
        for name in pages:
            text = readme if name == page else readme.replace("<!-- unreleased", "<!-- gone")
            (tmp_path / name).write_text(text, "utf-8")
        assert ran("bash", "-ec", step, cwd=tmp_path).returncode == bool(page), page


@posix
def test_an_undated_version_is_not_released(tmp_path: Path) -> None:
    step = script("release.yml", "build", "The tag, the package and the changelog name one version")
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "dmlsplit-0.1.0.tar.gz").touch()
    for head, status in (("0.1.0] - 2026-11-24", 0), ("0.1.0]", 1), ("0x1.0] - 2026-11-24", 1)):
        (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## [{head}\n", "utf-8")
        process = ran("bash", "-ec", step, cwd=tmp_path, env={"GITHUB_REF_NAME": "v0.1.0"})
        assert process.returncode == status, head


@posix
def test_the_notes_of_a_release_are_its_section_of_the_changelog(tmp_path: Path) -> None:
    step = script("release.yml", "build", "The notes are the section of the changelog")
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    newest = text.index("## [")
    items = "- new ([how](docs/ci.md)),\n  in two lines\n- second\n\nEnd\nof it\n"
    versions = f"## [1.20.0] - 2026-01-02\n\n{items}\n## [1.2.0]\n\n- older\n\n"
    (tmp_path / "CHANGELOG.md").write_text(text[:newest] + versions + text[newest:], "utf-8")

    def notes(version: str) -> str:
        environment = {"GITHUB_REF_NAME": f"v{version}", "GITHUB_REPOSITORY": "owner/name"}
        process = ran("bash", "-ec", step, cwd=tmp_path, env=environment)
        assert process.returncode == 0
        return (tmp_path / "notes.md").read_text("utf-8")

    page = "https://github.com/owner/name/blob/v1.20.0/docs/ci.md"
    assert notes("1.20.0").strip() == f"- new ([how]({page})), in two lines\n- second\n\nEnd of it"
    assert notes("1.2.0").strip() == "- older"
    words = re.sub(r"https://\S*/docs/", "docs/", notes(dml.__version__)).split()
    assert " ".join(words) in " ".join(text.split())
    assert ran("bash", "-ec", step, cwd=tmp_path, env={"GITHUB_REF_NAME": "v9"}).returncode == 1


def test_no_library_of_microsoft_is_uploaded() -> None:
    """DirectML's licence does not allow sharing the library that the workflow probes."""
    uploads = [
        step["with"]["path"]
        for job in WORKFLOWS["conformance.yml"]["jobs"].values()
        for step in job["steps"]
        if "upload-artifact" in step.get("uses", "")
    ]
    assert uploads == ["kit", "${{ env.OBSERVED }}"]
    assert WORKFLOWS["conformance.yml"]["jobs"]["probe"]["env"]["OBSERVED"].endswith(".json")
