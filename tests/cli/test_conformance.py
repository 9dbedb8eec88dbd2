"""`conformance`: write, probe with a stand-in, and check; their statuses and one-line errors."""

import json
from pathlib import Path

import pytest

from dmlsplit.cli import main
from tests.conformance.stand_in.build import library

__all__ = ["library"]


def ran(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()
    status = main(["conformance", *map(str, arguments)])
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def test_write_probe_check(
    here: Path, library: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, out, err = ran(capsys, "write", "kit")
    assert (status, err) == (0, "")
    assert out.startswith("kit: ")
    status, out, err = ran(capsys, "probe", "--directml", library, "-o", "observed.json")
    assert (status, out) == (0, "")
    assert err == "dmlsplit: observed.json: 154 accepted, 75 refused\n"
    status, out, _ = ran(capsys, "probe", "--directml", library, "-o", "-")
    observed = json.loads(Path("observed.json").read_text())
    assert (status, json.loads(out).keys()) == (0, observed.keys())
    assert not Path("-").exists()
    status, out, err = ran(capsys, "check", "observed.json")
    assert (status, err) == (0, "")
    assert out.startswith("A STAND-IN, not DirectML, 1.2.3.4 agrees with the rules\n")
    monkeypatch.setenv("STAND_IN_SWITCHES", "any-sum")
    assert ran(capsys, "probe", "--directml", library, "-o", "other.json")[0] == 0
    status, out, err = ran(capsys, "check", "other.json", "--format", "json")
    assert (status, err) == (1, "")
    assert json.loads(out)["counts"]["verdict"] == 2
    status, out, _ = ran(capsys, "check", "other.json", "--format", "markdown")
    assert (status, out[:4]) == (1, "### ")
