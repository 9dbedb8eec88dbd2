"""Runs on the CPU: rows of failures, allocations, callers, resuming, and the peers."""

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import cases, cpu, peers_cpu
from benchmarks.cases import Case
from benchmarks.peers_cpu import Prepared, Problem
from benchmarks.results import Results, load
from benchmarks.table import Table
from tests.support.benchmarks import MACHINE

TINY = Case("tiny", cases.CASES, (6, 4), "f4", 1, (1, 3))


def absent(problem: Problem) -> Prepared:
    raise ModuleNotFoundError("No module named 'nothing'")


def broken(problem: Problem) -> Prepared:
    raise RuntimeError("grid.y is 70000;\n the most is 65535")


PEERS = {"dmlsplit": peers_cpu.dmlsplit_bound, "absent": absent, "broken": broken}


def run(path: Path, peers: dict[str, Any], case_list: list[Case], rounds: int = 2) -> Results:
    results = Results(path, "cpu", MACHINE)
    cpu.run(case_list, peers, [1], rounds, results, Table(len(case_list), "dmlsplit"))
    return results


def test_a_peer_that_fails_is_a_row_with_its_message(tmp_path: Path) -> None:
    rows = {row["peer"]: row for row in run(tmp_path / "a.json", PEERS, [TINY]).rows}
    assert rows["dmlsplit"]["status"] == "ok"
    assert rows["dmlsplit"]["seconds"]["count"] == 2
    assert rows["absent"]["status"] == "absent"
    assert rows["broken"]["status"] == "failed"
    assert rows["broken"]["message"] == "grid.y is 70000; the most is 65535"


def test_a_case_is_measured_in_three_allocations(tmp_path: Path) -> None:
    input_arrays: list[np.ndarray] = []

    def at_first(problem: Problem) -> Prepared:
        input_arrays.append(problem.array)
        if len(input_arrays) == 3:
            raise MemoryError("no more")
        return peers_cpu.numpy_copyto(problem)

    peers = {"dmlsplit": peers_cpu.dmlsplit_bound, "at first": at_first}
    rows = {row["peer"]: row for row in run(tmp_path / "a.json", peers, [TINY], 7).rows}
    assert rows["dmlsplit"]["seconds"]["count"] == 7
    assert rows["at first"]["status"] == "failed"
    assert rows["at first"]["message"] == "no more"
    assert len({array.ctypes.data for array in input_arrays}) == 3


def test_concurrent_callers_split_in_separate_threads(tmp_path: Path) -> None:
    working: Counter[str] = Counter()
    met = threading.Barrier(2, timeout=20)

    def counted(problem: Problem) -> Prepared:
        bound = peers_cpu.dmlsplit_bound(problem)

        def call() -> None:
            # Except in checks and calibration, both callers have started before either splits.
            thread = threading.current_thread()
            if thread is not threading.main_thread():
                met.wait()
                # Each allocation has its own pool; "ThreadPoolExecutor-2_0" is a first thread.
                working[thread.name.rpartition("_")[2]] += 1
            bound.call()

        return Prepared(call, bound.outputs)

    case_of_two = Case("2 at once", cases.CALLERS, (4, 4), "f4", 1, (1, 3), 2)
    (row,) = run(tmp_path / "a.json", {"dmlsplit": counted}, [case_of_two]).rows
    assert row["status"] == "ok"
    assert set(working) == {"0", "1"}
    assert len(set(working.values())) == 1
    # Each of the two rounds is a warm-up and a sample, with the most calls, as the splits are tiny.
    assert min(working.values()) >= 2 * 2 * cpu.MAX_CALLS


def test_a_run_continues_where_it_was_interrupted(tmp_path: Path) -> None:
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


# Peers: each is exact, or absent with a reason; a wrong one is noticed.


@pytest.mark.parametrize("name", peers_cpu.PEERS)
@pytest.mark.parametrize("case", [TINY, cases.latency_cases()[-1]], ids=lambda case: case.name)
def test_every_installed_peer_is_exact(name: str, case: Case) -> None:
    problem = cpu.random_problem(case, 1)
    try:
        prepared = peers_cpu.PEERS[name](problem)
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
    cpu.check(problem, prepared)


def test_a_peer_that_writes_a_wrong_byte_fails_its_check() -> None:
    def forgets_a_byte(problem: Problem) -> Prepared:
        def call() -> None:
            for out, view in zip(problem.outputs, problem.views, strict=True):
                out[...] = view
            problem.outputs[1].view(np.uint8)[-1, -1] ^= 1

        return Prepared(call, lambda: problem.outputs)

    problem = cpu.random_problem(TINY, 1)
    with pytest.raises(AssertionError, match="output 1"):
        cpu.check(problem, forgets_a_byte(problem))
