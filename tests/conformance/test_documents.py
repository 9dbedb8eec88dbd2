"""The documentation page agrees with the kit."""

import re
from pathlib import Path

from tests.conformance.cases import PAGE, all_cases
from tests.conformance.check import APART, KINDS


def table(after: str) -> list[list[str]]:
    rows = re.findall(r"^\| (.*) \|$", PAGE.partition(after)[2], re.MULTILINE)
    return [row.split(" | ") for row in rows]


def test_every_kind_of_difference_is_explained() -> None:
    rows = {row[0]: row for row in table("## What each outcome means")[: len(KINDS) + 1]}
    assert set(rows) == {"difference", *KINDS}
    assert {kind for kind in KINDS if "does not count" in rows[kind][2]} == set(APART)


def test_every_kind_of_case_is_explained() -> None:
    shown = {row[0].strip("`").partition("-")[0] for row in table("## The cases")[1:6]}
    assert shown == {case.id.partition("-")[0] for case in all_cases()}


def test_no_library_of_microsoft_is_in_the_repository() -> None:
    tracked = [path for path in Path(__file__).parent.rglob("*") if path.is_file()]
    assert not [path for path in tracked if path.suffix in (".dll", ".so", ".exe", ".lib")]
    assert not [path for path in tracked if path.read_bytes()[:2] == b"MZ"]
