"""The documentation page agrees with the kit."""

import re
from pathlib import Path

from tests.conformance.cases import QUESTIONS, all_cases
from tests.conformance.check import APART, KINDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "conformance.md").read_text("utf-8")


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
    shown = {row[0].strip("`").partition("-")[0] for row in table("## The cases")[1:6]}
    assert shown == {case.id.partition("-")[0] for case in all_cases()}


def test_no_library_of_microsoft_is_in_the_repository() -> None:
    tracked = [path for path in (ROOT / "tests" / "conformance").rglob("*") if path.is_file()]
    assert not [path for path in tracked if path.suffix in (".dll", ".so", ".exe", ".lib")]
    assert not [path for path in tracked if path.read_bytes()[:2] == b"MZ"]
