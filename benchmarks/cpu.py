"""`python -m benchmarks cpu`: the CPU engine against other CPU libraries."""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from math import prod

import numpy as np

from benchmarks.cases import CALLERS, Case
from benchmarks.peers_cpu import ONE_THREAD, PEERS_OF, Peer, Prepared, Problem
from benchmarks.results import Results, Row, failed, measured
from benchmarks.table import Table
from benchmarks.timing import Call, interleaved, summary

# Bytes that each caller splits per sample: enough that starting the threads does not matter.
CALLER_BYTES, MAX_CALLS = 128 << 20, 128
# Times depend on the address of the memory by a few per cent, so each case is repeated in this many
# allocations.
ALLOCATIONS = 3


# A neighbour makes copies that are larger than any cache, until it is stopped.
NEIGHBOUR = "import numpy as n; a = n.ones(1 << 26, 'u1'); b = a.copy()\nwhile True: b[:] = a"


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Run processes beside the block that copy memory, at the same priority."""
    with ExitStack() as ends:
        for _ in range(count):
            process = subprocess.Popen([sys.executable, "-c", NEIGHBOUR])
            ends.callback(process.wait)
            ends.callback(process.kill)
        yield


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
            unmeasured = {
                name: peer
                for name, peer in PEERS_OF.get(case.kind, peers).items()
                if (count == 1 or name not in ONE_THREAD)
                and not results.has(case=case.name, threads=count, peer=name)
            }
            if unmeasured:
                _measure(case, count, unmeasured, rounds, results, table)
            table.advance()


def _measure(
    case: Case, threads: int, peers: Mapping[str, Peer], rounds: int, results: Results, table: Table
) -> None:
    head = {"case": case.name, "kind": case.kind, "at": case.at, "bytes": case.total_bytes}
    samples: dict[str, list[float]] = {name: [] for name in peers}
    failures: dict[str, Row] = {}
    for part in _shares(rounds, ALLOCATIONS):
        sound = {name: peer for name, peer in peers.items() if name not in failures}
        taken, failed_now = _samples(case, threads, sound, part)
        failures |= failed_now
        for name, seconds in taken.items():
            samples[name] += seconds
    for name, seconds in samples.items():
        outcome = failures.get(name) or measured(summary(seconds), seconds, case.total_bytes)
        row = {**head, "threads": threads, "peer": name, **outcome}
        results.add(row)
        table.add(row)


def _shares(rounds: int, parts: int) -> list[int]:
    """Distribute rounds evenly; no share is empty."""
    parts = min(parts, rounds)
    return [rounds * (part + 1) // parts - rounds * part // parts for part in range(parts)]


def _samples(
    case: Case, threads: int, peers: Mapping[str, Peer], rounds: int
) -> tuple[dict[str, list[float]], dict[str, Row]]:
    """Check and time all peers on the same new memory; return samples, and rows of failures."""
    callers = int(case.at) if case.kind == CALLERS else 1
    problems = [random_problem(case, threads) for _ in range(callers)]
    ready: dict[str, list[Call]] = {}
    failures: dict[str, Row] = {}
    for name, peer in peers.items():
        try:
            prepared = [peer(problem) for problem in problems]
            for problem, entry in zip(problems, prepared, strict=True):
                check(problem, entry)
            ready[name] = [entry.call for entry in prepared]
        except Exception as error:
            failures[name] = failed(error)
    # Some peers set the number of threads of the whole process, so it is the same for all peers.
    return _seconds_per_split(case, ready, rounds), failures


def _seconds_per_split(
    case: Case, ready: Mapping[str, Sequence[Call]], rounds: int
) -> dict[str, list[float]]:
    """Time every peer; for several callers at once, divide the total time by all their splits."""
    if case.kind != CALLERS:
        return interleaved({name: call for name, (call,) in ready.items()}, rounds)
    times = min(MAX_CALLS, -(-CALLER_BYTES // case.total_bytes))
    with ThreadPoolExecutor(int(case.at)) as pool:
        samples = interleaved({name: _at_once(pool, ready[name], times) for name in ready}, rounds)
    splits = int(case.at) * times
    return {name: [sample / splits for sample in taken] for name, taken in samples.items()}


def _at_once(pool: ThreadPoolExecutor, calls: Sequence[Call], times: int) -> Call:
    """A call that repeats each of `calls`, `times` times, in a thread of its own."""

    def repeat(call: Call) -> None:
        for _ in range(times):
            call()

    return lambda: list(pool.map(repeat, calls))


def random_problem(case: Case, threads: int) -> Problem:
    """A case with random bytes, and outputs whose pages are in memory."""
    dtype = np.dtype(case.dtype)
    random = np.random.default_rng(7)
    data = random.integers(0, 256, prod(case.shape) * dtype.itemsize, dtype=np.uint8)
    outputs = [np.full(shape, 1, dtype) for shape in case.output_shapes]
    return Problem(case, data.view(dtype).reshape(case.shape), outputs, threads)


def check(problem: Problem, prepared: Prepared) -> None:
    """Run once on poisoned outputs, and compare every byte with NumPy's pieces.

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
