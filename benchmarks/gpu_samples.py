"""Samples of GPU and host time of a peer, interleaved with those of a copy."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from benchmarks.copies import COPIES
from benchmarks.gpu_problem import GpuPrepared, GpuProblem
from benchmarks.results import Row, measured
from benchmarks.timing import summary

# A sample is at least this long, so that the resolution of events does not matter.
SAMPLE_SECONDS = 1e-3
MAX_CALLS = 200
HOST_CALLS = 20  # of a sample of host time

Sample = Callable[[], float]  # seconds of a call


def best_copy(problem: GpuProblem) -> Sample:
    """The fastest of the copies that this GPU can make, which is timed beside each peer."""
    samples = []
    for peer in COPIES.values():
        with suppress(Exception):  # its own row has the reason
            samples.append(sampler(peer(problem), len(problem.sets))[0])
    if not samples:
        raise RuntimeError("no plain copy runs; the rows of the copies have the reasons")
    return min(samples, key=lambda sample: min(sample() for _ in range(3)))


def sampler(prepared: GpuPrepared, sets: int) -> tuple[Sample, str]:
    """A function that returns the seconds of a call on rotating sets, and how it measures them.

    It calls as often without timing first, so that the clocks and caches are those of the peer.
    """
    if prepared.mode == "wall":
        return wall_sampler(prepared, sets), "wall"
    import cupy

    stream = cupy.cuda.get_current_stream()

    def queue(count: int) -> Callable[[], None]:
        def calls() -> None:
            for number in range(count):
                prepared.call(number % sets)

        return calls

    def timed(go: Callable[[], Any], calls: int) -> float:
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        go()
        start.record(stream)
        go()
        end.record(stream)
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(start, end)) * 1e-3 / calls

    guess = timed(queue(sets), sets)
    count = sets * max(1, min(MAX_CALLS, round(SAMPLE_SECONDS / guess)) // sets)
    go, mode = queue(count), "queue"
    if prepared.mode == "graph" and (graph := _captured(go)) is not None:
        mode = "graph"

        def go() -> None:
            graph.launch(stream)

    return lambda: timed(go, count), mode


def alternating(
    sample: Sample, copy: Sample, seconds: float, rounds: int
) -> tuple[list[float], list[float]]:
    """Interleaved samples of a peer and of the copy: a slow moment of the GPU affects both."""
    samples: list[float] = []
    copies: list[float] = []
    stop = time.monotonic() + seconds
    while len(samples) < 5 or (len(samples) < rounds and time.monotonic() < stop):
        copies.append(copy())
        samples.append(sample())
    return samples, copies


def _captured(go: Callable[[], None]) -> Any:
    """A CUDA graph of the calls, or None if they cannot be captured."""
    import cupy

    stream = cupy.cuda.get_current_stream()
    stream.begin_capture()
    try:
        go()
    except Exception:
        # A failed capture must be ended before the stream can be used again.
        with suppress(cupy.cuda.runtime.CUDARuntimeError):
            stream.end_capture()
        return None
    return stream.end_capture()


def wall_sampler(prepared: GpuPrepared, sets: int) -> Sample:
    """Measures seconds per call on the host's clock, for a library with its own streams."""
    import jax

    def timed(count: int) -> float:
        jax.block_until_ready(prepared.call(0))
        start = time.perf_counter()
        for number in range(count):
            last = prepared.call(number % sets)
        jax.block_until_ready(last)
        return (time.perf_counter() - start) / count

    guess = timed(sets)
    count = max(sets, min(MAX_CALLS, round(5 * SAMPLE_SECONDS / guess)))
    return lambda: timed(count)


def host_samples(prepared: GpuPrepared, sets: int) -> list[float]:
    """Host seconds per call while the queue is far from full."""
    import cupy

    samples = []
    for _ in range(7):
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        for number in range(HOST_CALLS):
            prepared.call(number % sets)
        samples.append((time.perf_counter() - start) / HOST_CALLS)
    cupy.cuda.Device().synchronize()
    return samples


def host_row(prepared: GpuPrepared, problem: GpuProblem) -> Row:
    """The columns of a host-time measurement."""
    samples = host_samples(prepared, len(problem.sets))
    return measured(summary(samples), samples, problem.case.moved_bytes)
