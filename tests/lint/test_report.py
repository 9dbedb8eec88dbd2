"""Reports: schemas and hostile names. tests/golden/cli has a complete report in each format."""

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from importlib.resources import files
from types import SimpleNamespace

import jsonschema
import pytest

import dmlsplit as dml
from dmlsplit import InvalidArgumentError
from dmlsplit.directml.levels import NEWEST
from dmlsplit.frontends import Invalid, Known, SplitSite
from dmlsplit.lint.check import assess
from dmlsplit.lint.report import FORMATS, render
from dmlsplit.lint.report.github import github_report
from dmlsplit.lint.report.json import json_report
from dmlsplit.lint.report.junit import junit_report
from dmlsplit.lint.report.sarif import sarif_report
from dmlsplit.lint.report.text import text_report
from dmlsplit.lint.target import resolve_target
from dmlsplit.lint.verdict import Assessment
from dmlsplit.messages import wrapped_at
from tests.support.assessments import NAMES, assessment, harmful
from tests.support.fixtures import Patch
from tests.support.sites import split_site


def test_an_accepted_split_is_shown_only_if_there_is_a_remark() -> None:
    plain = split_site(state=Known(described("FLOAT32")))
    findings = assess([plain, replace(plain, warnings=("beware",))], resolve_target())
    rule = "SPLIT-NODE-SURPRISE"
    assert re.fullmatch(f"::warning title=dmlsplit%3A {rule},.*: beware", github_report(findings))
    (message,) = ET.fromstring(junit_report(findings)).iter("system-out")
    assert "beware" in (message.text or "")


def defects(**options: bool) -> Assessment:
    """Ten splits with a defect in each of two files."""
    state = Known(described("FLOAT32"))
    sites = [
        split_site(file=file, node=f"n{i}", index=i, state=state, recombined_by=(f"Mul[{i}]",))
        for file in ("a.onnx", "b.onnx")
        for i in range(10)
    ]
    return assess(sites, resolve_target(ort=""), **options)


@pytest.mark.parametrize("name", ["xml", "baseline", "", "JSON"])
def test_a_format_that_no_report_has_is_refused(name: str) -> None:
    allowed = "it must be one of text, json, github, sarif, junit"
    with pytest.raises(InvalidArgumentError, match=f"report_format is '{name}'; {allowed}"):
        render(defects(), name)


FAILURE = {"github": "^::error", "sarif": '"level": "error"', "junit": "<failure"}


@pytest.mark.parametrize("form", FAILURE)
def test_a_defect_is_one_finding_per_file(form: str) -> None:
    text = render(defects(), form)
    assert "net/n7: its outputs are combined by Mul[7]" in text
    assert "... and 2 more" in text
    if form != "junit":  # a case has its file and rule instead
        assert text.count("may affect 10 splits: in graphs") == 2
    if form == "github":
        assert text.count("\n") == 1


def test_in_the_text_a_defect_is_one_cause_in_all_files() -> None:
    text = " ".join(text_report(defects()).split())
    assert "a.onnx net/n0 (+19 more in 2 files) its outputs are combined by Mul[0]" in text
    assert text.endswith("the numbers of 20 splits may be wrong (SPLIT-DEFECT-RECOMBINED)")


@pytest.mark.parametrize("defects_fail", [False, True])
@pytest.mark.parametrize("form", FAILURE)
def test_a_defect_fails_only_if_asked(form: str, defects_fail: bool) -> None:
    findings = defects(defects_fail=defects_fail)
    assert findings.accepted is not defects_fail
    failures = re.findall(FAILURE[form], render(findings, form), re.MULTILINE)
    assert len(failures) == (2 if defects_fail else 0)


def test_percent_signs_are_escaped_for_github() -> None:
    findings = assess([], resolve_target(), [("50%/m.onnx", "is 50%")])
    expected_line = "::error title=dmlsplit%3A unreadable,file=50%25/m.onnx,line=1::is 50%25"
    assert github_report(findings) == expected_line


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", FORMATS)
def test_names_cannot_change_the_structure_of_a_report(form: str, name: str) -> None:
    text = render(harmful(name), form)
    assert text.encode("utf-8")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202e]", text)
    if form == "github":
        starts = ("::error title=", "::warning title=", "::notice title=")
        assert all(line.startswith(starts) for line in text.split("\n"))
    if form == "junit":
        ET.fromstring(text)
    if form in ("json", "sarif"):
        json.loads(text)


# text


def test_text_is_coloured_only_when_asked() -> None:
    assert "\x1b" not in text_report(assessment())
    painted = text_report(assessment(), colour=True)
    assert "\x1b[1;31merror[DML-LEVEL-DATA-TYPE]\x1b[0m Input" in painted
    assert "\x1b[34m  --> models/net.onnx net/odd\x1b[0m\n" in painted
    assert re.sub(r"\x1b\[[\d;]*m", "", painted) == text_report(assessment())


def many(count: int, *more: SplitSite) -> Assessment:
    """Two files with the same number of accepted splits, some of which need a higher level."""
    sites = [
        split_site(file=file, node=f"cut{index}", index=index, state=Known(described(kind)))
        for file, last in (("a.onnx", "FLOAT32"), ("b.onnx", "INT64"))
        for index, kind in enumerate(["FLOAT32"] * (count - 1) + [last])
    ]
    return assess([*sites, *more], resolve_target())


def described(kind: str, last: int = 4) -> dml.SplitOperatorDesc:
    input_tensor, *pieces = (dml.TensorDesc(kind, (1, 1, 1, size)) for size in (6, 2, last))
    return dml.SplitOperatorDesc(input_tensor, pieces, 3)


BAD = split_site(file="a.onnx", node="bad", index=99, state=Known(described("FLOAT32", last=5)))


def test_accepted_splits_are_counted_and_only_the_verbose_text_shows_them() -> None:
    assert text_report(many(4)) == (
        f"8 splits in 2 files at feature level {NEWEST}:\n"
        "  8 run on DirectML\n"
        "2 models: 2 with all splits on DirectML"
    )
    assert text_report(many(4), detail="quiet") == ""
    text = text_report(many(24, BAD))
    assert text.startswith("error[DML-SPLIT-AXIS-SUM] ")
    assert text.splitlines()[-4:] == [
        f"49 splits in 2 files at feature level {NEWEST}:",
        "  1 refused; 48 run on DirectML",
        "2 models: 1 refused; 1 with all splits on DirectML",
        "Found 1 error",
    ]
    assert len(text.splitlines()) < 12
    verbose = text_report(many(24, BAD), detail="verbose")
    assert all(f"  --> b.onnx net/cut{index}\n" in verbose for index in range(24))
    assert verbose.count("    Split-13: runs on") == 2  # one for each type


@pytest.mark.parametrize("columns", [40, 79, 80, 81, 200])
def test_text_has_the_requested_width(columns: int) -> None:
    with wrapped_at(columns):
        lines = text_report(assessment()).splitlines()
    # Words, options and commands are not cut.
    text = [line.replace("--write-fixed ", "--write-fixed=") for line in lines]
    text = [line for line in text if not line.startswith(("  --> ", "Fix: "))]
    assert all(len(line) <= columns for line in text if " " in line.strip())
    if columns == 200:
        assert max(map(len, text)) > 100


# json


def test_json_follows_its_schema() -> None:
    schema = files("dmlsplit.lint.report").joinpath("report.schema.json").read_text("utf-8")
    validator = jsonschema.Draft202012Validator(json.loads(schema))
    for findings in (assessment(), harmful("x"), assess([], resolve_target())):
        validator.validate(json.loads(json_report(findings)))
    report = json.loads(json_report(assessment()))
    rule_ids = {item["rule"] for split in report["splits"] for item in split["diagnostics"]}
    assert rule_ids == set(report["rules"])
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({**report, "schema": 1})


# A target that the runtime cannot use, whatever the model is.


@pytest.mark.parametrize("form", FORMATS)
def test_an_unusable_target_is_reported_even_without_splits(form: str) -> None:
    findings = assess([], resolve_target(ort="1.14", directml="1.1.0"))
    assert not findings.accepted
    assert assess([], resolve_target(ort="1.14", directml="1.8.0")).accepted
    text = render(findings, form)
    assert "1.8.0" in text
    pattern = {
        "github": r"::error title=dmlsplit%3A target::.*ORT-FEATURE-LEVEL.*at least 5_0.*",
        "junit": '<failure message="ORT-FEATURE-LEVEL: .*at least 5_0.*" type="target">',
        "json": r'"rules": \{\s*"ORT-FEATURE-LEVEL"',
    }.get(form, "ORT-FEATURE-LEVEL")
    assert re.search(pattern, text)
    if form == "text":
        assert "ORT-FEATURE-LEVEL" in text_report(findings, detail="quiet")


# Names of files from Windows.


def located(file: str) -> tuple[str, str]:
    """The URI of SARIF, and the file of an annotation."""
    findings = assess([split_site(file=file, state=Invalid("wrong"))], resolve_target())
    result = json.loads(sarif_report(findings))["runs"][0]["results"][0]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    (name,) = re.findall(r",file=(.*?),line=1::", github_report(findings))
    return uri, name


@pytest.mark.parametrize(
    ("file", "uri", "name"),
    [
        (r"C:\models\a b.onnx", "file:///C:/models/a%20b.onnx", "C%3A/models/a b.onnx"),
        ("C:/models/a.onnx", "file:///C:/models/a.onnx", "C%3A/models/a.onnx"),
        (r"\\server\share\a.onnx", "file://server/share/a.onnx", "//server/share/a.onnx"),
        ("/models/a.onnx", "file:///models/a.onnx", "/models/a.onnx"),
        ("./models/a.onnx", "models/a.onnx", "models/a.onnx"),
        ("models/c:d.onnx", "models/c%3Ad.onnx", "models/c%3Ad.onnx"),
        ("bad\udcff ä.onnx", "bad%FF%20%C3%A4.onnx", r"bad\udcff ä.onnx"),
    ],
)
def test_file_names_are_those_that_code_scanning_and_annotations_need(
    file: str, uri: str, name: str
) -> None:
    assert located(file) == (uri, name)


def test_a_backslash_separates_folders_on_windows_only(monkeypatch: Patch) -> None:
    assert located(r"models\a.onnx") == ("models%5Ca.onnx", r"models\a.onnx")
    monkeypatch.setattr("dmlsplit.lint.report.findings.os", SimpleNamespace(sep="\\"))
    assert located(r"models\a.onnx") == ("models/a.onnx", "models/a.onnx")
    assert located(r".\models\a.onnx") == ("models/a.onnx", "models/a.onnx")
