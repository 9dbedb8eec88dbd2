"""Samples of host time, and their statistics."""

import threading
import time
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import timing
from benchmarks.timing import calls_per_sample, interleaved, rest, summary


@given(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=50))
def test_a_summary_agrees_with_numpy(samples: list[float]) -> None:
    sample_summary = summary(samples)
    assert sample_summary.count == len(samples)
    assert sample_summary.median == pytest.approx(np.median(samples))
    assert sample_summary.least == min(samples)
    assert sample_summary.p20 == pytest.approx(np.quantile(samples, 0.2))
    assert sample_summary.p80 == pytest.approx(np.quantile(samples, 0.8))
    assert sample_summary.spread >= 0


def test_a_summary_needs_a_sample() -> None:
    with pytest.raises(ValueError, match="no samples"):
        summary([])


def test_each_round_times_every_call_once_in_an_order_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timing, "WARM_SECONDS", 0)
    monkeypatch.setattr(timing, "SHORTEST_SAMPLE", 0)
    log: list[str] = []

    def call(name: str) -> None:
        log.append(name)
        sum(range(60_000))

    round_count = 9
    samples = interleaved({name: partial(call, name) for name in "abc"}, round_count)
    assert {name: len(times) for name, times in samples.items()} == dict.fromkeys("abc", 9)
    # After the three calibrations, each sample is an untimed call and a timed one.
    calls_of_a_round = 3 * 2
    calls = "".join(log[-round_count * calls_of_a_round :])
    orders = {
        calls[start : start + calls_of_a_round] for start in range(0, len(calls), calls_of_a_round)
    }
    assert {"".join(sorted(order)) for order in orders} == {"aabbcc"}
    assert len(orders) > 2
    assert all(0 < sample < 1 for times in samples.values() for sample in times)


def test_warm_up_calls_for_its_time_and_at_least_once(monkeypatch: pytest.MonkeyPatch) -> None:
    start_times: list[float] = []
    start = time.perf_counter()
    timing.warm_up(lambda: start_times.append(time.perf_counter()))
    assert time.perf_counter() - start >= timing.WARM_SECONDS
    assert len(start_times) > 1
    monkeypatch.setattr(timing, "WARM_SECONDS", 0)
    timing.warm_up(start_times.clear)
    assert not start_times


def test_rest_waits_until_other_threads_are_idle() -> None:
    end = time.perf_counter() + 0.05

    def spin() -> None:
        while time.perf_counter() < end:
            sum(range(1000))

    spinning = threading.Thread(target=spin)
    spinning.start()
    rest()
    assert time.perf_counter() > end
    spinning.join()


def test_a_sample_repeats_an_empty_call_over_100_times() -> None:
    assert calls_per_sample(lambda: None, 2e-3) > 100
