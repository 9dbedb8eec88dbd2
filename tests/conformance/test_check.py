"""`check` finds each planted difference and no other, and refuses what is not an observation."""

from pathlib import Path
from typing import Any

import pytest

from dmlsplit.directml.levels import FeatureLevel
from dmlsplit.errors import InvalidArgumentError
from tests.conformance.__main__ import main
from tests.conformance.check import compare
from tests.conformance.conftest import Observe, edited, observed
from tests.support.fixtures import Capsys

FOLDER = Path(__file__).with_name("observations")
STORED = sorted(FOLDER.glob("*.json"))
LEVELS = [  # by default, two at which Split changes
    pytest.param(level, marks=[] if level in (0x1000, 0x4100) else [pytest.mark.slow])
    for level in FeatureLevel
]


def test_the_rules_agree_with_every_stored_observation() -> None:
    for path in STORED:
        comparison = compare(path)
        assert not comparison.is_stand_in, path
        assert comparison.agrees, str(comparison)
    assert {path.name for path in FOLDER.iterdir()} == {"README.md", *(p.name for p in STORED)}
    text = (FOLDER / "README.md").read_text("utf-8")
    assert ("There are no files yet" in text) == (not STORED)


@pytest.mark.parametrize("level", LEVELS)
def test_a_library_with_the_rules_agrees_at_every_level(observe: Observe, level: int) -> None:
    comparison = compare(observe(level=level))
    assert comparison[2:] == ((), ())
    assert f"A STAND-IN, not DirectML, 1.2.3.4 of level {FeatureLevel(level)} " in str(comparison)


DWORD = ["rule-TENSOR-SIZE-DWORD-input", "rule-TENSOR-SIZE-DWORD-output"]
OVERLAP = ["rule-TENSOR-OUTPUT-OVERLAP-zero", "rule-TENSOR-OUTPUT-OVERLAP-nested"]
AXIS = ["rule-SPLIT-AXIS-RANGE", "rule-SPLIT-AXIS-RANGE-minus-one"]
SUMS = ["rule-SPLIT-AXIS-SUM-less", "rule-SPLIT-AXIS-SUM-more"]
EARLY = "FLOAT32 FLOAT16 UINT32 UINT16 INT32 INT16".split()
NEW = "FLOAT64 UINT64 INT64 UINT4 INT4".split()
F64 = [f"table-FLOAT64-{rank}" for rank in range(1, 9)]
LATE = [f"table-{kind}-{rank}" for kind in NEW for rank in range(1, 9)]


@pytest.mark.parametrize(
    ("switches", "level", "kind", "cases"),
    [
        ("any-sum", 0x6400, "verdict", SUMS),
        ("rank-5", 0x2000, "verdict", [f"table-{kind}-5" for kind in EARLY]),
        ("late-dword", 0x6400, "stage", DWORD),
        ("unsupported-type", 0x4000, "hresult", LATE),
        ("crash-axis", 0x6400, "crash", AXIS),
        ("take-overlap", 0x6400, "policy", OVERLAP),
        ("no-float64", 0x6400, "device", F64),
    ],
)
def test_only_the_planted_differences_are_found(
    observe: Observe, switches: str, level: int, kind: str, cases: list[str]
) -> None:
    comparison = compare(observe(switches, level=level))
    planted_differences = {
        (difference.kind, difference.case) for difference in comparison.differences
    }
    assert planted_differences == {(kind, case) for case in cases}
    assert comparison.agrees == (kind in ("policy", "device"))


@pytest.mark.parametrize(
    ("switch", "ending"), [("crash-later", "crashed"), ("remove-count", "removed")]
)
def test_a_crash_or_a_removal_that_earlier_cases_caused_counts_as_a_crash(
    observe: Observe, switch: str, ending: str
) -> None:
    (difference,) = compare(observe(switch)).differences
    assert difference.kind == "crash"
    assert f"; {ending} after other cases" in difference.observed


def test_a_newer_library_is_compared_with_the_newest_known_level_and_cases(
    observe: Observe,
) -> None:
    path = observe()
    cases = [case for case in observed(path)["cases"] if case["id"] != "limit-elements"]
    comparison = compare(edited(path, level=0x7000, cases=cases))
    assert (comparison.missing, comparison.agrees) == (("limit-elements",), True)
    assert f"of level {max(FeatureLevel)} on Stand-in Render Driver" in comparison.subject


def test_names_from_another_machine_cannot_add_lines_or_control_characters(
    observe: Observe,
) -> None:
    path = observe("any-sum")
    cases = [dict(case, id="x\n| y |") for case in observed(path)["cases"]]
    text = str(compare(edited(path, adapter="\x1b[31mred", cases=cases)))
    assert "\x1b" not in text
    assert "\n| y |" not in text


def test_a_difference_makes_check_exit_with_1(observe: Observe, capsys: Capsys) -> None:
    for switch, status in (("take-overlap", 0), ("any-sum", 1)):
        path = observe(switch)
        assert main(["check", str(path)]) == status
        assert capsys.readouterr() == (f"{compare(path)}\n", "")
    assert main(["check", "missing.json"]) == 2
    assert main(["write", str(path)]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: missing.json: cannot be read: No such file or directory",
        f"error: {path}: File exists",
    ]


TENSOR = {"DataType": "FLOAT32", "Sizes": [2]}
SPLIT = {"id": "x", "desc": {"InputTensor": TENSOR, "OutputTensors": [TENSOR], "Axis": 0}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 1}, "schema is 1; it must be 2, which this dmlsplit reads"),
        ({"level": 5}, "level is 5; it must be an integer from 4096 to 4294967295"),
        ({"date": 5}, "date is 5"),
        ({"cases": [{"id": "x"}]}, r"cases\[0\] lacks 'desc'"),
        (
            {"cases": [SPLIT | {"outcome": "fine"}]},
            r"cases\[0\].outcome is 'fine'; it must be one of accepted, refused",
        ),
        (
            {"cases": [SPLIT | {"outcome": "refused", "hresult": "ok"}]},
            r"cases\[0\].hresult is 'ok'; it must be an HRESULT such as 0x80070057",
        ),
    ],
)
def test_an_error_names_the_invalid_field_of_a_file(
    observe: Observe, change: dict[str, Any], message: str
) -> None:
    path = edited(observe(), **change)
    with pytest.raises(InvalidArgumentError, match=f"{path}: {message}"):
        compare(path)
