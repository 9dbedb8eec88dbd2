"""The folder that `write` makes: it is always the same, it is small, and it overwrites nothing."""

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import dmlsplit as dml
from dmlsplit.conformance.cases import all_cases
from dmlsplit.conformance.kit import kit as kit_files
from dmlsplit.conformance.kit import write_kit
from dmlsplit.frontends.dxdispatch import read_descriptor
from tests.support.command import ran
from tests.support.each import each


@cache
def files() -> dict[str, str]:
    return kit_files()


@cache
def listed() -> dict[str, Any]:
    """What cases.json of the kit holds; `cases` by id."""
    read: dict[str, Any] = json.loads(files()["cases.json"])
    return read | {"cases": {case["id"]: case for case in read["cases"]}}


def test_the_kit_has_the_same_bytes_every_time(kit: Path) -> None:
    code = "from dmlsplit.conformance.kit import write_kit; import pathlib; "
    other = kit.with_name("other")
    code += f"write_kit(pathlib.Path({str(other)!r}))"
    ran(sys.executable, "-c", code, env={"PYTHONHASHSEED": "7"}, check=True)
    for name, text in files().items():
        assert (kit / name).read_bytes() == (other / name).read_bytes() == text.encode(), name
    found = {str(path.relative_to(kit)) for path in kit.rglob("*") if path.is_file()}
    assert found == set(files())


def test_the_kit_is_small() -> None:
    assert len(files()) < 300
    assert sum(map(len, files().values())) < 3 << 20
    assert max(map(len, files().values())) < 512 << 10


@each(name=[case.id for case in all_cases()])
def test_a_case_reads_back_with_its_expectation(name: str) -> None:
    case = listed()["cases"][name]
    if case["last_stage"] == "bind":
        return
    desc = read_descriptor(case["desc"])
    levels = list(listed()["levels"])
    for level in levels:
        rows = [row for row in case["expected"] if levels.index(row["from"]) <= levels.index(level)]
        report = dml.validate(desc, level)
        assert rows[-1]["rules"] == list(report.rule_ids), level
        assert rows[-1]["verdict"] == ("accepted" if report.ok else "refused")
        assert rows[-1]["stage"] == ("done" if report.ok else "create")
        assert rows[-1]["hresult"] == ("0x00000000" if report.ok else "0x80070057")


def test_each_rule_says_what_it_is_based_on() -> None:
    policies = {name for name, rule in listed()["rules"].items() if rule["basis"] == "policy"}
    assert policies == {"DML-TENSOR-OUTPUT-OVERLAP"}
    flagged = {
        case["id"]
        for case in listed()["cases"].values()
        for row in case["expected"]
        if row["policy"]
    }
    assert flagged == {"rule-TENSOR-OUTPUT-OVERLAP-zero", "rule-TENSOR-OUTPUT-OVERLAP-nested"}
    assert all(listed()["not_asked"].values())


def test_huge_tensors_are_created_but_not_compiled() -> None:
    huge = {case["id"] for case in listed()["cases"].values() if case["last_stage"] == "create"}
    assert huge == {
        "rule-TENSOR-ELEMENT-COUNT",
        "rule-TENSOR-SIZE-WRAP",
        "limit-total-huge",
        "limit-elements",
        "limit-index",
    }


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("full", "file"):
        with pytest.raises(FileExistsError):
            write_kit(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        write_kit(tmp_path / "no" / "kit")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "full", "note"]
    (tmp_path / "empty").mkdir()
    assert write_kit(tmp_path / "empty") == len(files())


def test_a_kit_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        write_kit(tmp_path / "kit")
    assert list(tmp_path.iterdir()) == []
