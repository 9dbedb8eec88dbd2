"""Host time of one bound dispatch with three outputs.

    python -m benchmarks.latency [--dispatches N] [--json FILE]

With CuPy and a device, the launches are real. Without, a null driver stands in: what is
measured is all that this library does, and a call that returns at once. Either way the
figure is of the host: it says nothing of the copy.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
from tqdm import trange

from dmlsplit.backends import driver
from dmlsplit.backends.cuda import CudaBackend
from dmlsplit.backends.planning import H200
from dmlsplit.backends.prepacked import Enqueue, prepacked
from dmlsplit.errors import UnsupportedError
from dmlsplit.geometry import split_geometry

OUTPUTS = 3
ROUNDS = 25
BAR_US = 3.0


@dataclass(frozen=True)
class Latency:
    """Microseconds per dispatch over all rounds.

    Attributes
    ----------
    case : str
        What was dispatched.
    driver : str
        ``null``, or the device.
    dispatches : int
        Per round.
    minimum_us, median_us, maximum_us : float
        Of the rounds' means.
    """

    case: str
    driver: str
    dispatches: int
    minimum_us: float
    median_us: float
    maximum_us: float


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table, and write JSON where it is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--dispatches", type=int, default=20_000, help="per round (20000)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    arguments = parser.parse_args(argv)
    if arguments.dispatches < 1:
        parser.error(f"--dispatches is {arguments.dispatches}; it must be at least 1")
    found = measure(arguments.dispatches)
    print(f"{'case':<34}{'driver':<10}{'min':>8}{'median':>8}{'max':>8}  us per dispatch")
    for row in found:
        print(
            f"{row.case:<34}{row.driver:<10}"
            f"{row.minimum_us:8.3f}{row.median_us:8.3f}{row.maximum_us:8.3f}"
        )
    if arguments.json:
        report = {
            "python": platform.python_version(),
            "machine": platform.processor() or platform.machine(),
            "bar_us": BAR_US,
            "latency": [asdict(row) for row in found],
        }
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


def measure(dispatches: int) -> list[Latency]:
    """Return the latency of a dispatch on the current stream, and on one that is named."""
    geometry = split_geometry((64, 48), 1, (16,) * OUTPUTS, 4, (192, 4), [None] * OUTPUTS)
    program = CudaBackend("cuda:0").compile(geometry)
    with _machine() as machine:
        launch = program.bind(machine.source, machine.targets)
        cases: dict[str, Callable[[], None]] = {
            f"{OUTPUTS} outputs, current stream": launch,
            f"{OUTPUTS} outputs, stream=handle": lambda: launch(0),
        }
        return [_timed(case, machine, call, dispatches) for case, call in cases.items()]


@dataclass(frozen=True)
class _Machine:
    """Where launches go: addresses that may be bound, and what waits until all are done."""

    driver: str
    source: int
    targets: list[int]
    wait: Callable[[], object]
    keep: object = None


def _timed(case: str, machine: _Machine, call: Callable[[], None], dispatches: int) -> Latency:
    rounds = []
    for _ in trange(ROUNDS, desc=case, leave=False):
        start = time.perf_counter_ns()
        for _ in range(dispatches):
            call()
        rounds.append((time.perf_counter_ns() - start) / dispatches / 1000)
        machine.wait()
    figures = min(rounds), statistics.median(rounds), max(rounds)
    return Latency(case, machine.driver, dispatches, *figures)


@contextmanager
def _machine() -> Iterator[_Machine]:
    try:
        found = driver.device_count() > 0
    except UnsupportedError:
        found = False
    if found:
        yield _cuda_machine()
        return
    with _null_driver():
        yield _Machine("null", 4096, [8192, 12288, 16384], lambda: None)


def _cuda_machine() -> _Machine:
    arrays = [driver.empty(0, (64, 48), None, np.dtype("f4"), 0) for _ in range(1 + OUTPUTS)]
    source, *targets = (array.data.ptr for array in arrays)
    # Copying an element to the host waits for the stream.
    return _Machine("cuda:0", source, targets, lambda: driver.download(arrays[0][0]), arrays)


@contextmanager
def _null_driver() -> Iterator[None]:
    """Stand in for the driver: a launch is real up to the call that would enter CUDA."""
    entries = SimpleNamespace(
        launchKernel=lambda *arguments: None,
        ctxGetCurrent=lambda: 1,
        ctxSetCurrent=lambda context: None,
        CUDADriverError=RuntimeError,
    )
    stream = SimpleNamespace(ptr=0)

    def enqueuer(kernel: driver.Kernel, grid: int, block: int, pointers: Sequence[int]) -> Enqueue:
        return prepacked(entries, 1, kernel.context, grid, block, pointers, lambda error: error)

    with (
        patch.object(driver, "limits", lambda device: H200),
        patch.object(driver, "load", lambda device, name, text: driver.Kernel(name, 0, 1, 1, None)),
        patch.object(driver, "enqueuer", enqueuer),
        patch.object(driver, "current_stream", lambda device: stream.ptr),
    ):
        yield


if __name__ == "__main__":
    raise SystemExit(main())
