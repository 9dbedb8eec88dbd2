"""`python -m benchmarks dispatch`: what a bound CUDA dispatch costs the host, without a device.

The launch returns at once: it is CuPy's own `launchKernel` on a libcuda built here that does
nothing, or a Python function if CuPy or a C compiler is missing. The current device and stream
come from Python functions in both cases, so CuPy's own cost for them is not included.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.environment import environment
from dmlsplit.backends.cuda import driver
from dmlsplit.backends.cuda import engine as cuda
from dmlsplit.backends.cuda.packed_launch import BoundLaunch, PackedLaunch
from dmlsplit.backends.cuda.planner import H200
from dmlsplit.geometry import SplitGeometry, packed_byte_strides, split_geometry

BAR_US, BAR_OUTPUTS = 3.0, 3
OUTPUTS = (1, 3, 8, 32, 256, 4000, 8192)
ROUNDS, CALLS, BINDS = 21, 20_000, 50
INSIDE = "DMLSPLIT_NULL_DRIVER"
STUB = """
#define S(name) int name() { return 0; }
S(cuLaunchKernel) S(cuInit) S(cuDriverGetVersion) S(cuCtxGetCurrent)
"""


class NullDriver(driver.Driver):
    """The real driver, except for the calls that need a device."""

    def __init__(self, launch_kernel: Callable[..., None]) -> None:
        super().__init__(None, 1)
        self._launch_kernel = launch_kernel

    def kernel(self, device: int, source: str, name: str) -> Any:
        """Compile nothing."""
        return None

    def bind_launch(
        self, device: int, kernel: Any, grid: int, block: int, parameters: bytes
    ) -> BoundLaunch:
        """Pack a launch as the real driver does."""
        stream = SimpleNamespace(ptr=0)
        cuda = SimpleNamespace(
            runtime=SimpleNamespace(getDevice=lambda: 0), get_current_stream=lambda: stream
        )
        return PackedLaunch(
            cuda, self._launch_kernel, self.translated, None, 1, device, grid, block, parameters
        ).launch


def main(argv: Sequence[str]) -> int:
    """Print the table, write it as JSON if asked, and return 1 if the bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks dispatch", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    options = parser.parse_args(argv)
    if INSIDE not in os.environ and (status := _with_stub(argv)) is not None:
        return status
    launch_kernel, how = _launch_kernel()
    print(f"Host time of a bound dispatch: {how}; median of {ROUNDS} rounds")
    rows = [_row(NullDriver(launch_kernel), count) for count in OUTPUTS]
    if options.json:
        found = {
            "environment": environment(["dispatch", *argv], with_gpu=False),
            "launch": how,
            "bar_us": BAR_US,
            "rows": rows,
        }
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    (found_us,) = (row["dispatch_us"] for row in rows if row["outputs"] == BAR_OUTPUTS)
    is_met = found_us <= BAR_US
    print(f"bar: {BAR_OUTPUTS} outputs in {BAR_US} us: {'met' if is_met else 'missed'}")
    return int(not is_met)


def _row(null: NullDriver, outputs: int) -> dict[str, float]:
    program = cuda.CudaProgram(null, 0, H200, _geometry(outputs))
    addresses = [(1 + output) << 12 for output in range(outputs)]
    copy = program.bind(1 << 40, addresses)
    launches = len(program.variant(16, 16))
    row = {
        "outputs": outputs,
        "launches": launches,
        "dispatch_us": _microseconds(copy, CALLS),
        "dispatch_with_stream_us": _microseconds(lambda: copy(7), CALLS),
        "bind_us": _microseconds(lambda: program.bind(1 << 40, addresses), BINDS),
    }
    print("  ".join(f"{name} {value:<7.4g}" for name, value in row.items()), flush=True)
    return row


def _geometry(outputs: int) -> SplitGeometry:
    shape, sizes = (64, 16 * outputs), (16,) * outputs
    return split_geometry(shape, 1, sizes, 1, packed_byte_strides(shape, 1), [None] * outputs)


def _microseconds(call: Callable[[], Any], calls: int) -> float:
    samples = []
    for _ in range(ROUNDS):
        begin = time.perf_counter_ns()
        for _ in range(calls):
            call()
        samples.append((time.perf_counter_ns() - begin) / calls / 1000)
    return round(statistics.median(samples), 4)


def _launch_kernel() -> tuple[Callable[..., None], str]:
    try:
        from cupy_backends.cuda.api import driver as api
    except ImportError:
        return _nothing, "a Python stub launches (CuPy is not installed)"
    if INSIDE not in os.environ:
        return _nothing, "a Python stub launches (there is no C compiler)"
    api.launchKernel(1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)
    return api.launchKernel, "CuPy's launchKernel on a null libcuda"


def _nothing(*arguments: int) -> None:
    """Take a launch, and do nothing."""


def _with_stub(arguments: Sequence[str]) -> int | None:
    """Run again with a libcuda that does nothing; return None if there is no compiler for it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "null.c"), Path(folder, "libcuda.so.1")
        source.write_text(STUB)
        subprocess.run([compiler, "-shared", "-fPIC", "-w", source, "-o", library], check=True)
        paths = ":".join(filter(None, [folder, os.environ.get("LD_LIBRARY_PATH")]))
        variables = {**os.environ, "LD_LIBRARY_PATH": paths, INSIDE: "1"}
        command = [sys.executable, "-m", "benchmarks", "dispatch", *arguments]
        return subprocess.run(command, env=variables, check=False).returncode
