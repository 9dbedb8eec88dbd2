"""``python -m benchmarks``, command by command."""

import json
import re
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import cpu, host, host_instead, host_libraries, timing
from benchmarks.environment import environment, gpu_state
from benchmarks.peers_gpu import FAST
from benchmarks.results import load
from dmlsplit.backends.cpu import native
from tests.simulated_card import build, host_time
from tests.support.fixtures import Capsys, Patch


def test_a_run_records_its_command_libraries_and_machine() -> None:
    record = environment(["cpu", "--quick"], with_gpu=False)
    assert record["command"] == ["python", "-m", "benchmarks", "cpu", "--quick"]
    assert record["libraries"]["numpy"] == np.__version__
    assert record["machine"]["processors"] >= 1
    json.dumps([record, gpu_state()])


def test_a_complete_cpu_run_is_not_overwritten_and_is_read_by_bars_and_compare(
    tmp_path: Path, capsys: Capsys
) -> None:
    path = tmp_path / "run.json"
    words = ["cpu", "--quick", "--only", "g: tiny", "--rounds", "1", "-o", str(path)]
    assert command.main(words) == 0
    assert "g: tiny" in capsys.readouterr().out
    assert command.main(words) == 2
    assert "the run in it is complete" in capsys.readouterr().err
    assert command.main(["bars", str(path)]) == 0
    assert " bars missed" in capsys.readouterr().out
    assert command.main(["compare", str(path), str(path)]) == 0
    assert "unchanged within noise" in capsys.readouterr().out
    assert command.main(["compare", str(path), str(tmp_path / "none.json")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_a_cpu_run_without_the_engine_notes_that_numpy_copies(
    tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(native, "unavailable_reason", lambda: "the engine was not built")
    monkeypatch.setattr(cpu, "run", lambda *_: None)
    assert command.main(["cpu", "-o", str(tmp_path / "run.json")]) == 0
    note = "note: NumPy copies in the rows of dmlsplit: the engine was not built\n"
    assert capsys.readouterr().err.startswith(note)


@pytest.fixture
def timed(tmp_path: Path, monkeypatch: Patch) -> Callable[..., list[dict[str, Any]]]:
    """The rows of the cases of `host` that have a text in their names."""
    monkeypatch.setattr(timing, "WARM_SECONDS", 0)

    def run(only: str, status: int = 0) -> list[dict[str, Any]]:
        path = tmp_path / f"{only}-{status}.json"
        words = ["host", "--only", only, "--rounds", "1", "-o", str(path)]
        assert command.main(words) == status
        run = load(path)
        assert run["environment"]["command"][3:] == words
        return list(run["rows"])

    return run


def test_the_host_command_times_every_peer(timed: Callable[..., list[dict[str, Any]]]) -> None:
    rows = timed("8 equal")
    assert {row["peer"] for row in rows} >= set(host.PEERS)
    assert all(row["status"] == "ok" for row in rows if row["peer"].startswith("dmlsplit"))


def test_the_host_command_compares_split_with_every_library(
    timed: Callable[..., list[dict[str, Any]]],
) -> None:
    rows = {(row["library"], row["peer"]): row["status"] for row in timed("256 B")}
    assert {library for library, _ in rows} == set(host_libraries.LIBRARIES)
    for library, package in (("NumPy", "numpy"), ("PyTorch, `out=`", "torch"), ("JAX", "jax")):
        assert rows[library, "dmlsplit"] == ("ok" if find_spec(package) else "absent")


def test_a_missed_bar_fails_the_run(tmp_path: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.setattr(timing, "WARM_SECONDS", 0)
    # proofs/test_simulated_card.py tests the calls of CUDA.
    monkeypatch.setattr(build, "missing", lambda: "there is no card")
    for most, status, word in ((1e9, 0, "met"), (0, 1, "missed")):
        monkeypatch.setattr(host_time, "BARS", [("numpy split", 3, most)])
        path = tmp_path / f"{status}.json"
        words = ["--only", "3 outputs", "--rounds", "1", "-o", str(path)]
        assert host_time.main(words) == status
        assert {row["at"] for row in load(path)["rows"]} == {3}
        assert re.search(rf"bar: numpy split of 3 outputs in .*: {word}\n", capsys.readouterr().out)


def test_a_call_is_compared_with_what_a_person_would_write_instead(
    timed: Callable[..., list[dict[str, Any]]], monkeypatch: Patch, capsys: Capsys
) -> None:
    (name,) = (case for case in host_instead.CASES if "NumPy, out= 3" in case)
    pair = host_instead.CASES[name]()
    for bar, status, word in ((1e9, 0, "met"), (0, 1, r"\*\*missed\*\*")):
        make = partial(pair._replace, bar=bar)
        monkeypatch.setattr(host_instead, "CASES", {name: make})
        rows = timed(name, status)
        assert [row["peer"] for row in rows] == ["dmlsplit", "instead"]
        assert re.search(rf"\| {name} \| [0-9.]+ \| .* \| {word} \|", capsys.readouterr().out)


# The calls of other pairs write to `out`, draw sizes of their own, or need other libraries.
NEW_ARRAYS = [
    name for name in host_instead.CASES if name.startswith("beside NumPy") and " into " in name
]


@pytest.mark.parametrize("name", NEW_ARRAYS)
def test_a_pair_that_returns_numpy_arrays_makes_the_same_pieces(name: str) -> None:
    pair = host_instead.CASES[name]()
    our_pieces, other_pieces = pair.ours(), pair.instead()
    assert [piece.tolist() for piece in our_pieces] == [piece.tolist() for piece in other_pieces]


@pytest.mark.skipif(host.has_gpu(), reason="this machine has a GPU")
def test_the_gpu_command_without_a_gpu_is_an_error_and_writes_nothing(
    tmp_path: Path, capsys: Capsys
) -> None:
    path = tmp_path / "run.json"
    assert command.main(["gpu", "-o", str(path)]) == 2
    assert "error: " in capsys.readouterr().err
    assert not path.exists()


@pytest.mark.gpu
def test_a_gpu_run_without_a_case_is_an_error_and_writes_nothing(
    tmp_path: Path, capsys: Capsys
) -> None:
    path = tmp_path / "run.json"
    assert command.main(["gpu", "--quick", "--only", "no such case", "-o", str(path)]) == 2
    assert "no case's name contains 'no such case'" in capsys.readouterr().err
    assert not path.exists()


@pytest.mark.gpu
def test_a_gpu_run_has_a_row_for_every_peer(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    assert command.main(["gpu", "--quick", "--only", "2 QKV, decode", "-o", str(path)]) == 0
    run_record = load(path)
    assert run_record["after"] is not None
    assert {row["peer"] for row in run_record["rows"]} == set(FAST)
    (our_row,) = (row for row in run_record["rows"] if row["peer"] == "dmlsplit")
    assert (our_row["status"], our_row["mode"]) == ("ok", "graph")


def test_bars_of_host_runs_are_read_and_other_runs_have_none(capsys: Capsys) -> None:
    assert command.main(["bars", str(command.RESULTS / "instead.json")]) == 0
    assert capsys.readouterr().out.endswith(" bars missed\n")
    assert command.main(["bars", str(command.RESULTS / "sweep.json")]) == 2
    assert "is of a sweep run, which has no bars" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["cpu", "host"])
def test_a_selection_of_no_case_names_the_cases(kind: str, tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "results.json"
    assert command.main([kind, "--only", "no such case", "-o", str(path)]) == 2
    assert "no case has 'no such case' in its name, which is one of:\n" in capsys.readouterr().err
    assert not path.exists()
