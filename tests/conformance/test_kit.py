"""The folder that `write` makes: it is always the same, it is small, and it overwrites nothing."""

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.kit import kit as kit_files
from tests.conformance.kit import write_kit
from tests.support.command import ROOT, ran


@cache
def files() -> dict[str, str]:
    return kit_files()


@cache
def listed() -> dict[str, Any]:
    """What cases.json of the kit holds; `cases` by id."""
    read: dict[str, Any] = json.loads(files()["cases.json"])
    return read | {"cases": {case["id"]: case for case in read["cases"]}}


def test_the_kit_has_the_same_bytes_every_time(kit: Path) -> None:
    other = kit.with_name("other")
    line = [sys.executable, "-m", "tests.conformance", "write", str(other)]
    done = ran(*line, cwd=ROOT, env={"PYTHONHASHSEED": "7"}, check=True)
    assert done.stdout.startswith(f"{other}: {len(files())} files; copy it to Windows")
    for name, text in files().items():
        assert (kit / name).read_bytes() == (other / name).read_bytes() == text.encode(), name
    found = {str(path.relative_to(kit)) for path in kit.rglob("*") if path.is_file()}
    assert found == set(files())


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
    (tmp_path / "note").write_text("mine")
    for name in ("", "note", "no/kit"):
        with pytest.raises(OSError, match=r"File exists|No such file"):
            write_kit(tmp_path / name)
    assert [path.name for path in tmp_path.rglob("*")] == ["note"]
