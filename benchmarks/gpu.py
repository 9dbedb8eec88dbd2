"""`python -m benchmarks gpu`: the CUDA engine against other libraries, on one GPU."""

import argparse
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import cases, gpu_planner, l2_policies, sweep
from benchmarks.cases import Case
from benchmarks.copies import COPIES
from benchmarks.environment import environment, state_after
from benchmarks.gpu_problem import (
    BufferSet,
    GpuPeer,
    GpuPrepared,
    GpuProblem,
    empty_outputs,
    poison,
)
from benchmarks.gpu_samples import Sample, alternating, best_copy, host_samples, sampler
from benchmarks.peers_gpu import FAST, PEERS
from benchmarks.results import Results, ResultsError, Row, failed, measured
from benchmarks.streams import one_stream
from benchmarks.table import Table
from benchmarks.timing import summary
from benchmarks.workloads import WORKLOADS

# At most this many rotating sets of buffers: making more would take longer than measuring.
MAX_SETS = 64
MAX_ARRAYS = 8192
WARM_UP_BYTES = 1 << 28
# Not 2 GiB: copies of exactly this size are slow (github.com/pytorch/pytorch/issues/191284).
CEILING_BYTES = (1 << 31) - (4 << 20)
_INTEGERS = {1: "u1", 2: "i2", 4: "i4", 8: "i8"}


def main(options: argparse.Namespace, argv: list[str], path: Path) -> int:
    """Run the workloads and sweeps on the current GPU."""
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except ImportError:
        raise ResultsError("CuPy is not installed. Fix: pip install 'dmlsplit[cuda13]'") from None
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise ResultsError(f"no CUDA device: {error}") from None
    if options.planner:
        return _planner(options.only or "")
    minutes = options.minutes or (2.0 if options.quick else 10.0)
    deadline = time.monotonic() + 60 * minutes
    chosen = [
        (case, peers)
        for case, peers in (_sweep() if options.sweep else _plan(options.quick))
        if (options.only or "") in case.name
    ]
    if not chosen:
        raise ResultsError(f"no case's name contains {options.only!r}; nothing was measured")
    results = Results(path, "gpu", environment(argv, with_gpu=True))
    table = Table(len(chosen), "dmlsplit")
    seconds = 0.1 if options.quick else 0.4
    rounds = options.rounds or (10 if options.quick else 25)
    left = 0
    with one_stream():
        _warm_up()
        for case, peers in chosen:
            if time.monotonic() > deadline:
                left += 1
                continue
            measure(case, peers, seconds, rounds, results, table)
            table.advance()
    table.close()
    if left:
        print(f"\n{left} cases left: the time is up. Resume with -o {results.path}")
        return 1
    results.finish(state_after(with_gpu=True))
    print(f"\n{results.path}")
    return 0


def _planner(only: str) -> int:
    """Print what the planner's thresholds and the L2 policies should be."""
    import cupy

    with one_stream():
        _warm_up()
        for cell in gpu_planner.cells(_speed, only):
            print(cell, flush=True)
        properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
        for line in l2_policies.rows(int(properties["l2CacheSize"]), l2_policies.timer()):
            print(line, flush=True)
    return 0


def _speed(case: Case) -> float:
    """The speed of a split as a fraction of a copy's, after every byte has been checked."""
    problem = random_problem(integers(case))
    prepared = PEERS["dmlsplit"](problem)
    check(problem, prepared)
    sample, _ = sampler(prepared, len(problem.sets))
    samples, copies = alternating(sample, best_copy(problem), seconds=0.2, rounds=10)
    return summary(copies).median / summary(samples).median


def _plan(quick: bool) -> Iterator[tuple[Case, Mapping[str, GpuPeer]]]:
    """Every case with the peers to measure on it."""
    yield Case("ceiling", "ceiling", (CEILING_BYTES,), "u1", 0, (CEILING_BYTES,)), COPIES
    for case in WORKLOADS:
        yield integers(case), FAST if quick else PEERS
    if not quick:
        for case in cases.row_widths(1 << 28) + cases.total_sizes() + cases.output_counts(1 << 28):
            yield integers(case), FAST


def _sweep() -> Iterator[tuple[Case, Mapping[str, GpuPeer]]]:
    """The cases of sweep.py, each beside copies of its number of bytes."""
    peers = {"dmlsplit": PEERS["dmlsplit"], **COPIES}
    for case in sweep.cases():
        yield integers(case), peers


def integers(case: Case) -> Case:
    """The case with the same bytes in a type that CuPy, torch and JAX all have."""
    width = np.dtype(case.dtype).itemsize
    if width == 16:
        shape = (*case.shape, 2)
        strides = None if case.strides is None else (*case.strides, 8)
        return replace(case, shape=shape, dtype="i8", strides=strides)
    return replace(case, dtype=_INTEGERS[width])


def measure(
    case: Case,
    peers: Mapping[str, GpuPeer],
    seconds: float,
    rounds: int,
    results: Results,
    table: Table,
) -> None:
    """Check and time every peer of a case; rows that exist are kept."""
    import cupy

    unmeasured = {n: p for n, p in peers.items() if not results.has(case=case.name, peer=n)}
    if not unmeasured:
        return
    head = {"case": case.name, "kind": case.kind, "at": case.at, "bytes": case.total_bytes}
    try:
        problem: GpuProblem | None = random_problem(case)
    except Exception as error:
        problem, broken = None, error
    copy: Sample | None = None
    for name, peer in unmeasured.items():
        try:
            if problem is None:
                raise broken
            copy = copy or best_copy(problem)
            row = _time_peer(problem, peer, copy, seconds, rounds)
        except Exception as error:
            row = failed(error)
        row = {**head, "peer": name, **row}
        results.add(row)
        table.add(row)
        if row["status"] == "failed":
            _refuse_lost_gpu(row, results)
    del problem, copy
    cupy.get_default_memory_pool().free_all_blocks()


def _refuse_lost_gpu(row: Row, results: Results) -> None:
    """Stop if a peer broke the CUDA context, because all later rows would be wrong."""
    import cupy

    try:
        cupy.cuda.Device().synchronize()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise ResultsError(
            f"{row['peer']} on {row['case']} broke the CUDA context ({error}); the row is noted. "
            f"Fix: run again with -o {results.path}, which continues after it"
        ) from None


def _time_peer(
    problem: GpuProblem, peer: GpuPeer, copy: Sample, seconds: float, rounds: int
) -> Row:
    prepared = peer(problem)
    check(problem, prepared)
    sample, mode = sampler(prepared, len(problem.sets))
    samples, copies = alternating(sample, copy, seconds, rounds)
    host = host_samples(prepared, len(problem.sets))
    row = measured(summary(samples), samples, problem.case.moved_bytes)
    return {
        **row,
        "mode": mode,
        "buffer_sets": len(problem.sets),
        "copy_seconds": asdict(summary(copies)),
        "host_seconds": asdict(summary(host)),
    }


def random_problem(case: Case) -> GpuProblem:
    """A problem with random bytes and enough sets of buffers that no set stays in the cache."""
    import cupy

    device = cupy.cuda.Device()
    cache = int(cupy.cuda.runtime.getDeviceProperties(device.id)["l2CacheSize"])
    free, _ = device.mem_info
    needed = case.span_bytes + case.total_bytes
    beyond_cache = max(2, -(-3 * cache // needed))
    fitting = int(0.25 * free) // needed
    most = min(max(2, MAX_ARRAYS // len(case.sizes)), MAX_SETS)
    count = max(1, min(beyond_cache, fitting, most))
    return GpuProblem(case, [_buffer_set(case) for _ in range(count)])


def _buffer_set(case: Case) -> BufferSet:
    import cupy

    dtype, src = np.dtype(case.dtype), case.misaligned[0]
    memory = random_words(-(-(src + case.span_bytes) // 4)).view(cupy.uint8)
    array = cupy.ndarray(case.shape, dtype, memory.data + src, strides=case.strides)
    return BufferSet(array, memory=memory, **empty_outputs(case))


def random_words(count: int) -> Any:
    """Random 32-bit words, made on the GPU."""
    import cupy

    return cupy.random.randint(0, 1 << 32, count, dtype=cupy.uint32)


def count_different(actual: list[Any], expected: list[Any]) -> int:
    """Compare arrays on the GPU; return how many pairs differ."""
    return int(sum((one != other).any() for one, other in zip(actual, expected, strict=True)))


def check(problem: GpuProblem, prepared: GpuPrepared) -> None:
    """Run once on poisoned outputs of every set, and compare every byte.

    Raises
    ------
    AssertionError
        If a byte differs.
    """
    import cupy

    for index, entry in enumerate(problem.sets):
        poison(entry.outputs)
        cupy.cuda.get_current_stream().synchronize()
        prepared.call(index)
        outputs = prepared.outputs(index)
        cupy.cuda.get_current_stream().synchronize()
        views = problem.views(index) if prepared.is_split else [entry.memory[: outputs[0].size]]
        if wrong := count_different(outputs, views):
            raise AssertionError(f"{wrong} of {len(views)} outputs differ on set {index}")


def _warm_up(seconds: float = 0.7) -> None:
    """Keep the GPU busy until its clocks are up."""
    import cupy

    src = cupy.zeros(WARM_UP_BYTES, cupy.uint8)
    dst = cupy.empty_like(src)
    stop = time.monotonic() + seconds
    while time.monotonic() < stop:
        for _ in range(20):
            cupy.copyto(dst, src)
        cupy.cuda.get_current_stream().synchronize()
