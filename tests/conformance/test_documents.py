"""The page and the workflow say what the kit does."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from dmlsplit.cli import build_parser
from dmlsplit.conformance.cases import QUESTIONS, all_cases
from dmlsplit.conformance.check import APART, KINDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "conformance.md").read_text("utf-8")
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/conformance.yml").read_text("utf-8"))


def table(after: str) -> list[list[str]]:
    rows = re.findall(r"^\| (.*) \|$", PAGE.partition(after)[2], re.MULTILINE)
    return [row.split(" | ") for row in rows]


def test_the_questions_of_the_page_are_those_of_the_kit() -> None:
    rows = table("## Ten open questions")[1:]
    assert [row[1] for row in rows] == [question.text for question in QUESTIONS]
    named = [tuple(re.findall(r"`([^`]*)`", " ".join(row[2:]))) for row in rows]
    assert named == [question.patterns for question in QUESTIONS]


def test_every_kind_of_difference_is_explained() -> None:
    rows = {row[0]: row for row in table("## What each outcome means")[: len(KINDS) + 1]}
    assert set(rows) == {"difference", *KINDS}
    assert {kind for kind in KINDS if "does not count" in rows[kind][2]} == set(APART)


def test_every_kind_of_case_is_explained() -> None:
    shown = {row[0].strip("`").partition("-")[0] for row in table("## What is asked")[1:6]}
    assert shown == {case.id.partition("-")[0] for case in all_cases()}


def test_the_page_says_that_nothing_has_run_on_windows() -> None:
    assert "**The Windows half has not run yet.**" in PAGE


# ---- the workflow ------------------------------------------------------------------------------


def steps(job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = WORKFLOW["jobs"][job]["steps"]
    return found


def test_the_workflow_uploads_the_kit_and_observations_only() -> None:
    uploads = [
        step["with"]["path"]
        for job in WORKFLOW["jobs"]
        for step in steps(job)
        if "upload-artifact" in step.get("uses", "")
    ]
    assert uploads == ["kit", "${{ env.OBSERVED }}"]
    assert WORKFLOW["jobs"]["probe"]["env"]["OBSERVED"].endswith(".json")
    assert not any("cache" in step.get("uses", "") for step in steps("probe"))


@pytest.mark.parametrize("job", ["kit", "check"])
def test_the_commands_of_the_workflow_are_understood(job: str) -> None:
    text = "\n".join(step.get("run", "") for step in steps(job))
    lines = re.findall(r"dmlsplit (conformance [^>|\n]*)", text)
    assert lines
    for line in lines:
        build_parser().parse_args(shlex.split(line))


def test_the_probe_of_the_workflow_has_these_options(kit: Path) -> None:
    (line,) = (step["run"] for step in steps("probe") if "probe.py" in step.get("run", ""))
    program = (kit / "probe.py").read_text("utf-8")
    options = re.findall(r" (--?[a-z]+)", line)
    assert options == ["--directml", "-o"]
    assert all(f'"{option}"' in program for option in options)


def test_no_library_of_microsoft_is_in_the_repository() -> None:
    tracked = [path for path in (ROOT / "tests" / "conformance").rglob("*") if path.is_file()]
    assert not [path for path in tracked if path.suffix in (".dll", ".so", ".exe", ".lib")]
    assert not [path for path in tracked if path.read_bytes()[:2] == b"MZ"]
