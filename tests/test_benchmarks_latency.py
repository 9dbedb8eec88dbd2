"""The latency benchmark: it runs anywhere, and says what it measured."""

import json
from pathlib import Path

import pytest

from benchmarks import latency
from dmlsplit.backends import driver


def test_it_prints_a_table_and_writes_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = dict(vars(driver))
    assert latency.main(["--dispatches", "50", "--json", str(tmp_path / "out.json")]) == 0
    assert "3 outputs, current stream" in capsys.readouterr().out
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["bar_us"] == 3.0
    for row in report["latency"]:
        assert 0 < row["minimum_us"] <= row["median_us"] <= row["maximum_us"]
        assert row["dispatches"] == 50
        assert row["driver"] in ("null", "cuda:0")
    assert dict(vars(driver)) == before


def test_a_count_below_one_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        latency.main(["--dispatches", "0"])
    assert "it must be at least 1" in capsys.readouterr().err
