"""The folder that `write` makes: it is always the same, it is small, and it overwrites nothing."""

import json
import sys
from pathlib import Path

import pytest

from tests.conformance.kit import kit as kit_files
from tests.conformance.kit import write_kit
from tests.support.command import ROOT, ran


def test_the_kit_has_the_same_bytes_every_time(kit: Path) -> None:
    files, other = kit_files(), kit.with_name("other")
    line = [sys.executable, "-m", "tests.conformance", "write", str(other)]
    done = ran(*line, cwd=ROOT, env={"PYTHONHASHSEED": "7"}, check=True)
    assert done.stdout.startswith(f"{other}: {len(files)} files; copy it to Windows")
    for name, text in files.items():
        assert (kit / name).read_bytes() == (other / name).read_bytes() == text.encode(), name
    found = {str(path.relative_to(kit)) for path in kit.rglob("*") if path.is_file()}
    assert found == set(files)


def test_huge_tensors_are_created_but_neither_compiled_nor_dispatched(kit: Path) -> None:
    cases = json.loads((kit / "cases.json").read_text())["cases"]
    huge = {case["id"] for case in cases if case["last_stage"] == "create"}
    models = {path.stem for path in (kit / "dxdispatch").iterdir()}
    assert {case["id"] for case in cases} - models == huge
    assert huge == {
        "rule-TENSOR-ELEMENT-COUNT",
        "rule-TENSOR-SIZE-WRAP",
        "limit-total-huge",
        "limit-elements",
        "limit-index",
    }


def test_the_kit_overwrites_no_file(tmp_path: Path) -> None:
    (tmp_path / "note").write_text("mine")
    for name in ("", "note", "no/kit"):
        with pytest.raises(OSError, match=r"File exists|No such file"):
            write_kit(tmp_path / name)
    assert [path.name for path in tmp_path.rglob("*")] == ["note"]
