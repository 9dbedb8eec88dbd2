"""`levels`: the capability table as text and as JSON."""

import json

import pytest

from dmlsplit.cli import main


def test_levels_fit_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["levels"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 16
    assert max(map(len, lines)) <= 80
    assert lines[7].split() == "4_1 1.7.0 - 1-8 + f64 u64 i64".split()


def test_levels_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["levels", "--format", "json"]) == 0
    levels = json.loads(capsys.readouterr().out)["levels"]
    assert [level["value"] for level in levels][:3] == [0x1000, 0x2000, 0x2100]
    assert levels[7]["windows"] == {"build": 22621, "name": "Windows 11 22H2"}
    assert (levels[3]["windows"]["build"], levels[3]["windows_basis"]) == (20348, "inferred")
    assert "NTDDI_WIN10_FE" in levels[3]["windows_source"]
    assert levels[0]["input_tensor"]["dimension_counts"] == [4, 4]
