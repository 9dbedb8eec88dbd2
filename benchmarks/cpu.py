"""`python -m benchmarks cpu`: the NumPy engine beside other CPU libraries."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from benchmarks.cases import Case
from benchmarks.peers_cpu import ONE_THREAD, Peer, Prepared, Problem
from benchmarks.results import Results, failed, measured
from benchmarks.table import Table
from benchmarks.timing import interleaved, summary


def run(
    cases: list[Case],
    peers: Mapping[str, Peer],
    threads: list[int],
    rounds: int,
    results: Results,
    table: Table,
) -> None:
    """Measure every case at every number of threads; rows that exist are kept."""
    for case in cases:
        for count in threads:
            wanted = {
                name: peer
                for name, peer in peers.items()
                if (count == 1 or name not in ONE_THREAD)
                and not results.has(case=case.name, threads=count, peer=name)
            }
            if wanted:
                _measure(case, count, wanted, rounds, results, table)
            table.advance()


def _measure(
    case: Case,
    threads: int,
    peers: Mapping[str, Peer],
    rounds: int,
    results: Results,
    table: Table,
) -> None:
    head = {"case": case.name, "kind": case.kind, "at": case.at, "bytes": case.total_bytes}
    problem = random_problem(case, threads)
    ready: dict[str, Prepared] = {}
    rows = {}
    for name, peer in peers.items():
        try:
            ready[name] = peer(problem)
            check(problem, ready[name])
        except Exception as error:
            ready.pop(name, None)
            rows[name] = failed(error)
    if ready:
        # A peer that sets its threads for the whole process sets the same for all.
        samples = interleaved({name: entry.call for name, entry in ready.items()}, rounds)
        rows |= {
            name: measured(summary(taken), taken, case.total_bytes)
            for name, taken in samples.items()
        }
    for name in peers:
        row = {**head, "threads": threads, "peer": name, **rows[name]}
        results.add(row)
        table.add(row)


def random_problem(case: Case, threads: int) -> Problem:
    """Return a case with random bytes and outputs whose pages are in memory."""
    dtype = np.dtype(case.dtype)
    random = np.random.default_rng(7)
    data = random.integers(0, 256, prod(case.shape) * dtype.itemsize, dtype=np.uint8)
    outputs = [np.full(shape, 1, dtype) for shape in case.output_shapes]
    return Problem(case, data.view(dtype).reshape(case.shape), outputs, threads)


def check(problem: Problem, prepared: Prepared) -> None:
    """Run once on poisoned outputs and compare every byte with NumPy's pieces.

    Raises
    ------
    AssertionError
        If a byte differs.
    """
    for out in problem.outputs:
        out.view(np.uint8)[...] = 0xA5
    prepared.call()
    for index, (out, view) in enumerate(zip(prepared.outputs(), problem.views, strict=False)):
        if out.tobytes() != view.tobytes():
            raise AssertionError(f"output {index} differs from numpy.split")
