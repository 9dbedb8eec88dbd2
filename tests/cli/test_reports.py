"""Several reports from one scan, baselines, and what is refused before the scan."""

import json
import os
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from onnx import TensorProto

from dmlsplit.cli import main
from dmlsplit.models import discovery
from tests.support.command import refused, save
from tests.support.fixtures import Capsys, Patch
from tests.support.models import one_split, parsed

OLD = "--windows 19041"
REFUSED = one_split(TensorProto.INT64, (6,), sizes=(2, 4), axis=0)


def prints(file: str) -> list[str]:
    """The fingerprints of a SARIF report."""
    (run,) = json.loads(Path(file).read_text())["runs"]
    return [result["partialFingerprints"]["dmlsplitNode/v1"] for result in run["results"]]


def test_reports_beside_the_text_come_from_one_scan(
    here: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    save("m.onnx", REFUSED)
    scanned: list[str] = []
    honest = discovery.scan_any

    def counting(file: str, *arguments: object) -> object:
        scanned.append(file)
        return honest(file, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(discovery, "scan_any", counting)
    line = f"validate m.onnx {OLD} --sarif r.sarif --junit r.xml --github - --format text"
    assert main(line.split()) == 1
    assert scanned == ["m.onnx"]
    out = capsys.readouterr().out
    assert out.startswith("error[DML-LEVEL-DATA-TYPE] InputTensor.DataType is INT64")
    assert out.splitlines()[-1].startswith("::error title=dmlsplit%3A refused")
    assert len(prints("r.sarif")) == 2
    (case,) = ElementTree.parse("r.xml").iter("testcase")
    assert case.find("failure") is not None


WITH_BASELINE = f"validate . {OLD} --baseline known.json --sarif r.sarif --junit r.xml".split()


def test_the_first_run_writes_the_baseline_and_fails(here: Path, capsys: Capsys) -> None:
    save("m.onnx", REFUSED)
    assert main(WITH_BASELINE) == 1
    assert "known.json has 2 known findings now" in capsys.readouterr().err
    (entry, *_) = json.loads(Path("known.json").read_text())["findings"]
    assert entry["file"] == "m.onnx"
    assert entry["fingerprint"] in prints("r.sarif")


def test_known_findings_do_not_fail_in_any_report(here: Path, capsys: Capsys) -> None:
    save("m.onnx", REFUSED)
    assert [main(WITH_BASELINE), main(WITH_BASELINE)] == [1, 0]
    assert "0 new findings" in capsys.readouterr().err
    (case,) = ElementTree.parse("r.xml").iter("testcase")
    assert case.find("failure") is None  # a CI server that reads it passes as well


def test_new_findings_fail_and_do_not_change_the_baseline(here: Path, capsys: Capsys) -> None:
    save("m.onnx", REFUSED)
    main(WITH_BASELINE)
    baseline = Path("known.json").read_bytes()
    shutil.copy("m.onnx", "a.onnx")  # a file before it
    assert main(WITH_BASELINE) == 1
    message = capsys.readouterr().err
    assert "note: 2 new findings; known.json has the known ones" in message
    assert "new: a.onnx:net/cut: " in message
    assert Path("known.json").read_bytes() == baseline


DYNAMIC = parsed(
    "(float[1,1,n,2] x) => (float[] a) { [cut] a, b = Split <axis = 2, num_outputs = 2> (x) }"
)


@pytest.mark.parametrize("also", ["--fail-on unknown", "--fail-on defect"])
def test_a_baseline_has_whatever_fails(also: str, here: Path) -> None:
    save("m.onnx", DYNAMIC)
    line = f"validate m.onnx {OLD} {also} --baseline known.json".split()
    status = main(line)
    assert status == (1 if "unknown" in also else 0)
    assert len(json.loads(Path("known.json").read_text())["findings"]) == status
    assert main(line) == 0


def test_a_node_that_breaks_another_rule_has_a_new_finding(here: Path) -> None:
    save("m.onnx", one_split(TensorProto.INT64, (1, 1, 6, 2), sizes=(2, 4), axis=2))
    line = f"validate m.onnx {OLD} --baseline known.json".split()
    assert [main(line), main(line)] == [1, 0]
    save(
        "m.onnx", one_split(TensorProto.INT64, (6, 2), sizes=(2, 4), axis=0)
    )  # has too few dimensions too
    assert main(line) == 1


ACCEPTED = one_split(TensorProto.FLOAT, (1, 1, 6, 2), sizes=(2, 4), axis=2)


@pytest.mark.parametrize("text", ["", "[", "[]", "{}", '{"schema": 2, "findings": []}', "[" * 9999])
def test_a_file_that_is_not_a_baseline_is_refused_and_kept(
    text: str, here: Path, capsys: Capsys
) -> None:
    save("m.onnx", ACCEPTED)
    Path("known.json").write_text(text)
    message = refused(capsys, "validate m.onnx --baseline known.json")
    assert message.startswith("dmlsplit: error: known.json: is not ")
    assert Path("known.json").read_text() == text


def test_an_incomplete_scan_writes_no_baseline(here: Path, capsys: Capsys) -> None:
    save("m.onnx", REFUSED)
    Path("bad.onnx").write_text("bad")
    assert main(f"validate . {OLD} --baseline known.json".split()) == 2
    assert "known.json was not written, because a file could not be read" in capsys.readouterr().err
    assert not Path("known.json").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("m.onnx --write-fixed m.onnx", "m.onnx is the input. Fix: name another output"),
        ("m.onnx --write-fixed old.onnx", "old.onnx exists; it is not replaced"),
        ("m.onnx --sarif m.onnx", "m.onnx is the input. Fix: name another output"),
        (
            ". --write-fixed f.onnx",
            "--write-fixed is 'f.onnx', a file; for several models, it must be a",
        ),
        ("m.onnx --sarif r --junit r", "--sarif and --junit name the same file, r. Fix: name"),
        (
            "m.onnx -o r --baseline ./r",
            "--output and --baseline name the same file, ./r. Fix: name",
        ),
        ("m.onnx --baseline -", "--baseline is '-'; it must be a file, such as known.json"),
        ("m.onnx --baseline old.onnx", "old.onnx: is not JSON"),
    ],
)
def test_what_is_wrong_before_the_scan_is_said_before_it(
    line: str, message: str, here: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    for name in "m.onnx", "old.onnx":
        save(name, REFUSED)
    monkeypatch.setattr(discovery, "scan_paths", None)
    assert message in refused(capsys, f"validate {OLD} {line}")


def test_a_named_node_stays_known_when_a_node_before_it_comes(here: Path) -> None:
    ends, cut = "=> (int64[2] a, int64[2] b)", "[cut] a, b = Split <axis = 0, num_outputs = 2> (x)"
    save("m.onnx", parsed(f"(int64[4] x) {ends} {{ {cut} }}"))
    assert main(WITH_BASELINE) == 1
    before = prints("r.sarif")
    save("m.onnx", parsed(f"(int64[4] w) {ends} {{ x = Identity (w) {cut} }}"))
    assert main(WITH_BASELINE) == 0
    assert prints("r.sarif") == before


def test_a_baseline_must_be_a_file_of_bounded_size(
    here: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    save("m.onnx", REFUSED)
    line = f"validate m.onnx {OLD} --baseline known.json"
    os.mkfifo("known.json")
    assert "known.json: is not a regular file" in refused(capsys, line)
    Path("known.json").unlink()
    Path("known.json").write_text("{}")
    monkeypatch.setattr("dmlsplit.lint.report.baseline.MAX_BYTES", 1)
    assert "it has 2 bytes, and at most 1 are read" in refused(capsys, line)


def test_known_findings_of_a_rewritten_model_do_not_fail(here: Path) -> None:
    ends = "(uint8[4] x, int64[4] z) => (uint8[2] a, uint8[2] b, int64[2] c, int64[2] d)"
    halves = "Split <axis = 0, num_outputs = 2>"
    save("m.onnx", parsed(f"{ends} {{ a, b = {halves} (x) c, d = {halves} (z) }}"))
    line = f"validate m.onnx {OLD} --write-fixed f.onnx --baseline known.json --overwrite".split()
    assert main(line) == 1
    assert main(line) == 0


@pytest.mark.parametrize("text", ["1_0,2", "\u0663,2", "9" * 5000])
def test_sizes_are_plain_decimal_integers(capsys: Capsys, text: str) -> None:
    line = ["validate", "--data-type", "FLOAT32", "--sizes", text, "--axis", "0", "--split", "1"]
    with pytest.raises(SystemExit):
        main(line)
    message = capsys.readouterr().err
    assert "it must be integers separated by commas" in message
    assert len(message) < 1000
