"""``python -m benchmarks``, command by command."""

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import calls, dispatch, instead
from benchmarks.environment import environment, gpu_state
from benchmarks.peers_gpu import FAST
from benchmarks.results import load
from tests.simulated_card import build


def test_a_run_says_where_it_was_made() -> None:
    found = environment(["cpu", "--quick"], with_gpu=False)
    assert found["command"] == ["python", "-m", "benchmarks", "cpu", "--quick"]
    assert found["libraries"]["numpy"] == np.__version__
    assert found["machine"]["processors"] >= 1
    json.dumps([found, gpu_state()])


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.json"
    words = ["cpu", "--quick", "--only", "g: tiny", "--rounds", "1", "-o", str(path)]
    assert command.main(words) == 0
    assert "g: tiny" in capsys.readouterr().out
    assert command.main(words) == 2
    assert "the run in it is complete" in capsys.readouterr().err
    assert command.main(["compare", str(path), str(path)]) == 0
    assert "unchanged within noise" in capsys.readouterr().out
    assert command.main(["compare", str(path), str(tmp_path / "none.json")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_the_dispatch_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """proofs/test_simulated_card.py tests its CUDA columns."""
    monkeypatch.setattr(build, "missing", lambda: "there is no card")
    monkeypatch.setattr(dispatch, "CALLS", 10)
    monkeypatch.setattr(dispatch, "BARS", [("numpy_split_us", 3, 1e9)])
    path = tmp_path / "dispatch.json"
    words = ["dispatch", "--rounds", "1", "--json", str(path)]
    assert command.main(words) == 0
    assert "bar: numpy_split_us of 3 outputs in 1000000000.0 us: met" in capsys.readouterr().out
    found = json.loads(path.read_text())
    assert [row["outputs"] for row in found["rows"]] == list(dispatch.OUTPUTS)
    assert found["bars"] == [
        {"column": "numpy_split_us", "outputs": 3, "most": 1e9, "is_met": True}
    ]
    assert found["environment"]["command"][3:] == words
    monkeypatch.setattr(dispatch, "BARS", [("numpy_split_us", 3, 0)])
    assert command.main(words) == 1


def test_the_latency_command(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    words = ["latency", "--quick", "--only", "8 equal", "--rounds", "1", "-o", str(path)]
    assert command.main(words) == 0
    rows = load(path)["rows"]
    assert {row["peer"] for row in rows} >= set(calls.PEERS)
    assert all(row["status"] == "ok" for row in rows if row["peer"].startswith("dmlsplit"))


def test_the_instead_command(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    words = ["instead", "--quick", "--only", "256 B", "--rounds", "1", "-o", str(path)]
    assert command.main(words) == 0
    rows = {(row["library"], row["peer"]): row["status"] for row in load(path)["rows"]}
    assert {library for library, _ in rows} == set(instead.LIBRARIES)
    for library, package in (("NumPy", "numpy"), ("PyTorch, `out=`", "torch"), ("JAX", "jax")):
        assert rows[library, "dmlsplit"] == ("ok" if find_spec(package) else "absent")


@pytest.mark.skipif(calls.has_gpu(), reason="this machine has a GPU")
def test_without_a_gpu_the_gpu_command_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.json"
    assert command.main(["gpu", "-o", str(path)]) == 2
    assert "error: " in capsys.readouterr().err
    assert not path.exists()


@pytest.mark.gpu
def test_the_gpu_command(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    assert command.main(["gpu", "--quick", "--only", "2 QKV, decode", "-o", str(path)]) == 0
    found = load(path)
    assert found["after"] is not None
    assert {row["peer"] for row in found["rows"]} == set(FAST)
    (ours,) = (row for row in found["rows"] if row["peer"] == "dmlsplit")
    assert (ours["status"], ours["mode"]) == ("ok", "graph")


@pytest.mark.gpu
def test_a_name_that_matches_no_case_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.json"
    assert command.main(["gpu", "--quick", "--only", "no such case", "-o", str(path)]) == 2
    assert "no case's name contains 'no such case'" in capsys.readouterr().err
    assert not path.exists()
