"""The cases: every rule alone, the whole table, limits, bytes and bindings."""

import re
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from dmlsplit.directml.levels import FeatureLevel
from dmlsplit.directml.rules import RULES
from tests.conformance.case import Case, expected, input_bytes
from tests.conformance.cases import NOT_ASKED, PAGE, QUESTIONS, Question, all_cases
from tests.conformance.check import APART, KINDS

CASES = {case.id: case for case in all_cases()}
NEWEST = max(FeatureLevel)


def of(prefix: str) -> list[Case]:
    return [case for case in all_cases() if case.id.startswith(prefix)]


def test_ids_are_unique_and_name_files() -> None:
    assert len(CASES) == len(all_cases())
    assert all(name.replace("-", "").replace("_", "").isalnum() for name in CASES)


def test_every_rule_that_a_c_program_can_break_is_broken_alone() -> None:
    alone = {expected(case, NEWEST).rules for case in (*of("rule-"), *of("bind-"), *of("table-"))}
    broken = {rules[0] for rules in alone if len(rules) == 1}
    # At the newest level every dimension count from 1 to 8 is accepted.
    broken |= set(expected(CASES["table-FLOAT32-5"], FeatureLevel.LEVEL_2_0).rules)
    assert broken == set(RULES) - set(NOT_ASKED)


@pytest.mark.parametrize("case", of("limit-"), ids=lambda case: case.id)
def test_a_value_at_its_limit_is_accepted_at_every_level(case: Case) -> None:
    assert {expected(case, level).verdict for level in FeatureLevel} == {"accepted"}


def test_an_invalid_binding_removes_the_device() -> None:
    """test_dispatch.py compares the rules of every binding with those of a real binding."""
    now = expected(CASES["bind-in-place"], NEWEST)
    assert (now.rules, now.stage, now.hresult) == (("DML-BIND-IN-PLACE",), "bind", 0x887A0005)


def elements(case: Case) -> np.ndarray:
    kind = f"<{case.desc.input_tensor.data_type.numpy_name}"
    return np.frombuffer(input_bytes(case), kind)


@pytest.mark.parametrize("case", of("bytes-"), ids=lambda case: case.id)
def test_an_input_fills_its_buffer_with_values_that_differ(case: Case) -> None:
    assert expected(case, NEWEST).verdict == "accepted"
    assert len(input_bytes(case)) == case.desc.input_tensor.total_tensor_size_in_bytes
    values = elements(case)
    if values.itemsize > 1:
        bits = values.view(f"u{values.itemsize}")
        assert len(np.unique(bits)) > 0.95 * min(len(bits), 1000)


def test_inputs_are_the_same_every_time() -> None:
    digest = sha256(b"".join(input_bytes(case) for case in of("bytes-"))).hexdigest()
    assert digest[:16] == "9ca0e387210d3160"


@pytest.mark.parametrize("name", ["FLOAT16", "FLOAT32", "FLOAT64"])
def test_inputs_of_any_bits_include_nans_denormals_and_negative_zero(name: str) -> None:
    first, second, denormal, zero, infinite = elements(CASES[f"bytes-bits-{name}"])[:5]
    assert np.isnan([first, second]).all()
    assert 0 < denormal < np.finfo(denormal.dtype).smallest_normal
    assert (zero, np.signbit(zero), infinite) == (0, True, -np.inf)
    assert np.isfinite(elements(CASES[f"bytes-type-{name}"])).all()


def test_ten_questions_name_the_cases_that_answer_them() -> None:
    assert len(QUESTIONS) == 10
    for question in QUESTIONS:
        for pattern in question.patterns:
            assert list(Question(question.text, (pattern,)).cases), pattern
    assert [question.text for question in QUESTIONS if not question.patterns] == [
        "Does a device with a low minimumFeatureLevel still have the DLL's own level?"
    ]


# ---- docs/conformance.md, whose questions are those of the kit ----------------------------------


def table(after: str) -> list[list[str]]:
    rows = re.findall(r"^\| (.*) \|$", PAGE.partition(after)[2], re.MULTILINE)
    return [row.split(" | ") for row in rows]


def test_every_kind_of_difference_is_explained() -> None:
    rows = {row[0]: row for row in table("## What each outcome means")[: len(KINDS) + 1]}
    assert set(rows) == {"difference", *KINDS}
    assert {kind for kind in KINDS if "does not count" in rows[kind][2]} == set(APART)


def test_the_page_explains_every_kind_of_case() -> None:
    shown = {row[0].strip("`").partition("-")[0] for row in table("## The cases")[1:6]}
    assert shown == {case.id.partition("-")[0] for case in all_cases()}


def test_no_library_of_microsoft_is_in_the_repository() -> None:
    tracked = [path for path in Path(__file__).parent.rglob("*") if path.is_file()]
    assert not [path for path in tracked if path.suffix in (".dll", ".so", ".exe", ".lib")]
    assert not [path for path in tracked if path.read_bytes()[:2] == b"MZ"]
