"""Samples of host time, interleaved between peers, and their summary."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

Call = Callable[[], object]

# Long enough for the clock's resolution, and to average over single calls.
SHORTEST_SAMPLE = 2e-3
# For a sample that is one of many.
SHORT_SAMPLE = 2e-4
# A process is at rest if it used at most a tenth of REST_SECONDS of processor time in that long.
# After LONGEST_WAIT, it is measured in any case.
REST_SECONDS = 0.01
LONGEST_WAIT = 0.2
# On virtual processors, we saw calls become faster during the first 20 to 50 ms after a rest.
WARM_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Summary:
    """Statistics of samples, in seconds per call."""

    count: int
    median: float
    p20: float
    p80: float
    least: float

    @property
    def spread(self) -> float:
        """Half of the range from p20 to p80, relative to the median."""
        return (self.p80 - self.p20) / (2 * self.median) if self.median else 0.0


def summary(samples: Sequence[float]) -> Summary:
    """Summarise samples; there must be at least one."""
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    return Summary(
        len(ordered),
        statistics.median(ordered),
        quantile(ordered, 0.2),
        quantile(ordered, 0.8),
        ordered[0],
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """A quantile of sorted values, interpolated."""
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def calls_per_sample(call: Call, shortest: float) -> int:
    """The number of calls that take at least `shortest` seconds."""
    count = 1
    while True:
        start = time.perf_counter()
        for _ in range(count):
            call()
        if time.perf_counter() - start >= shortest or count >= 1 << 16:
            return count
        count *= 4


def interleaved(
    calls: Mapping[str, Call], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Time one sample of every call per round, so that a slow moment of the machine affects all.

    Before each sample the process comes to rest and then makes untimed calls for a while, because
    the first calls after a rest take up to twice as long as the following ones. Each round has its
    own random order, so that no peer always follows the same one.
    """

    def prepare(call: Call) -> None:
        rest()
        warm_up(call)

    return _samples(calls, rounds, SHORTEST_SAMPLE, prepare, clock)


def short_samples(calls: Mapping[str, Call], rounds: int) -> dict[str, list[float]]:
    """Time many short samples of calls on this thread alone, in a new order each round.

    Most of them are too short for another program to interrupt, so the least of them are the times
    of an idle machine also on a busy one.
    """
    for call in calls.values():
        warm_up(call)
    # One call before a sample brings its data into the caches.
    return _samples(calls, rounds, SHORT_SAMPLE, lambda call: call(), time.perf_counter)


def _samples(
    calls: Mapping[str, Call],
    rounds: int,
    shortest: float,
    prepare: Callable[[Call], object],
    clock: Callable[[], float],
) -> dict[str, list[float]]:
    """Time samples of at least `shortest` seconds, in a random order in each round."""
    counts = {name: calls_per_sample(call, shortest) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    order, draw = list(calls), Random(rounds)  # noqa: S311
    for _ in range(rounds):
        draw.shuffle(order)
        for name in order:
            call, count = calls[name], counts[name]
            prepare(call)
            start = clock()
            for _ in range(count):
                call()
            samples[name].append((clock() - start) / count)
    return samples


def warm_up(call: Call) -> None:
    """Call at least once, until caches, page tables and processors are warm."""
    end = time.perf_counter() + WARM_SECONDS
    call()
    while time.perf_counter() < end:
        call()


def rest() -> None:
    """Sleep until no thread of this process is busy, because worker threads spin after a call.

    We saw ONNX Runtime's threads spin for 25 ms and OpenMP's for 6 ms. The next peer would share
    its processors with them.
    """
    begin = quiet = time.perf_counter()
    used = time.process_time()
    while time.perf_counter() < min(quiet + REST_SECONDS, begin + LONGEST_WAIT):
        time.sleep(REST_SECONDS / 4)
        if (now := time.process_time()) > used + REST_SECONDS / 10:
            used, quiet = now, time.perf_counter()
