"""Findings in groups, and the text that shows a group like a compiler."""

import json
import pickle
from collections import Counter

import pytest

import dmlsplit as dml
from dmlsplit.frontends import Known, SplitSite, Unknown
from dmlsplit.lint.check import assess
from dmlsplit.lint.report.baseline import baseline_json
from dmlsplit.lint.report.excerpt import excerpt
from dmlsplit.lint.report.finding_groups import FindingGroup, grouped
from dmlsplit.lint.report.findings import findings
from dmlsplit.lint.report.fix_command import fix_command
from dmlsplit.lint.report.github import github_report
from dmlsplit.lint.report.sarif import sarif_report
from dmlsplit.lint.report.text import text_report
from dmlsplit.lint.target import resolve_target
from dmlsplit.lint.verdict import FAILING, Assessment, Outcome
from dmlsplit.messages import Fix, Note, commands, cut_middle, without_commands, wrapped_at
from dmlsplit.models.site import Cause
from tests.support.sites import split_site

OLD = resolve_target(windows="19041")
ORT = resolve_target(ort="1.24")


def split(kind: str, shape: tuple[int, ...], pieces: tuple[int, ...]) -> Known:
    desc = dml.SplitOperatorDesc.from_sizes(dml.TensorDesc(kind, shape), axis=1, sizes=pieces)
    return Known(desc, pieces)


def site(name: str, state: Known | Unknown, **fields: object) -> SplitSite:
    """A Split-18 of FLOAT[2,6] along axis 1, unless fields say otherwise."""
    defaults = {"element_type": "FLOAT", "shape": (2, 6), "axis": 1, "opset": 18}
    names = {"graph": "main_graph", "node": name, "operator": "Split-18"}
    return split_site(**names, state=state, **defaults | fields)


def groups_of(assessment: Assessment) -> list[FindingGroup]:
    return grouped(findings(assessment))


LAYERS = [site(f"/layer.{number}/Split", split("FLOAT32", (2, 6), (2, 4))) for number in range(24)]
# A gated linear unit, whose numbers may be wrong.
GLU = site("glu", split("FLOAT32", (1, 2, 1, 6), (1, 1)), recombined_by=("Mul 'gate'",))


def test_equal_failures_are_one_group_with_all_locations() -> None:
    (group,) = groups_of(assess(LAYERS, OLD))
    assert group.severity == "error"
    assert [reason.rule for reason in group.statement.reasons] == ["DML-LEVEL-DIMENSION-COUNT"]
    assert [location.name for location in group.locations] == [
        f"m.onnx main_graph/layer.{number}/Split" for number in range(24)
    ]


def test_the_shape_of_a_split_does_not_make_another_group_but_its_rules_do() -> None:
    wider = site("wider", split("FLOAT32", (4, 60), (20, 40)))
    typed = site("typed", split("INT8", (2, 6), (2, 4)), element_type="INT8")
    first, second = groups_of(assess([*LAYERS, wider, typed], OLD))
    assert (len(first.locations), len(second.locations)) == (25, 1)


def test_the_worst_groups_come_first() -> None:
    unknown = Unknown("the shape is not known", Cause.UNTRACKED)
    shape = site("shape", split("INT64", (1, 2), (1, 1)), is_shape=True, element_type="INT64")
    bad = site("bad", split("FLOAT32", (1, 2, 3), (2, 0)))
    assessment = assess([shape, GLU, site("late", unknown), bad], ORT)
    assert [
        (group.severity, group.statement.reasons[0].rule) for group in groups_of(assessment)
    ] == [
        ("error", "ORT-EMPTY-PIECE"),
        ("warning", "SPLIT-NODE-UNKNOWN"),
        ("warning", "SPLIT-DEFECT-RECOMBINED"),
        ("note", "ORT-SHAPE"),
    ]


@pytest.mark.parametrize(
    ("failing", "defects_fail", "severities"),
    [
        (FAILING, False, ["warning", "warning"]),
        (FAILING | {Outcome.ON_CPU}, False, ["error", "warning"]),
        (FAILING, True, ["error", "warning"]),
    ],
)
def test_an_error_is_what_makes_the_command_fail(
    failing: frozenset[Outcome], defects_fail: bool, severities: list[str]
) -> None:
    text = site("text", split("FLOAT32", (2, 6), (2, 4)), element_type="STRING")
    assessment = assess([GLU, text], ORT, failing=failing, defects_fail=defects_fail)
    assert [group.severity for group in groups_of(assessment)] == severities
    assert assessment.accepted == ("error" not in severities)


def test_a_command_for_one_node_does_not_make_another_group() -> None:
    sites = [
        site(name, split("FLOAT32", (2, 6), (3, 3)), frozen=("batch", 6), index=number)
        for number, name in enumerate("ab")
    ]
    (group,) = groups_of(assess(sites, ORT))
    assert group.fixes_differ
    assert "--verbose shows those of the others" in text_report(assess(sites, ORT))


def test_a_note_knows_its_fault_its_fix_and_the_commands_of_one_place() -> None:
    command = 'python -c "1"'
    fix = Fix.joined("; or ", ["use another release", Fix(f"convert: {command}", [command])])
    note = Note("too new", fix)
    assert note == 'too new. Fix: use another release; or convert: python -c "1"'
    assert (note.fault, note.fix, commands(note)) == ("too new", fix, (command,))
    assert without_commands(note) == "too new. Fix: use another release; or convert: "
    assert pickle.loads(pickle.dumps(note)).fix.commands == (command,)
    assert (Note("too new"), commands("too new")) == ("too new", ())


# The text.


@pytest.mark.parametrize("kind", ["FLOAT32", "INT8", "INT64"])
def test_24_equal_failures_take_at_most_12_lines(kind: str) -> None:
    name = {"FLOAT32": "FLOAT"}.get(kind, kind)
    sites = [
        site(f"/layer.{number}/Split", split(kind, (2, 6), (2, 4)), element_type=name)
        for number in range(24)
    ]
    lines = text_report(assess(sites, OLD)).splitlines()
    assert len(lines) <= 12
    assert "  --> m.onnx main_graph/layer.0/Split (+23 more)" in lines


def test_the_text_is_a_header_a_place_what_happens_the_fix_and_the_totals() -> None:
    target = resolve_target(windows="19041")
    assert text_report(assess(LAYERS[:2], target)) == (
        "error[DML-LEVEL-DIMENSION-COUNT] InputTensor.DimensionCount is 2; it must be 4\n"
        "    at feature level 2_0\n"
        "  --> m.onnx main_graph/layer.0/Split (+1 more)\n"
        "  Split-18(FLOAT[2,6], axis=1) -> [2,4]\n"
        "  refused, an equivalent exists: 80070057 (E_INVALIDARG)\n"
        "  fix: the command below; or use DirectML 1.4.0 or later, or Windows build 22000\n"
        "\n"
        "Fix: dmlsplit validate m.onnx --write-fixed m.fixed.onnx\n"
        "2 splits in 1 file at Windows build 19041 (feature level 2_0):\n"
        "  2 refused, an equivalent exists. Found 2 errors"
    )


def test_the_verbose_text_has_every_place_with_its_descriptor_and_the_rule() -> None:
    text = text_report(assess(LAYERS, OLD), detail="verbose")
    assert text.count("error[") == 1
    assert "  rule: Below feature level 3_0, tensors must have exactly 4" in text
    for number in range(24):
        assert f"  --> m.onnx main_graph/layer.{number}/Split\n" in text
    # What is equal for all of them appears once.
    assert "layer.22/Split\n  --> m.onnx main_graph/layer.23/Split\n    Split-18: refused" in text
    assert text.count("    SPLIT axis 1: FLOAT32[2,6] -> FLOAT32[2,2], FLOAT32[2,4]\n") == 1
    assert text.count("if your own code calls DirectML, dispatch SPLIT axis 3") == 1


def test_wrong_numbers_stand_in_the_last_line() -> None:
    last = text_report(assess([GLU], ORT)).split("\n\n")[-1]
    assert last.splitlines()[1:] == [
        "  1 runs on DirectML. Found 1 warning; the numbers of 1 split may be wrong",
        "      (SPLIT-DEFECT-RECOMBINED)",
    ]


def test_the_verbose_text_does_not_call_a_split_ok_whose_numbers_may_be_wrong() -> None:
    plain = site("plain", split("FLOAT32", (1, 2, 1, 6), (1, 1)))
    text = text_report(assess([GLU, plain], ORT), detail="verbose")
    warning, ok = text.index("\nwarning runs on DirectML; the numbers may"), text.index("\nok runs")
    assert warning < text.rindex("/glu\n") < ok < text.index("/plain\n")


def test_a_rule_that_a_node_breaks_is_one_finding_in_the_text_the_baseline_and_sarif() -> None:
    """The number of splits stands with their verdict."""
    unknown = site("late", Unknown("the axis is dynamic", Cause.DYNAMIC))
    typed = [
        site(f"n{number}", split("INT64", (2, 6), (2, 4)), element_type="INT64")
        for number in range(3)
    ]
    assessment = assess([*typed, unknown], OLD)
    assert text_report(assessment).endswith(". Found 6 errors, 1 warning")
    assert len(json.loads(baseline_json(assessment))["findings"]) == 6
    results = json.loads(sarif_report(assessment))["runs"][0]["results"]
    assert Counter(result["level"] for result in results) == {"error": 6, "warning": 1}


def test_a_note_beside_an_error_is_a_note_in_sarif() -> None:
    smallest = split("INT64", (2, 6), (2, 4)).descriptor
    state = Unknown("the axis is dynamic", Cause.DYNAMIC, smallest)
    assessment = assess([site("late", state, element_type="INT64")], OLD)
    (group,) = groups_of(assessment)
    results = json.loads(sarif_report(assessment))["runs"][0]["results"]
    levels = sorted((result["ruleId"], result["level"]) for result in results)
    assert levels == sorted((reason.rule, reason.severity) for reason in group.statement.reasons)
    assert ("SPLIT-NODE-UNKNOWN", "note") in levels


@pytest.mark.parametrize(
    ("node", "line"),
    [
        (site("n", split("FLOAT32", (2, 6), (2, 4)), input_name="x"),
         "Split-18(x: FLOAT[2,6], axis=1) -> [2,4]"),
        (site("n", Unknown("?", Cause.DYNAMIC), shape=("n", None), axis=None, element_type=None),
         "Split-18(?[n,?])"),
        (site("n", Known(pieces=(1,) * 9)), "Split-18(FLOAT[2,6], axis=1) -> 9 outputs"),
        (site("n", Known(), input_name="\x1b[1m"), r"Split-18(\x1b[1m: FLOAT[2,6], axis=1)"),
        (site("n", Known(), shape=None), ""),
    ],
)  # fmt: skip
def test_the_node_is_shown_in_one_line(node: SplitSite, line: str) -> None:
    assert excerpt(node) == line


def test_a_long_name_is_cut_in_the_middle_on_a_terminal_and_never_in_a_pipe() -> None:
    long = site("/encoder/" + "block/" * 30 + "Split", split("FLOAT32", (2, 6), (2, 4)))
    assessment = assess([long, *LAYERS], OLD)
    with wrapped_at(60):
        (cut,) = (line for line in lines(assessment, is_cut=True) if "-->" in line)
        (whole,) = (line for line in lines(assessment, is_cut=False) if "-->" in line)
    assert len(cut) == 60
    assert cut.startswith("  --> m.onnx main_graph/en...")
    assert cut.endswith("...ck/block/block/Split (+24 more)")
    assert whole == f"  --> m.onnx main_graph{long.node} (+24 more)"


def lines(assessment: Assessment, is_cut: bool) -> list[str]:
    return text_report(assessment, is_cut=is_cut).splitlines()


@pytest.mark.parametrize(
    ("text", "room", "cut"),
    [("abcdefgh", 8, "abcdefgh"), ("abcdefgh", 7, "ab...gh"), ("abcdefgh", 1, "a...h")],
)
def test_a_cut_keeps_the_beginning_and_the_end(text: str, room: int, cut: str) -> None:
    assert cut_middle(text, room) == cut


def test_github_shows_each_group_once_per_file() -> None:
    other_sites = [site("cut", split("FLOAT32", (2, 6), (2, 4)), file="other.onnx")]
    first, second = github_report(assess([*LAYERS, *other_sites], OLD)).splitlines()
    assert ",file=m.onnx,line=1::m.onnx:main_graph/layer.0/Split: Split-18" in first
    assert "%0Athe same: main_graph/layer.1/Split, main_graph/layer.2/Split, " in first
    assert first.endswith("main_graph/layer.8/Split, ... and 15 more")
    assert ",file=other.onnx,line=1::" in second


# The command that rewrites the models.


@pytest.mark.parametrize(
    ("files", "paths", "command"),
    [
        (["m.onnx"], ["m.onnx"], "m.onnx --write-fixed m.fixed.onnx"),
        (["my models/m.onnx"], [], '"my models/m.onnx" --write-fixed "my models/m.fixed.onnx"'),
        (["a/m.onnx", "a/n.onnx"], ["a"], "a --write-fixed fixed/"),
        (["a/m.onnx"], ["a"], "a --write-fixed fixed/"),
        (["$x/m.onnx", "$x/n.onnx"], ["$x"], "PATHS --write-fixed fixed/ (replace PATHS)"),
        (["a/m.onnx", "n.onnx"], ["."], ". --write-fixed ../fixed/"),
        (["m.onnx"], ["../"], "../ --write-fixed ../../fixed/"),
        (["a/m.onnx"], ["**/*.onnx"], '"**/*.onnx" --write-fixed ../fixed/'),
        (["a/m.onnx"], ["a/**/*.onnx"], '"a/**/*.onnx" --write-fixed fixed/'),
        (["$x.onnx"], [], "MODEL.onnx --write-fixed MODEL.fixed.onnx (replace MODEL)"),
    ],
)
def test_the_command_names_the_model_or_the_folder(
    files: list[str], paths: list[str], command: str
) -> None:
    sites = [site("cut", split("FLOAT32", (2, 6), (2, 4)), file=file) for file in files]
    assert fix_command(assess(sites, OLD), paths) == f"dmlsplit validate {command}"
    accepted = [site("cut", split("FLOAT32", (2, 6), (2, 4)), file=file) for file in files]
    assert fix_command(assess(accepted, ORT), paths) == ""
