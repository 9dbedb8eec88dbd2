"""`python -m tests.simulated_card.host_time`: the host time of calls, without a GPU.

CuPy runs on the simulated card (tests/simulated_card), whose launches return at once: the time is
that of Python, of CuPy, and of a driver that only keeps a log. If the card cannot be built, only
NumPy arrays are split, and PyTorch tensors if PyTorch is installed. The benchmark measures the
processor time of the calling thread, which other programs on the machine disturb less than wall
time. Other programs can only add to it, so the fastest round shows what an idle machine would show,
and the bars apply to that round.

"cupy alone" is the time that CuPy needs to make the outputs of a split, and "RawKernel" that of a
launch of an empty `cupy.RawKernel` whose arguments are packed already. "fresh" is a split along
axis 0 into sizes that no earlier call had, as in a mixture of experts; "fresh own" is the same with
outputs that exist already, and "fresh plan" the part of it from the checks of the sizes to the
packed parameters of the launch. "regroup" splits the halves of each row, into views of one array
that has the pieces of both halves side by side.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

import dmlsplit as dml
from benchmarks.__main__ import RESULTS
from benchmarks.cases import CASES as KIND
from benchmarks.cases import Case
from benchmarks.environment import environment, state_after
from benchmarks.results import Results, Row, measured
from benchmarks.table import Table, duration
from benchmarks.timing import interleaved, summary
from dmlsplit.backends.cuda import cupy_driver as driver
from dmlsplit.backends.cuda.launch import VECTOR
from dmlsplit.backends.cuda.planner import plan
from dmlsplit.backends.cuda.raw_kernels import OPTIONS
from dmlsplit.checks import piece_sizes
from dmlsplit.directml.operator import descriptor_geometry
from dmlsplit.execution import in_memory
from tests.simulated_card import build

NOISE = 1.05
# A call, the number of outputs, and the bar for its fastest round: microseconds, or another call
# and by how much it may take longer.
BARS: tuple[tuple[str, int, float | tuple[str, float]], ...] = (
    ("dispatch", 3, ("RawKernel", 1.4)),
    ("split", 3, 13.0),
    ("split", 64, 115.0),
    ("call", 3, ("split", NOISE)),
    ("bind", 3, 15.0),
    ("bind", 64, 76.0),
    ("numpy split", 3, 6.0),
    ("fresh plan", 3, 60.0),
    ("fresh plan", 8, 30.0),
    ("fresh plan", 64, 70.0),
    ("fresh plan", 256, 150.0),
)
CASES = {f"{count} outputs": count for count in (1, 3, 8, 16, 64, 256, 4000, 8192)}
# The tokens, the elements of each, and more different sizes than the cache of plans holds.
TOKENS, TOKEN, FRESH = 4000, 7168, 1100
ROWS, WIDTH, MAX_OF_NUMPY = 64, 32, 256
MODULE = "tests.simulated_card.host_time"
INSIDE = "DMLSPLIT_ON_SIMULATED_CARD"


def main(argv: Sequence[str]) -> int:
    """Time the chosen cases; return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, help="results file; resumed if unfinished")
    parser.add_argument("--only", default="", help="only cases whose name contains this text")
    parser.add_argument("--rounds", type=int, default=21, help="samples per call")
    options = parser.parse_args(argv)
    reason = build.missing()
    if INSIDE not in os.environ and reason is None:
        return again(argv)
    if reason is not None:
        print(f"no CUDA calls are timed: {reason}")
    case_names = [name for name in CASES if options.only in name]
    path = options.output or RESULTS / f"host-{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    results = Results(path, "host", environment(list(argv), with_gpu=False, module=MODULE))
    table = Table(len(case_names), "dmlsplit")
    run(case_names, options.rounds, results, table)
    table.close()
    results.finish(state_after(with_gpu=False))
    print(f"\n{results.path}")
    return int(not bars_are_met(results.rows))


def again(argv: Sequence[str]) -> int:
    """Start over where CuPy finds the simulated card."""
    with tempfile.TemporaryDirectory() as folder:
        variables = {**os.environ, **build.build(Path(folder)).environment, INSIDE: "1"}
        command = [sys.executable, "-m", MODULE, *argv]
        return subprocess.run(command, env=variables, check=False).returncode


def run(case_names: Iterable[str], rounds: int, results: Results, table: Table) -> None:
    """Time cases: on the simulated card inside of its environment, else without CUDA."""
    for case in case_names:
        outputs = CASES[case]
        array = np.zeros((ROWS, WIDTH * outputs), "f4")
        # More would be copied by other threads.
        calls = _host_calls(array, outputs) if outputs <= MAX_OF_NUMPY else {}
        if INSIDE in os.environ:
            calls |= _cuda_calls(array, outputs)
        head = {"case": case, "kind": "on card", "at": outputs, "bytes": array.nbytes, "threads": 1}
        for name, samples in interleaved(calls, rounds, time.thread_time).items():
            row = measured(summary(samples), samples, array.nbytes)
            results.add({**head, "peer": name, **row})
            table.add(results.rows[-1])
        table.advance()


def bars_are_met(rows: Iterable[Row]) -> bool:
    """Compare the fastest rounds with the bars of the calls that were timed; print each."""
    least = {
        (row["case"], row["peer"]): row["seconds"]["least"] for row in rows if row["status"] == "ok"
    }
    met = []
    for peer, outputs, bar in BARS:
        case = f"{outputs} outputs"
        if (case, peer) in least:
            most = least[case, bar[0]] * bar[1] if isinstance(bar, tuple) else bar * 1e-6
            met.append(least[case, peer] <= most)
            print(f"bar: {peer} of {case} in {duration(most)}: {'met' if met[-1] else 'missed'}")
    return all(met)


def _descriptor(outputs: int) -> dml.SplitOperatorDesc:
    tensor = dml.TensorDesc("FLOAT32", (ROWS, WIDTH * outputs))
    return dml.SplitOperatorDesc.from_sizes(tensor, axis=1, sizes=(WIDTH,) * outputs)


def _numpy_calls(array: np.ndarray, outputs: int) -> dict[str, Callable[[], Any]]:
    operator = dml.Device("cpu").compile(_descriptor(outputs))
    return {
        "numpy split": lambda: dml.split(array, outputs, 1),
        "numpy call": lambda: operator(array),
        # These sizes with NumPy alone.
        "numpy alone": lambda: [piece.copy() for piece in np.split(array, outputs, 1)],
    }


def _host_calls(array: np.ndarray, outputs: int) -> dict[str, Callable[[], Any]]:
    calls = _numpy_calls(array, outputs)
    return calls | _torch_calls(array, outputs) if find_spec("torch") else calls


def _torch_calls(array: np.ndarray, outputs: int) -> dict[str, Callable[[], Any]]:
    """Splits of a tensor, of one that requires grad, into outputs, and torch's own ways for each.

    The ratio of a row is torch's time over ours, as in the other tables.
    """
    import torch

    torch.set_num_threads(1)
    plain = torch.from_numpy(array)
    tracked = plain.clone().requires_grad_()
    outs = [torch.empty(ROWS, WIDTH) for _ in range(outputs)]
    sizes = [WIDTH] * outputs
    bound = dml.Device("cpu").compile(_descriptor(outputs)).bind(plain, outs)
    return {
        "torch split": lambda: dml.split(plain, outputs, 1),
        "torch alone": lambda: [piece.contiguous() for piece in plain.split(WIDTH, 1)],
        "torch grad split": lambda: dml.split(tracked, outputs, 1),
        "torch grad alone": lambda: [piece.contiguous() for piece in tracked.split(WIDTH, 1)],
        "torch into split": lambda: dml.split(plain, outputs, 1, out=outs),
        "torch into alone": lambda: torch.split_with_sizes_copy(plain, sizes, 1, out=outs),
        "torch dispatch": bound.dispatch,
    }


def _cuda_calls(host: np.ndarray, outputs: int) -> dict[str, Callable[[], Any]]:
    from tests.simulated_card import card

    card.load()
    card.set_memory_limit(0, 1 << 40)
    card.ignore_launches(True)
    import cupy

    array = cupy.asarray(host)
    outs = [cupy.empty((ROWS, WIDTH), "f4") for _ in range(outputs)]
    operator = dml.Device("cuda:0").compile(_descriptor(outputs))
    bound = operator.bind(array, outs)
    block = cupy.cuda.alloc(array.nbytes)
    memory = [block + array.nbytes // outputs * output for output in range(outputs)]
    return {
        "cupy alone": lambda: [cupy.ndarray((ROWS, WIDTH), "f4", address) for address in memory],
        "split": lambda: dml.split(array, outputs, 1),
        "split into": lambda: dml.split(array, outputs, 1, out=outs),
        "call": lambda: operator(array),
        "op dispatch": lambda: operator.dispatch(array, outs),
        "bind": lambda: operator.bind(array, outs),
        "dispatch": bound.dispatch,
        "dispatch with stream": lambda: bound.dispatch(0),
        "RawKernel": _bare_call(cupy, outputs),
        **(_fresh_calls(cupy, outputs) if outputs <= MAX_OF_NUMPY else {}),
        **(_regroup_calls(cupy, array, outputs) if outputs <= MAX_OF_NUMPY else {}),
    }


def _bare_call(cupy: Any, outputs: int) -> Callable[[], Any]:
    """A launch of an empty kernel with as large a struct as that of the first launch of a split."""
    geometry = descriptor_geometry(_descriptor(outputs))
    launch = plan(geometry, VECTOR, VECTOR, driver.load().limits(0))[0]
    struct = np.void(launch.parameters(()))
    source = f"""struct Parameters {{ unsigned char bytes[{struct.itemsize}]; }};
    extern "C" __global__ void __launch_bounds__(1024)
    bare(const __grid_constant__ Parameters launch) {{}}"""
    kernel = cupy.RawKernel(source, "bare", OPTIONS)
    return lambda: kernel((launch.grid,), (launch.threads,), (struct,))


def _regroup_calls(cupy: Any, array: Any, outputs: int) -> dict[str, Callable[[], Any]]:
    halves, sizes = (ROWS, 2, WIDTH * outputs // 2), (WIDTH // 2,) * outputs
    case = Case("regroup", KIND, halves, "f4", 2, sizes, joined_at=1)
    views, parts = case.parts(cupy.empty(halves, "f4")), array.reshape(halves)
    return {"regroup": lambda: dml.split(parts, sizes, 2, out=views)}


def _fresh_calls(cupy: Any, outputs: int) -> dict[str, Callable[[], Any]]:
    """Splits into other sizes at every call, with new outputs and without, and only planned."""
    random = np.random.default_rng(0)
    tokens = cupy.empty((TOKENS, TOKEN), "f2")
    shares = random.dirichlet([1.5] * outputs, FRESH)
    size_lists = [tuple(map(int, random.multinomial(TOKENS, share))) for share in shares]
    sizes, plan_sizes = cycle(size_lists), cycle(size_lists)
    loaded_driver = driver.load()

    def own() -> None:
        loaded_driver.empty = lambda device, shapes, dtype: [tokens] * outputs  # type: ignore[method-assign]
        try:
            dml.split(tokens, next(sizes))
        finally:
            del loaded_driver.empty

    layout, addresses = ("cuda:0", tokens.shape, tokens.strides, 2), [tokens.data.ptr] * outputs

    def plan() -> None:
        axis, own_sizes = piece_sizes(tokens.shape, next(plan_sizes), 0)
        program: Any = in_memory._prepared(layout, axis, own_sizes, None).program
        for picked, launcher in program.add_variant(VECTOR, VECTOR):
            launcher.bind((tokens.data.ptr, *picked(addresses)))

    whole = lambda: dml.split(tokens, next(sizes))  # noqa: E731
    return {"fresh": whole, "fresh own": own, "fresh plan": plan}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
