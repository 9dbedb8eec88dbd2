"""The benchmarks: statistics, rows that are never lost, comparisons, plots, broken peers."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import __main__ as command
from benchmarks import calls, cases, cpu, dispatch, gpu, peers_cpu, timing
from benchmarks.cases import Case
from benchmarks.compare import compare, report
from benchmarks.environment import card_state, environment
from benchmarks.peers_cpu import Prepared, Problem
from benchmarks.peers_gpu import FAST
from benchmarks.ratios import markdown
from benchmarks.results import Results, ResultsError, failed, load, measured
from benchmarks.table import Table, duration, line
from benchmarks.timing import calls_per_sample, interleaved, quantile, rest, summary

TINY = Case("tiny", cases.CASES, (6, 4), "f4", 1, (1, 3))
MACHINE = {"time": "2026-01-01T00:00:00+00:00", "commit": "c0ffee", "machine": {"processor": "p"}}


@given(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=50))
def test_a_summary_agrees_with_numpy(samples: list[float]) -> None:
    found = summary(samples)
    assert found.count == len(samples)
    assert found.median == pytest.approx(np.median(samples))
    assert found.least == min(samples)
    assert found.p20 == pytest.approx(np.quantile(samples, 0.2))
    assert found.p80 == pytest.approx(np.quantile(samples, 0.8))
    assert found.spread >= 0


def test_quantiles_interpolate() -> None:
    assert quantile([1.0, 2.0], 0.5) == 1.5
    assert quantile([3.0], 0.8) == 3.0
    with pytest.raises(ValueError, match="no samples"):
        summary([])


def test_calls_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "WARM_SECONDS", 0)
    monkeypatch.setattr(timing, "SHORTEST_SAMPLE", 0)
    log: list[str] = []
    slow = {name: _logging(log, name) for name in "abc"}
    samples = interleaved(slow, 9)
    assert {name: len(taken) for name, taken in samples.items()} == {"a": 9, "b": 9, "c": 9}
    # After the three calibrations: one untimed call and a timed one per turn, each round in its
    # own order.
    turns = "".join(log[-54:])
    rounds = {turns[start : start + 6] for start in range(0, 54, 6)}
    assert {"".join(sorted(order)) for order in rounds} == {"aabbcc"}
    assert len(rounds) > 2
    assert all(0 < sample < 1 for taken in samples.values() for sample in taken)


def test_each_turn_warms_up(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[float] = []
    start = time.perf_counter()
    timing.warm_up(lambda: begun.append(time.perf_counter()))
    assert time.perf_counter() - start >= timing.WARM_SECONDS
    assert len(begun) > 1
    monkeypatch.setattr(timing, "WARM_SECONDS", 0)
    timing.warm_up(begun.clear)
    assert not begun


def test_a_turn_waits_for_threads_that_still_work() -> None:
    end = time.perf_counter() + 0.05
    spinning = threading.Thread(target=_spin_until, args=(end,))
    spinning.start()
    rest()
    assert time.perf_counter() > end
    spinning.join()


def _spin_until(end: float) -> None:
    while time.perf_counter() < end:
        sum(range(1000))


def _logging(log: list[str], name: str) -> Callable[[], None]:
    def call() -> None:
        log.append(name)
        sum(range(60_000))

    return call


def test_a_short_call_is_repeated_until_the_clock_does_not_matter() -> None:
    assert calls_per_sample(lambda: None) > 100


ALL_CASES = [*cases.cpu_cases(False), *cases.latency_cases(), *gpu.workload_cases()]


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
def test_every_case_is_a_split(case: Case) -> None:
    assert sum(case.sizes) == case.shape[case.axis]
    moved = sum(np.prod(shape) for shape in case.output_shapes) * np.dtype(case.dtype).itemsize
    assert moved == case.total_bytes


def test_names_of_cases_are_unique() -> None:
    for group in (cases.cpu_cases(False), cases.latency_cases(), gpu.workload_cases()):
        assert len({case.name for case in group}) == len(group)


@pytest.mark.parametrize("name", peers_cpu.PEERS)
@pytest.mark.parametrize("case", [TINY, cases.latency_cases()[-1]], ids=lambda case: case.name)
def test_a_peer_is_exact_or_says_why_not(name: str, case: Case) -> None:
    problem = cpu.random_problem(case, 1)
    try:
        prepared = peers_cpu.PEERS[name](problem)
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
    cpu.check(problem, prepared)


@pytest.mark.parametrize("name", ["dmlsplit", "dmlsplit dispatch", "dmlsplit eager"])
def test_our_own_calls_are_exact(name: str) -> None:
    problem = cpu.random_problem(TINY, 1)
    cpu.check(problem, calls.PEERS[name](problem))


def test_a_wrong_peer_is_found_out() -> None:
    def forgets_a_byte(problem: Problem) -> Prepared:
        def call() -> None:
            for out, view in zip(problem.outputs, problem.views, strict=True):
                out[...] = view
            problem.outputs[1].view(np.uint8)[-1, -1] ^= 1

        return Prepared(call, lambda: problem.outputs)

    problem = cpu.random_problem(TINY, 1)
    with pytest.raises(AssertionError, match="output 1"):
        cpu.check(problem, forgets_a_byte(problem))


def absent(problem: Problem) -> Prepared:
    raise ModuleNotFoundError("No module named 'nothing'")


def broken(problem: Problem) -> Prepared:
    raise RuntimeError("grid.y is 70000;\n the most is 65535")


PEERS = {"dmlsplit": peers_cpu.dmlsplit_bound, "absent": absent, "broken": broken}


def run(path: Path, peers: dict[str, Any], chosen: list[Case], rounds: int = 2) -> Results:
    results = Results(path, "cpu", MACHINE)
    cpu.run(chosen, peers, [1], rounds, results, Table(len(chosen), "dmlsplit"))
    return results


def test_a_peer_that_fails_is_a_row_with_its_message(tmp_path: Path) -> None:
    rows = {row["peer"]: row for row in run(tmp_path / "a.json", PEERS, [TINY]).rows}
    assert rows["dmlsplit"]["status"] == "ok"
    assert rows["dmlsplit"]["seconds"]["count"] == 2
    assert rows["absent"]["status"] == "absent"
    assert rows["broken"]["status"] == "failed"
    assert rows["broken"]["message"] == "grid.y is 70000; the most is 65535"


def test_a_case_is_measured_in_three_allocations(tmp_path: Path) -> None:
    seen: list[np.ndarray] = []

    def at_first(problem: Problem) -> Prepared:
        seen.append(problem.array)
        if len(seen) == 3:
            raise MemoryError("no more")
        return peers_cpu.numpy_copyto(problem)

    peers = {"dmlsplit": peers_cpu.dmlsplit_bound, "at first": at_first}
    rows = {row["peer"]: row for row in run(tmp_path / "a.json", peers, [TINY], 7).rows}
    assert rows["dmlsplit"]["seconds"]["count"] == 7
    assert rows["at first"]["status"] == "failed"
    assert rows["at first"]["message"] == "no more"
    assert len({array.ctypes.data for array in seen}) == 3


def test_callers_at_once_split_in_threads_of_their_own(tmp_path: Path) -> None:
    working: dict[int, int] = {}
    met = threading.Barrier(2, timeout=20)

    def counted(problem: Problem) -> Prepared:
        bound = peers_cpu.dmlsplit_bound(problem)

        def call() -> None:
            # Checks and calibration aside, both callers are on the way when either works.
            if threading.current_thread() is not threading.main_thread():
                met.wait()
                working[threading.get_ident()] = working.get(threading.get_ident(), 0) + 1
            bound.call()

        return Prepared(call, bound.outputs)

    two = Case("2 at once", cases.CALLERS, (4, 4), "f4", 1, (1, 3), 2)
    (row,) = run(tmp_path / "a.json", {"dmlsplit": counted}, [two]).rows
    assert row["status"] == "ok"
    assert len(working) == 2
    assert len(set(working.values())) == 1
    assert min(working.values()) >= 4 * cpu.MOST_CALLS


def test_the_time_of_callers_at_once_is_that_of_one_split(tmp_path: Path) -> None:
    def slow(problem: Problem) -> Prepared:
        bound = peers_cpu.dmlsplit_bound(problem)

        def call() -> None:
            time.sleep(0.001)
            bound.call()

        return Prepared(call, bound.outputs)

    chosen = [Case(f"{n}", cases.CALLERS, (4, 4), "f4", 1, (1, 3), n) for n in (1, 4)]
    alone, together = run(tmp_path / "a.json", {"dmlsplit": slow}, chosen).rows
    assert alone["seconds"]["least"] >= 0.001
    # Four callers that sleep at once take a quarter of the time per split.
    assert 0.00025 <= together["seconds"]["least"] < 0.0008


def test_a_run_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    second = Case("second", cases.CASES, (4, 4), "f4", 0, (1, 3))

    def stops_at_second(problem: Problem) -> Prepared:
        if problem.case is second:
            raise KeyboardInterrupt
        return peers_cpu.dmlsplit_bound(problem)

    with pytest.raises(KeyboardInterrupt):
        run(path, {"dmlsplit": stops_at_second}, [TINY, second])
    first = load(path)["rows"]
    assert [row["case"] for row in first] == ["tiny"]
    resumed = run(path, {"dmlsplit": peers_cpu.dmlsplit_bound}, [TINY, second])
    assert [row["case"] for row in resumed.rows] == ["tiny", "second"]
    assert resumed.rows[0] == first[0]
    resumed.finish({"time": "later"})
    assert load(path)["resumed"] == [MACHINE["time"]]
    assert load(path)["after"] == {"time": "later"}
    assert list(tmp_path.iterdir()) == [path]


def test_only_an_unfinished_run_of_the_same_kind_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    Results(path, "cpu", MACHINE)
    with pytest.raises(ResultsError, match="kind is cpu; this run's is gpu"):
        Results(path, "gpu", MACHINE)
    with pytest.raises(ResultsError, match="commit is c0ffee"):
        Results(path, "cpu", {**MACHINE, "commit": "other"})
    Results(path, "cpu", MACHINE).finish({})
    with pytest.raises(ResultsError, match="the run in it is complete"):
        Results(path, "cpu", MACHINE)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 99}', "not json"])
def test_a_file_that_is_no_result_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(ResultsError, match="not "):
        load(path)
    with pytest.raises(ResultsError, match="not "):
        Results(path, "cpu", MACHINE)
    assert path.read_text() == text


def timed(case: str, peer: str, median: float, spread: float = 0.01) -> dict[str, Any]:
    samples = [median * (1 - 2 * spread), median, median * (1 + 2 * spread)]
    row = measured(summary(samples), samples, 1 << 20)
    return {"case": case, "kind": "case", "at": 0, "bytes": 1 << 20, "peer": peer, **row}


def a_run(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"rows": list(rows)}


def test_changes_beyond_noise_are_told() -> None:
    a = a_run(timed("x", "p", 1e-3), timed("x", "q", 1e-3), timed("x", "r", 1e-3, 0.3))
    b = a_run(timed("x", "p", 2e-3), timed("x", "q", 0.5e-3), timed("x", "r", 1.2e-3))
    verdicts = {change.key[2]: change.verdict for change in compare(a, b)}
    assert verdicts == {"p": "slower", "q": "faster", "r": "same"}
    text = report(compare(a, b))
    assert text.index("slower") < text.index("faster")
    assert "1 of 3 rows unchanged" in text


def test_a_slower_machine_is_not_a_slower_program() -> None:
    a = a_run(timed("x", "memcpy", 1e-3), timed("x", "p", 2e-3))
    b = a_run(timed("x", "memcpy", 2e-3), timed("x", "p", 4e-3))
    verdicts = {change.key[2]: change.verdict for change in compare(a, b)}
    assert verdicts == {"memcpy": "slower", "p": "same"}


def test_rows_that_come_and_go_are_told() -> None:
    gone = {**timed("x", "p", 1e-3), **failed(RuntimeError("no"))}
    a, b = a_run(timed("x", "p", 1e-3)), a_run(gone, timed("x", "q", 1e-3))
    verdicts = {change.key[2]: change.verdict for change in compare(a, b)}
    assert verdicts == {"p": "gone", "q": "new"}


def test_every_kind_of_figure_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.plot import plot

    rows = []
    for kind in (cases.CASES, cases.ROW_WIDTH, cases.SIZE, cases.OUTPUTS):
        for at in (1, 64, 4096):
            for peer, seconds in (("dmlsplit", 1e-3), ("plain copy", 0.9e-3), ("torch", 2e-3)):
                row = timed(f"{kind} {at}", peer, seconds)
                rows.append({**row, "kind": kind, "at": at, "threads": 1})
    data = {"kind": "cpu", "environment": MACHINE, "rows": rows}
    files = plot(data, tmp_path, "run")
    names = {"run-cases", "run-row-width", "run-size", "run-outputs"}
    assert {path.stem for path in files} == names
    for path in files:
        start = path.read_bytes()[:5]
        assert start == (b"<?xml" if path.suffix == ".svg" else b"\x89PNG\r")
    with pytest.raises(ResultsError, match="no finished rows"):
        plot({**data, "rows": []}, tmp_path, "run")


def test_lines_of_the_table() -> None:
    row = timed("x", "p", 2e-3)
    assert "1.00" in line(row, 2e-3)
    assert "failed: no card" in line({**row, **failed(RuntimeError("no card"))}, None)
    assert [duration(t) for t in (2.0, 3.14159e-3, 2e-6, 5e-9)] == [
        "2 s",
        "3.14 ms",
        "2 us",
        "5 ns",
    ]


def test_a_run_says_where_it_was_made() -> None:
    found = environment(["cpu", "--quick"], with_gpu=False)
    assert found["command"] == ["python", "-m", "benchmarks", "cpu", "--quick"]
    assert found["libraries"]["numpy"] == np.__version__
    assert found["machine"]["processors"] >= 1
    json.dumps([found, card_state()])


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
    monkeypatch.setenv(dispatch.INSIDE, "1")
    monkeypatch.setattr(dispatch, "_launch_kernel", lambda: (dispatch._nothing, "a stub launches"))
    monkeypatch.setattr(dispatch, "CALLS", 10)
    monkeypatch.setattr(dispatch, "BAR_US", 1e9)
    path = tmp_path / "dispatch.json"
    assert command.main(["dispatch", "--json", str(path)]) == 0
    assert "bar: 3 outputs in 1000000000.0 us: met" in capsys.readouterr().out
    found = json.loads(path.read_text())
    assert [row["outputs"] for row in found["rows"]] == list(dispatch.OUTPUTS)
    assert [row["launches"] for row in found["rows"]] == [1, 1, 1, 1, 1, 1, 3]
    assert found["environment"]["command"][3:] == ["dispatch", "--json", str(path)]
    monkeypatch.setattr(dispatch, "BAR_US", 0)
    assert command.main(["dispatch"]) == 1


def test_the_latency_command(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    words = ["latency", "--quick", "--only", "8 equal", "--rounds", "1", "-o", str(path)]
    assert command.main(words) == 0
    rows = load(path)["rows"]
    assert {row["peer"] for row in rows} >= set(calls.PEERS)
    assert all(row["status"] == "ok" for row in rows if row["peer"].startswith("dmlsplit"))


@pytest.mark.skipif(calls.has_card(), reason="this machine has a card")
def test_without_a_card_the_gpu_command_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.json"
    assert command.main(["gpu", "-o", str(path)]) == 2
    assert "error: " in capsys.readouterr().err
    assert not path.exists()


@pytest.mark.gpu
def test_the_gpu_command(tmp_path: Path) -> None:
    if not calls.has_card():
        pytest.skip("no CUDA device")
    path = tmp_path / "run.json"
    assert command.main(["gpu", "--quick", "--only", "2 QKV, decode", "-o", str(path)]) == 0
    found = load(path)
    assert found["after"] is not None
    assert {row["peer"] for row in found["rows"]} == set(FAST)
    (ours,) = (row for row in found["rows"] if row["peer"] == "dmlsplit")
    assert (ours["status"], ours["mode"]) == ("ok", "graph")


@pytest.mark.gpu
def test_a_name_that_no_case_has_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.json"
    assert command.main(["gpu", "--quick", "--only", "no such case", "-o", str(path)]) == 2
    assert "no case's name contains 'no such case'" in capsys.readouterr().err
    assert not path.exists()


def test_figures_in_the_readme_are_those_of_their_results() -> None:
    folder = Path(command.__file__).parent
    text = (folder / "README.md").read_text()
    for name, kind in (
        ("cpu-xeon-2", cases.CASES),
        ("cpu-xeon-2-again", cases.CASES),
        ("latency-xeon-2", None),
    ):
        assert f"results/{name}.json" in text
        assert markdown(load(folder / "results" / f"{name}.json"), kind) in text
    rows = json.loads((folder / "results" / "dispatch.json").read_text())["rows"]
    (found,) = (row["dispatch_us"] for row in rows if row["outputs"] == 3)
    assert f"{found:.2f} us with 3 outputs" in text


def test_a_ratio_is_the_peers_time_over_ours() -> None:
    slow, fast = timed("x", "p", 4e-3, 0.25), timed("x", "dmlsplit", 2e-3, 0)
    broken = {**timed("x", "q", 1.0), **failed(RuntimeError("no"))}
    assert markdown(a_run(fast, slow, broken)).splitlines() == [
        "| case | threads | dmlsplit | p | q |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| x |  | 2 ms | 2.00 / 1.00 | failed |",
    ]
