"""`devices`: with and without a GPU."""

import json

import pytest

from dmlsplit.cli import main


def test_devices_are_listed_or_reported_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices"]) == 0
    captured = capsys.readouterr()
    assert "no CUDA device" in captured.err or "bandwidth" in captured.out
    assert main(["devices", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == 1
