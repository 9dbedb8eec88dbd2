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
from dmlsplit.cli.validate import FORMATS
from dmlsplit.frontends import SplitSite
from dmlsplit.lint.judge import assess
from dmlsplit.lint.report import REPORTS
from dmlsplit.lint.report.github import github_report
from dmlsplit.lint.report.json import json_report
from dmlsplit.lint.report.junit import junit_report
from dmlsplit.lint.report.sarif import sarif_report
from dmlsplit.lint.report.text import text_report
from dmlsplit.lint.target import resolve_target
from dmlsplit.lint.verdict import Assessment, Outcome
from dmlsplit.messages import wrapped_at
from tests.support.assessments import NAMES, assessment, harmful


def test_the_command_line_offers_every_format() -> None:
    assert list(REPORTS) == list(FORMATS)


def test_an_accepted_split_is_shown_only_if_there_is_a_remark() -> None:
    desc = dml.SplitOperatorDesc.from_sizes(dml.TensorDesc("INT8", (4,)), axis=0, sizes=(1, 3))
    plain = SplitSite("m.onnx", "net", "n", 0, "Split-13", (desc,))
    found = assess([plain, replace(plain, warnings=("beware",))], resolve_target())
    assert re.fullmatch("::warning title=dmlsplit%3A ok,.*: beware", github_report(found))
    (said,) = ET.fromstring(junit_report(found)).iter("system-out")
    assert "beware" in (said.text or "")


def test_github_reads_a_percent_sign_as_one() -> None:
    found = assess([], resolve_target(), [("50%/m.onnx", "is 50%")])
    wanted = "::error title=dmlsplit%3A unreadable,file=50%25/m.onnx,line=1::is 50%25"
    assert github_report(found) == wanted


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", FORMATS)
def test_names_cannot_break_out(form: str, name: str) -> None:
    text = REPORTS[form](harmful(name))
    assert text.encode("utf-8")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202e]", text)
    if form == "github":
        starts = ("::error title=", "::warning title=")
        assert all(line.startswith(starts) for line in text.split("\n"))
    if form == "junit":
        ET.fromstring(text)
    if form in ("json", "sarif"):
        json.loads(text)


# text


def test_text_fits_80_columns() -> None:
    assert max(map(len, text_report(assessment()).splitlines())) <= 80


def test_text_is_coloured_only_when_asked() -> None:
    assert "\x1b" not in text_report(assessment())
    painted = text_report(assessment(), colour=True)
    assert "\x1b[31mrefused\x1b[0m" in painted
    assert re.sub(r"\x1b\[\d*m", "", painted) == text_report(assessment())


def many(count: int, *more: SplitSite) -> Assessment:
    """Two files with the same number of accepted splits, some of which need a higher level."""
    sites = [
        SplitSite(file, "net", f"cut{at}", at, "Split-13", (described(kind),))
        for file, last in (("a.onnx", "FLOAT32"), ("b.onnx", "INT64"))
        for at, kind in enumerate(["FLOAT32"] * (count - 1) + [last])
    ]
    return assess([*sites, *more], resolve_target())


def described(kind: str, last: int = 4) -> dml.SplitOperatorDesc:
    given, *pieces = (dml.TensorDesc(kind, (1, 1, 1, size)) for size in (6, 2, last))
    return dml.SplitOperatorDesc(given, pieces, 3)


BAD = SplitSite("a.onnx", "net", "bad", 99, "Split-13", (described("FLOAT32", last=5),))


def test_many_accepted_splits_are_one_row_per_file() -> None:
    few = text_report(many(4))
    assert few.count("accepted from") == 8
    text = text_report(many(24, BAD))
    assert re.findall(r"^(\S.*?)  +(.*?)  +(\S+)  .*$", text, re.MULTILINE)[1:] == [
        ("a.onnx: 24 splits", "ok", "1_0"),
        ("b.onnx: 24 splits", "ok", "4_1"),
        ("a.onnx:net/bad", "refused", "-"),
    ]
    assert text.startswith("a.onnx:net/bad: Split-13: refused: 80070057")
    assert len(text.splitlines()) < 16
    assert text.splitlines()[-1] == "49 splits in 2 files at feature level 6_4: 48 ok; 1 refused"
    verbose = text_report(many(24, BAD), detail="verbose")
    assert verbose.count("accepted from") == 48
    assert all(f"b.onnx:net/cut{at}" in verbose for at in range(24))


@pytest.mark.parametrize("columns", [40, 79, 80, 81, 200])
def test_text_has_the_requested_width(columns: int) -> None:
    with wrapped_at(columns):
        lines = text_report(assessment()).splitlines()
    table = next(at for at, line in enumerate(lines) if line.startswith("---"))
    # Words are not cut, and the table has its own columns.
    assert all(len(line) <= columns for line in lines[: table - 1] if " " in line.strip())
    assert len(lines[table]) == max(80, columns)
    if columns == 200:
        assert max(map(len, lines[: table - 1])) > 100


# json


def test_json_follows_its_schema() -> None:
    schema = files("dmlsplit.lint.report").joinpath("report.schema.json").read_text("utf-8")
    validator = jsonschema.Draft202012Validator(json.loads(schema))
    for each in (assessment(), harmful("x"), assess([], resolve_target())):
        validator.validate(json.loads(json_report(each)))
    report = json.loads(json_report(assessment()))
    named = {each["rule"] for split in report["splits"] for each in split["diagnostics"]}
    assert named == set(report["rules"])
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({**report, "schema": 1})


def test_a_verdict_that_is_allowed_is_not_a_failure() -> None:
    allowed = replace(assessment(), failing=frozenset({Outcome.REFUSED}))
    assert ET.fromstring(junit_report(allowed)).get("failures") == "2"
    assert github_report(allowed).count("::error ") == 3


def summary(*names: str) -> list[str]:
    desc = dml.SplitOperatorDesc.from_sizes(dml.TensorDesc("FLOAT32", (6,)), axis=0, sizes=(2, 4))
    sites = [SplitSite("m.onnx", "net", name, 0, "Split-13", (desc,)) for name in names]
    text = text_report(assess(sites, resolve_target()))
    rows = text[text.index("-" * 80) :].splitlines()[1:-1]
    assert max(map(len, rows)) <= 80
    return rows


def test_names_in_the_summary_stay_distinguishable() -> None:
    assert [row.split()[0] for row in summary("a", "b")] == ["m.onnx:net/a", "m.onnx:net/b"]
    long = "layer/attention/projection/split_of_the_queries"
    cut = [row.split()[0] for row in summary(f"{long}_1", f"{long}_2")]
    assert all(name.startswith("...") for name in cut)
    assert len(set(cut)) == 2
    alike = summary(f"first/{long}", f"second/{long}")
    assert alike[0] == f"m.onnx:net/first/{long}"
    assert alike[2] == f"m.onnx:net/second/{long}"
    assert [row.split()[0] for row in alike[1::2]] == ["ok", "ok"]


# A target that the runtime cannot use, whatever the model is.


@pytest.mark.parametrize("form", FORMATS)
def test_an_unusable_target_is_reported_even_without_splits(form: str) -> None:
    found = assess([], resolve_target(windows="19041", via="ort"))
    assert not found.accepted
    text = REPORTS[form](found)
    assert "ORT-FEATURE-LEVEL" in text
    assert "1.8.0" in text
    if form == "text":
        assert "ORT-FEATURE-LEVEL" in text_report(found, detail="quiet")
    if form == "github":
        assert re.fullmatch(r"::error title=dmlsplit%3A target::.*at least 5_0.*", text)
    if form == "junit":
        assert ET.fromstring(text).get("failures") == "1"
        (failure,) = ET.fromstring(text).iter("failure")
        assert failure.get("type") == "target"
        assert re.match("ORT-FEATURE-LEVEL: .*at least 5_0", failure.get("message", ""))
    if form == "json":
        (said,) = json.loads(text)["target"]["diagnostics"]
        assert said["rule"] in json.loads(text)["rules"]


def test_a_usable_target_is_not_reported() -> None:
    for target in (resolve_target(windows="19041"), resolve_target(windows="22621", via="ort")):
        assert assess([], target).accepted


# Names of files from Windows.


def located(file: str) -> tuple[str, str]:
    """The URI of SARIF, and the file of an annotation."""
    found = assess([SplitSite(file, "net", "n", 0, "Split-13", problem="wrong")], resolve_target())
    result = json.loads(sarif_report(found))["runs"][0]["results"][0]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    (name,) = re.findall(r",file=(.*?),line=1::", github_report(found))
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
    ],
)
def test_file_names_are_those_that_code_scanning_and_annotations_need(
    file: str, uri: str, name: str
) -> None:
    assert located(file) == (uri, name)


def test_a_backslash_separates_folders_on_windows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert located(r"models\a.onnx") == ("models%5Ca.onnx", r"models\a.onnx")
    monkeypatch.setattr("dmlsplit.lint.report.phrases.os", SimpleNamespace(sep="\\"))
    assert located(r"models\a.onnx") == ("models/a.onnx", "models/a.onnx")
    assert located(r".\models\a.onnx") == ("models/a.onnx", "models/a.onnx")
