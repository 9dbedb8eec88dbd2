"""`check` finds each planted difference and no other."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dmlsplit.directml.levels import FeatureLevel
from dmlsplit.errors import InvalidArgumentError
from tests.conformance.case import expected
from tests.conformance.cases import all_cases
from tests.conformance.check import Comparison, Difference, compare
from tests.conformance.conftest import Observe
from tests.conformance.observation import read_observation
from tests.conformance.stand_in.build import edited, observed


def found(path: Path) -> Comparison:
    return compare(read_observation(path))


def said(differences: Sequence[Difference]) -> set[tuple[str, str]]:
    return {(each.kind, each.case) for each in differences}


# Two of the levels at which Split changes; other tests here have the newest.
DEFAULT = {0x1000, 0x4100}
EVERY_LEVEL = [
    pytest.param(level, marks=[] if level in DEFAULT else [pytest.mark.slow], id=str(level))
    for level in FeatureLevel
]


@pytest.mark.parametrize("level", EVERY_LEVEL)
def test_a_library_with_the_rules_agrees_at_every_level(observe: Observe, level: int) -> None:
    comparison = found(observe(level=level))
    assert comparison.differences == ()
    assert comparison.not_asked == ()
    assert comparison.agrees
    assert comparison.observation.level == level


# The differences that each switch of the stand-in causes; nothing else may be reported.
DWORD = ["rule-TENSOR-SIZE-DWORD-input", "rule-TENSOR-SIZE-DWORD-output"]
OVERLAP = ["rule-TENSOR-OUTPUT-OVERLAP-zero", "rule-TENSOR-OUTPUT-OVERLAP-nested"]
AXIS = ["rule-SPLIT-AXIS-RANGE", "rule-SPLIT-AXIS-RANGE-minus-one"]
SUMS = ["rule-SPLIT-AXIS-SUM-less", "rule-SPLIT-AXIS-SUM-more"]
EARLY = "FLOAT32 FLOAT16 UINT32 UINT16 INT32 INT16".split()
RANK_5 = [f"table-{kind}-5" for kind in EARLY]
WIDE = [f"table-{kind}-{rank}" for kind in ("FLOAT64", "UINT64", "INT64") for rank in range(1, 9)]
WIDE += [f"bytes-type-{kind}" for kind in ("FLOAT64", "UINT64", "INT64")] + ["bytes-bits-FLOAT64"]
FOUR_BITS = [f"table-{kind}-{rank}" for kind in ("UINT4", "INT4") for rank in range(1, 9)]
F64 = [name for name in WIDE if "FLOAT64" in name]
MINIMUMS = [f"minimum level 0x{level:X}" for level in FeatureLevel if level > 0x5000]


@pytest.mark.parametrize(
    ("switches", "level", "kind", "cases"),
    [
        ("any-sum", 0x6400, "verdict", SUMS),
        pytest.param("any-total", 0x6400, "verdict", DWORD, marks=pytest.mark.slow),
        ("rank-5", 0x2000, "verdict", [*RANK_5, *(f"bytes-axis-5-{axis}" for axis in range(5))]),
        ("late-dword", 0x6400, "stage", DWORD),
        ("unsupported-type", 0x4000, "hresult", WIDE + FOUR_BITS),
        ("crash-axis", 0x6400, "crash", AXIS),
        ("take-overlap", 0x6400, "policy", OVERLAP),
        ("no-float64", 0x6400, "device", F64),
        ("cap-5_0", 0x6400, "level", MINIMUMS),
        pytest.param(
            "crash-level", 0x6400, "level", ["minimum level 0x3100"], marks=pytest.mark.slow
        ),
    ],
)
def test_only_the_planted_differences_are_found(
    observe: Observe, switches: str, level: int, kind: str, cases: list[str]
) -> None:
    comparison = found(observe(switches, level=level))
    assert said(comparison.differences) == {(kind, case) for case in cases}
    assert comparison.agrees == (kind in ("policy", "device"))


def test_differences_of_several_kinds_are_kept_apart(observe: Observe) -> None:
    comparison = found(observe("any-sum", "take-overlap", "late-dword", "hang-count",
                               arguments=["--timeout", "1"]))  # fmt: skip
    counts = Counter(each.kind for each in comparison.differences)
    assert counts == {"verdict": 2, "policy": 2, "stage": 2, "crash": 1}
    (hung,) = (each for each in comparison.differences if each.kind == "crash")
    assert (hung.case, hung.observed) == ("rule-SPLIT-OUTPUT-COUNT", "hung")
    assert not comparison.agrees


@pytest.mark.parametrize(("switch", "count"), [("crash-later", 2), ("remove-count", 1)])
def test_a_crash_or_a_removal_that_earlier_cases_caused_counts_as_a_crash(
    observe: Observe, switch: str, count: int
) -> None:
    differences = found(observe(switch)).differences
    assert [each.kind for each in differences] == ["crash"] * count
    ended = "crashed" if count == 2 else "removed"
    assert all(f"; {ended} after other cases" in each.observed for each in differences)


def test_a_newer_library_is_compared_with_the_newest_known_level_and_cases(
    observe: Observe,
) -> None:
    path = observe()
    cases = [case for case in observed(path)["cases"] if case["id"] != "limit-elements"]
    comparison = found(edited(path, level=0x7000, minimum_levels=[], cases=cases))
    assert (str(comparison.observation.level), comparison.agrees) == ("6_4", True)
    assert comparison.not_asked == ("limit-elements",)


# ---- results of DxDispatch ---------------------------------------------------------------------

CASES = {case.id: case for case in all_cases()}
Cases = dict[str, dict[str, Any]]  # of an observation, by id
Dispatch = Callable[[Callable[[Cases], None]], Comparison]


@pytest.fixture
def dispatched(observe: Observe, kit: Path) -> Dispatch:
    """Compare an observation in which DxDispatch gave the expected results, with one change."""

    def compared(change: Callable[[Cases], None]) -> Comparison:
        path = observe()
        cases = {case["id"]: case for case in observed(path)["cases"]}
        for case in json.loads((kit / "cases.json").read_text())["cases"]:
            if (kit / "dxdispatch" / f"{case['id']}.json").exists():
                cases.setdefault(case["id"], case).update(case | {"dispatched": right(case)})
        change(cases)
        return found(edited(path, cases=list(cases.values())))

    return compared


def right(case: dict[str, Any]) -> dict[str, Any]:
    outcome = expected(CASES[case["id"]], max(FeatureLevel)).verdict
    outputs = [{"sha256": each, "kept_behind": True} for each in case.get("output_sha256", ())]
    return {"outcome": outcome, "exit": 0 if outcome == "accepted" else 1, "outputs": outputs}


def test_correct_bytes_and_bindings_are_no_difference(dispatched: Dispatch) -> None:
    comparison = dispatched(lambda _: None)
    assert comparison.differences == ()
    assert sum(answer.dispatched is not None for answer in comparison.observation.answers) > 230


@pytest.mark.parametrize(
    "change",
    [
        lambda outputs: outputs[1].update(sha256="0" * 64),
        lambda outputs: outputs[1].update(kept_behind=False),
        lambda outputs: outputs.__setitem__(1, None),
    ],
    ids=["other bytes", "written behind", "unwritten"],
)
def test_wrong_bytes_are_a_difference(dispatched: Dispatch, change: Any) -> None:
    comparison = dispatched(lambda cases: change(cases["bytes-type-INT8"]["dispatched"]["outputs"]))
    assert said(comparison.differences) == {("bytes", "bytes-type-INT8 OutputTensors[1]")}
    assert not comparison.agrees


@pytest.mark.parametrize(
    ("model", "change", "kind"),
    [
        ("bind-in-place", {"outcome": "accepted", "exit": 0}, "verdict"),
        ("bind-swapped", {"outcome": "refused", "exit": 0x80070057}, "verdict"),
        ("bind-overlap", {"outcome": "crashed", "exit": 0xC0000005}, "crash"),
        ("rule-TENSOR-OUTPUT-OVERLAP-zero", {"outcome": "accepted", "exit": 0}, "policy"),
    ],
)
def test_an_unexpected_outcome_of_a_model_is_a_difference_of_its_kind(
    dispatched: Dispatch, model: str, change: dict[str, Any], kind: str
) -> None:
    comparison = dispatched(lambda cases: cases[model]["dispatched"].update(change))
    assert said(comparison.differences) == {(kind, f"{model}.json")}


# ---- files that are not observations -----------------------------------------------------------

X = {"DataType": "FLOAT32", "Sizes": [2]}
SPLIT = {"id": "x", "desc": {"InputTensor": X, "OutputTensors": [X], "Axis": 0}}
WIDE_X = X | {"Sizes": [1 << 20]}
LARGE = {"id": "y", "desc": {"InputTensor": WIDE_X, "OutputTensors": [WIDE_X], "Axis": 0}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "schema is 2; it must be 1, which this dmlsplit reads"),
        ({"cases": []}, "cases is empty"),
        ({"level": 5}, "level is 5; it must be an integer from 4096 to 4294967295"),
        ({"debug": 1}, "debug is 1; it must be true or false"),
        ({"data_types": {"BFLOAT16": True}}, "data_types has 'BFLOAT16', which is not a data type"),
        ({"cases": [{"id": "x"}]}, r"cases\[0\] lacks 'desc'"),
        (
            {"cases": [SPLIT | {"dispatched": {"outputs": [], "outcome": "fine"}}]},
            r"cases\[0\].dispatched.outcome is 'fine'; it must be one of accepted, refused",
        ),
        (
            {"cases": [SPLIT | {"dispatched": {"outputs": [None] * 2, "outcome": "accepted"}}]},
            r"cases\[0\].dispatched.outputs must have 1 entries, or none",
        ),
        (
            {"cases": [LARGE | {"dispatched": {"outputs": [None], "outcome": "accepted"}}]},
            r"cases\[0\].dispatched.outputs must be empty, because the case is larger",
        ),
        (
            {"minimum_levels": [{"asked": 1, "hresult": "ok", "level": None}]},
            r"minimum_levels\[0\].hresult is 'ok'; it must be an HRESULT such as 0x80070057",
        ),
    ],
)
def test_an_error_names_the_invalid_field_of_a_file(
    observe: Observe, change: dict[str, Any], message: str
) -> None:
    path = edited(observe(), **change)
    with pytest.raises(InvalidArgumentError, match=f"{path}: {message}"):
        read_observation(path)


@pytest.mark.parametrize(
    "placement",
    [
        {"buffers": [1 << 40], "input_tensor": {"buffer": 0, "offset": 0}, "output_tensors": []},
        {"buffers": [8], "input_tensor": {"buffer": 1, "offset": 0}, "output_tensors": []},
        {"buffers": [8], "input_tensor": {"buffer": 0, "offset": 9}, "output_tensors": []},
        {"buffers": [8, 8], "input_tensor": {"buffer": 0, "offset": 0}, "output_tensors": []},
    ],
)
def test_a_placement_that_is_too_large_or_outside_its_buffers_is_refused(
    dispatched: Dispatch, placement: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgumentError, match=r"placement\."):
        dispatched(lambda cases: cases["bind-swapped"].update(placement=placement))


def test_a_case_of_an_integer_type_may_have_values_of_any_bits(dispatched: Dispatch) -> None:
    assert dispatched(lambda cases: cases["bytes-type-INT8"].update(values="bits")).agrees
