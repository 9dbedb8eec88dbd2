"""The page of a rule, in Markdown that is also read in a terminal."""

import re

import pytest

from dmlsplit.lint.rule_page import example_of, rule_page
from dmlsplit.lint.rules import RULES
from tests.support.each import each


def plain(text: str) -> str:
    """One line, without what marks options and links."""
    return " ".join(re.sub(r"[`<>]", "", text).split())


@each(name=RULES)
def test_a_page_has_every_field_of_its_rule_in_the_order_of_a_reader(name: str) -> None:
    rule, example, text = RULES[name], example_of(RULES[name]), plain(rule_page(RULES[name]))
    assert text.startswith(f"# {name} ")
    source = rule.source.removeprefix("dmlsplit; ")
    parts = [rule.sentence, rule.consequence, source, example.broken, example.message]
    parts += [f"**Fix:** {rule.hint}.", example.kept]
    places = [text.index(plain(part)) for part in parts if part]
    assert places == sorted(places)
    assert text.count(plain(example.message)) == 1


@each(name=RULES)
def test_a_page_has_one_title_closes_its_fences_and_its_programs_fit_80_columns(name: str) -> None:
    text = rule_page(RULES[name])
    fences = re.findall(r"^```(.*)$", text, re.MULTILINE)
    assert set(fences[::2]) <= {"python", "text"}
    assert set(fences[1::2]) == {""}
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    prose = re.sub(r"^`[^`\n]+`$", "", prose, count=1, flags=re.MULTILINE)  # the report
    assert re.findall(r"^# .*$", prose, re.MULTILINE) == [f"# {name}"]
    # Two hyphens would be shown as a dash, and a bare < would start HTML.
    assert not re.search(r"(?<!`)--[a-z]", prose)
    assert not re.search(r"<(?!https://)", prose)
    programs = "".join(re.findall(r"```.*?```", text, flags=re.DOTALL))
    assert all(len(line) <= 80 for line in programs.splitlines())


SOURCES = {
    "documented": r"https://(learn\.microsoft\.com|onnx\.ai|onnxruntime\.ai)/|https://github\.com/\S+\.md(#|$)",
    "source": r"https://github\.com/microsoft/onnxruntime/(blob/main/\S+\.(cc|cpp|h)|pull/\d+)$",
    "reported": r"https://github\.com/microsoft/onnxruntime/issues/\d+$",
    "policy": "dmlsplit; ",
}


@each(name=RULES)
def test_a_source_is_of_the_kind_that_the_basis_names(name: str) -> None:
    assert re.match(SOURCES[RULES[name].basis], RULES[name].source)


INVALID = "80070057 (E_INVALIDARG)"
AT_RUN_TIME = {
    "DML-SPLIT-AXIS-SUM": f'the operator fails with {INVALID}, "The parameter is incorrect".',
    "ORT-FEATURE-LEVEL": "the device fails with 887A0004 (DXGI_ERROR_UNSUPPORTED).",
    "DML-BIND-SIZE": "the next call fails with 887A0005 (DXGI_ERROR_DEVICE_REMOVED). dmlsplit "
    "raises InvalidArgumentError before that.",
    "DML-TENSOR-OUTPUT-OVERLAP": f"reports {INVALID}. DirectML's documents do not say",
    "DML-ARRAY-SHAPE": f"reports {INVALID}. DirectML cannot meet this case: it has no arrays.",
    "DML-BIND-KIND": f"reports {INVALID}. DirectML cannot meet this case: a C binding is a",
    "ORT-NUM-OUTPUTS": "ONNX Runtime does not load the model (seen with 1.15 to 1.32).",
}


@pytest.mark.parametrize("name", AT_RUN_TIME)
def test_a_page_describes_the_effect_of_its_rule_at_run_time(name: str) -> None:
    explanation = rule_page(RULES[name]).split("\n\n")[2]
    assert AT_RUN_TIME[name] in explanation


@each(name=RULES)
def test_a_rule_has_a_consequence_exactly_if_it_has_no_hresult(name: str) -> None:
    assert bool(RULES[name].consequence) == (RULES[name].hresult is None)


def test_a_rule_that_only_warns_is_not_called_rejected() -> None:
    assert "\nRejected:\n" in rule_page(RULES["ORT-OPERATOR"])
    assert "\nReported:\n" in rule_page(RULES["SPLIT-DEFECT-RECOMBINED"])


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("DML-SPLIT-AXIS-SUM", "Source: [Microsoft, DML_SPLIT_OPERATOR_DESC]("),
        ("DML-BIND-COUNT", "Source: [Microsoft, idmlbindingtable-bindoutputs]("),
        ("SPLIT-NODE-INVALID", "Source: [ONNX, Split]("),
        ("ORT-EMPTY-PIECE", "Source: [the code of ONNX Runtime, ExecutionProvider.cpp]("),
        ("SPLIT-DEFECT-RECOMBINED", "Reported by users: [onnxruntime 32146]("),
        ("SPLIT-DEFECT-UNCONNECTED", "Source: [Releases.md]("),
        ("DML-BIND-KIND", "The rule is a choice of dmlsplit (a policy): DirectML binds"),
    ],
)
def test_a_source_is_named_by_its_publisher(name: str, source: str) -> None:
    assert source in rule_page(RULES[name])


def test_a_rule_about_levels_names_the_command_that_lists_them() -> None:
    rule_names = {name for name in RULES if "`dmlsplit levels`" in rule_page(RULES[name])}
    assert rule_names == {
        "DML-LEVEL-DATA-TYPE",
        "DML-LEVEL-DIMENSION-COUNT",
        "ORT-FEATURE-LEVEL",
        "ORT-OPSET",
        "ORT-IR-VERSION",
    }


@each(name=["DML-LEVEL-DATA-TYPE", "DML-LEVEL-DIMENSION-COUNT"])
def test_what_a_level_rejects_in_models_is_shown_with_a_model(name: str) -> None:
    assert "# dmlsplit validate model.onnx --feature-level " in rule_page(RULES[name])


@each(name=RULES)
def test_a_page_is_small(name: str) -> None:
    text = re.sub(r"```.*?```|\(http[^)]*\)", "", rule_page(RULES[name]), flags=re.DOTALL)
    assert len(text.split()) < 160


def test_a_level_that_a_model_may_avoid_has_the_command_that_rewrites_it() -> None:
    page = rule_page(RULES["DML-LEVEL-DIMENSION-COUNT"])
    line = "dmlsplit validate model.onnx --feature-level 2_0 --write-fixed fixed.onnx"
    assert f"\n{line}\n" in page
    assert page.index(line) < page.index("Use instead:")
