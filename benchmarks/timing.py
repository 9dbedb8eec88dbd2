"""Samples of host time, taken in turns, and what they say."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Call = Callable[[], object]

# A sample shorter than this is mostly the clock.
SHORTEST_SAMPLE = 200e-6
# Long enough for the spinning threads of the peer before to go to sleep.
SETTLE_SECONDS = 0.004


@dataclass(frozen=True, slots=True)
class Summary:
    """What a list of samples says: seconds per call."""

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
    """Return a quantile of sorted values, interpolated."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def calls_per_sample(call: Call) -> int:
    """Return how many calls a sample needs so that the clock does not matter."""
    count = 1
    while True:
        start = time.perf_counter()
        for _ in range(count):
            call()
        if time.perf_counter() - start >= SHORTEST_SAMPLE or count >= 1 << 16:
            return count
        count *= 4


def interleaved(
    calls: Mapping[str, Call], rounds: int, settle: float = SETTLE_SECONDS
) -> dict[str, list[float]]:
    """Time calls in turns, so that a slow moment of the machine meets all of them.

    Each turn sleeps, calls once untimed, and then times one sample. The order moves on by
    one from round to round.
    """
    counts = {name: calls_per_sample(call) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            call, count = calls[name], counts[name]
            time.sleep(settle)
            call()
            start = time.perf_counter()
            for _ in range(count):
                call()
            samples[name].append((time.perf_counter() - start) / count)
    return samples
