"""The cases: every rule alone, the whole table of types and ranks, and values at limits."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from dmlsplit.directml.levels import FeatureLevel
from dmlsplit.directml.rules import RULES
from dmlsplit.directml.validation import report_at
from dmlsplit.frontends.dxdispatch import read_descriptor
from tests.conformance.cases import NOT_ASKED, Case, all_cases, descriptor, write_kit
from tests.conformance.check import APART, KINDS
from tests.conformance.conftest import observed
from tests.support.command import ROOT

PAGE = (ROOT / "docs" / "conformance.md").read_text("utf-8")
NEWEST = max(FeatureLevel)


def of(prefix: str) -> list[Case]:
    return [case for case in all_cases() if case.id.startswith(prefix)]


def test_every_rule_that_a_c_program_can_break_is_broken_alone() -> None:
    reports = [report_at(case.desc, NEWEST).rule_ids for case in (*of("rule-"), *of("table-"))]
    broken = {ids[0] for ids in reports if len(ids) == 1}
    # At the newest level every dimension count from 1 to 8 is accepted.
    (five,) = of("table-FLOAT32-5")
    broken |= set(report_at(five.desc, FeatureLevel.LEVEL_2_0).rule_ids)
    assert broken == set(RULES) - set(NOT_ASKED)


@pytest.mark.parametrize("case", of("limit-"), ids=lambda case: case.id)
def test_a_value_at_its_limit_is_accepted_at_every_level(case: Case) -> None:
    assert all(report_at(case.desc, level).ok for level in FeatureLevel)


def test_the_kit_has_each_case_once_with_every_field(kit: Path) -> None:
    assert {path.name for path in kit.iterdir()} == {"cases.json", "probe.py"}
    case_file = observed(kit / "cases.json")
    assert case_file["levels"] == list(map(int, FeatureLevel))
    assert [case["id"] for case in case_file["cases"]] == [case.id for case in all_cases()]
    assert len({case.id for case in all_cases()}) == len(all_cases()) > 160
    for case, record in zip(all_cases(), case_file["cases"], strict=True):
        assert read_descriptor(record["desc"]) == case.desc
        assert record["desc"] == descriptor(case.desc)


def test_huge_tensors_are_created_but_not_compiled(kit: Path) -> None:
    kit_cases = observed(kit / "cases.json")["cases"]
    assert {case["id"] for case in kit_cases if case["last_stage"] == "create"} == {
        "rule-TENSOR-ELEMENT-COUNT",
        "rule-TENSOR-SIZE-WRAP",
        "limit-total-huge",
        "limit-elements",
        "limit-index",
    }


def test_the_kit_overwrites_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError):
        write_kit(tmp_path)


def test_the_page_explains_every_kind_of_case_and_of_difference() -> None:
    def table(after: str) -> list[list[str]]:
        text = PAGE.partition(after)[2].partition("\n\n#")[0]
        return [row.split(" | ") for row in re.findall(r"^\| (.*) \|$", text, re.MULTILINE)]

    rows = {row[0]: row for row in table("## What each outcome means")}
    assert set(rows) == {"difference", *KINDS}
    assert {kind for kind in KINDS if "does not count" in rows[kind][2]} == set(APART)
    page_kinds = {row[0].strip("`").partition("-")[0] for row in table("## The cases")[1:]}
    assert page_kinds == {case.id.partition("-")[0] for case in all_cases()}


def test_the_questions_of_the_page_name_cases_that_exist() -> None:
    rows = re.findall(r"^\| \d+ \| .* \| (.*) \|$", PAGE, re.MULTILINE)
    patterns = [pattern for row in rows for pattern in re.findall(r"`(.*?)`", row)]
    assert len(rows) == 7
    for pattern in patterns:
        assert any(fnmatchcase(case.id, pattern) for case in all_cases()), pattern


def test_no_library_of_microsoft_is_in_the_repository() -> None:
    tracked = [path for path in Path(__file__).parent.rglob("*") if path.is_file()]
    assert not [path for path in tracked if path.suffix in (".dll", ".so", ".exe", ".lib")]
    assert not [path for path in tracked if path.read_bytes()[:2] == b"MZ"]
