"""`python -m benchmarks dispatch`: the host time of a split, without a GPU.

CuPy runs on the simulated card (tests/simulated_card), whose launches return at once: the time is
that of Python, of CuPy, and of a driver that only keeps a log. If the card cannot be built, only
NumPy arrays are split, and PyTorch tensors if PyTorch is installed. The benchmark measures the
processor time of the calling thread, which other programs on the machine disturb less than wall
time. They can only add to it, so the fastest round shows what an idle machine would show, and the
bars apply to it. `cupy_alone` is the time that CuPy needs to make the outputs of a split.
`fresh` is a split along axis 0 into sizes that no earlier call had, as in a mixture of experts;
`fresh_own` is the same with outputs that exist already, and `fresh_plan` the part of it from the
checks of the sizes to the packed parameters of the launch. `regroup` splits the halves of each row,
into views of one array that has the pieces of both halves side by side.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

import dmlsplit as dml
from benchmarks.cases import CASES, Case
from benchmarks.environment import environment
from dmlsplit import eager
from dmlsplit.backends.cuda import driver
from dmlsplit.backends.cuda.launch import VECTOR

# A column, the number of outputs, and the bar for its fastest round: microseconds, or another
# column, which it must not exceed by more than the noise.
BARS: tuple[tuple[str, int, float | str], ...] = (
    ("dispatch_us", 3, 3.0),
    ("split_us", 3, 10.0),
    ("split_us", 64, 70.0),
    ("call_us", 3, "split_us"),
    ("bind_us", 3, 15.0),
    ("bind_us", 64, 76.0),
    ("numpy_split_us", 3, 6.0),
    ("fresh_plan_us", 3, 60.0),
    ("fresh_plan_us", 8, 30.0),
    ("fresh_plan_us", 64, 70.0),
    ("fresh_plan_us", 256, 150.0),
)
NOISE = 1.05
OUTPUTS = (1, 3, 8, 16, 64, 256, 4000, 8192)
# Tokens and elements of each, and more different sizes than plans are kept.
TOKENS, TOKEN, FRESH = 4000, 7168, 1100
ROWS, WIDTH, MOST_OF_NUMPY = 64, 32, 256
# Every round of a column takes about the same time, whatever the number of outputs.
ROUNDS, CALLS, BOUND_CALLS = 21, 3000, 20_000
INSIDE = "DMLSPLIT_ON_SIMULATED_CARD"


def main(argv: Sequence[str]) -> int:
    """Print the table, write it as JSON if asked, and return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks dispatch", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of each column: {ROUNDS}")
    options = parser.parse_args(argv)
    from tests.simulated_card import build

    why_not = build.missing()
    if INSIDE not in os.environ and not why_not:
        return _on_card(build, argv)
    rounds = f"median, then least, of {options.rounds} rounds"
    print(f"Host time per call in us: {rounds}. {why_not or ''}")
    rows = [_row(count, options.rounds, with_cuda=not why_not) for count in OUTPUTS]
    bars = list(_bars(rows))
    if options.json:
        run = environment(["dispatch", *argv], with_gpu=False)
        found = {"environment": run, "rows": rows, "bars": bars}
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    for bar in bars:
        what = "met" if bar["is_met"] else "missed"
        print(f"bar: {bar['column']} of {bar['outputs']} outputs in {bar['most']} us: {what}")
    return int(not all(bar["is_met"] for bar in bars))


def _on_card(build: Any, arguments: Sequence[str]) -> int:
    """Run again where CuPy finds the simulated card."""
    with tempfile.TemporaryDirectory() as folder:
        variables = {**os.environ, **build.build(Path(folder)).environment, INSIDE: "1"}
        command = [sys.executable, "-m", "benchmarks", "dispatch", *arguments]
        return subprocess.run(command, env=variables, check=False).returncode


def _bars(rows: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    by_count = {row["outputs"]: row["least"] for row in rows}
    for column, outputs, bar in BARS:
        least = by_count[outputs]
        if column in least:
            most = round(least[bar] * NOISE, 4) if isinstance(bar, str) else bar
            is_met = least[column] <= most
            yield {"column": column, "outputs": outputs, "most": most, "is_met": is_met}


def _row(outputs: int, rounds: int, with_cuda: bool) -> dict[str, Any]:
    array = np.zeros((ROWS, WIDTH * outputs), "f4")
    # More would be copied by other threads.
    columns = _host_calls(array, outputs) if outputs <= MOST_OF_NUMPY else {}
    if with_cuda:
        columns |= _cuda_calls(array, outputs)
    samples: dict[str, list[float]] = {name: [] for name in columns}
    # In turns, so that a slow moment of the machine does not hit a single column.
    for _ in range(rounds):
        for name, call in columns.items():
            calls = BOUND_CALLS if name.startswith("dispatch") else max(1, CALLS // outputs)
            samples[name].append(_microseconds(call, calls))
    least = {name: round(min(found), 4) for name, found in samples.items()}
    row: dict[str, Any] = {"outputs": outputs, "least": least}
    row |= {name: round(statistics.median(found), 4) for name, found in samples.items()}
    row |= _ratios(least)
    cells = [f"{name} {row[name]:.4g}, {least[name]:.4g}" for name in columns]
    cells += [f"{name} {ratio}" for name, ratio in _ratios(least).items()]
    print("  ".join([f"outputs {outputs}", *cells]), flush=True)
    return row


def _ratios(least: dict[str, float]) -> dict[str, float]:
    """The time of PyTorch's own split and copies over ours."""
    return {
        f"{name}_ratio": round(least[f"{name}_alone_us"] / least[f"{name}_split_us"], 3)
        for name in ("torch", "torch_grad", "torch_into")
        if f"{name}_split_us" in least
    }


def _descriptor(outputs: int) -> dml.SplitOperatorDesc:
    tensor = dml.TensorDesc("FLOAT32", (ROWS, WIDTH * outputs))
    return dml.SplitOperatorDesc.from_sizes(tensor, axis=1, sizes=(WIDTH,) * outputs)


def _numpy_calls(array: np.ndarray, outputs: int) -> dict[str, Callable[[], Any]]:
    operator = dml.Device("cpu").compile(_descriptor(outputs))
    return {
        "numpy_split_us": lambda: dml.split(array, outputs, 1),
        "numpy_call_us": lambda: operator(array),
        # The same with NumPy alone.
        "numpy_alone_us": lambda: [piece.copy() for piece in np.split(array, outputs, 1)],
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
        "torch_split_us": lambda: dml.split(plain, outputs, 1),
        "torch_alone_us": lambda: [piece.contiguous() for piece in plain.split(WIDTH, 1)],
        "torch_grad_split_us": lambda: dml.split(tracked, outputs, 1),
        "torch_grad_alone_us": lambda: [piece.contiguous() for piece in tracked.split(WIDTH, 1)],
        "torch_into_split_us": lambda: dml.split(plain, outputs, 1, out=outs),
        "torch_into_alone_us": lambda: torch.split_with_sizes_copy(plain, sizes, 1, out=outs),
        "torch_dispatch_us": bound.dispatch,
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
    place = [block + array.nbytes // outputs * output for output in range(outputs)]
    return {
        "cupy_alone_us": lambda: [cupy.ndarray((ROWS, WIDTH), "f4", at) for at in place],
        "split_us": lambda: dml.split(array, outputs, 1),
        "split_into_us": lambda: dml.split(array, outputs, 1, out=outs),
        "call_us": lambda: operator(array),
        "op_dispatch_us": lambda: operator.dispatch(array, outs),
        "bind_us": lambda: operator.bind(array, outs),
        "dispatch_us": bound.dispatch,
        "dispatch_with_stream_us": lambda: bound.dispatch(0),
        **(_fresh_calls(cupy, outputs) if outputs <= MOST_OF_NUMPY else {}),
        **(_regroup_calls(cupy, array, outputs) if outputs <= MOST_OF_NUMPY else {}),
    }


def _regroup_calls(cupy: Any, array: Any, outputs: int) -> dict[str, Callable[[], Any]]:
    halves, sizes = (ROWS, 2, WIDTH * outputs // 2), (WIDTH // 2,) * outputs
    case = Case("regroup", CASES, halves, "f4", 2, sizes, joined_at=1)
    views, parts = case.parts(cupy.empty(halves, "f4")), array.reshape(halves)
    return {"regroup_us": lambda: dml.split(parts, sizes, 2, out=views)}


def _fresh_calls(cupy: Any, outputs: int) -> dict[str, Callable[[], Any]]:
    """Splits into other sizes at every call, with new outputs and without, and only planned."""
    random = np.random.default_rng(0)
    tokens = cupy.empty((TOKENS, TOKEN), "f2")
    shares = random.dirichlet([1.5] * outputs, FRESH)
    drawn = [tuple(map(int, random.multinomial(TOKENS, share))) for share in shares]
    sizes, planned = cycle(drawn), cycle(drawn)
    found = driver.load()

    def own() -> None:
        found.empty = lambda device, shapes, dtype: [tokens] * outputs  # type: ignore[method-assign]
        try:
            dml.split(tokens, next(sizes))
        finally:
            del found.empty

    layout, addresses = (tokens.shape, tokens.strides, 2, 0), [tokens.data.ptr] * outputs

    def plan() -> None:
        program: Any = eager._made("cuda:0", *layout, next(planned)).program
        for picked, launcher in program.variant(VECTOR, VECTOR):
            launcher.bind((tokens.data.ptr, *picked(addresses)))

    whole = lambda: dml.split(tokens, next(sizes))  # noqa: E731
    return {"fresh_us": whole, "fresh_own_us": own, "fresh_plan_us": plan}


def _microseconds(call: Callable[[], Any], calls: int) -> float:
    """The microseconds per call, after one untimed call."""
    call()
    begin = time.thread_time_ns()
    for _ in range(calls):
        call()
    return (time.thread_time_ns() - begin) / calls / 1000
