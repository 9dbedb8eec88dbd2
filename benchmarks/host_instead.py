"""Calls of dmlsplit, each beside what a person would write instead, with the bar of their ratio.

A bar is the most that our time may be of the other's, for the fastest of many short samples, which
other load on the machine disturbs least. All calls run on one thread.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import accumulate, cycle
from typing import Any, NamedTuple

import numpy as np

import dmlsplit as dml
from benchmarks.peers_cpu import environment_variable
from benchmarks.results import Results, failed, measured
from benchmarks.table import Table
from benchmarks.timing import Call, short_samples, summary
from dmlsplit.backends.cpu.threads import VARIABLE

OURS, INSTEAD = "dmlsplit", "instead"
KIND = "bar"
ROUNDS = 10  # short ones, for each of the other benchmarks
NEW_SIZES = 1500  # more than any cache holds


class Pair(NamedTuple):
    """A call of ours, what a person would write instead, and the most that ours may take of it."""

    ours: Call
    instead: Call
    bar: float


Make = Callable[[], Pair]


def _sizes(columns: int, pieces: int) -> tuple[int, ...]:
    return (columns // pieces,) * (pieces - 1) + (columns - columns // pieces * (pieces - 1),)


def _drawn(columns: int) -> Iterator[tuple[int, ...]]:
    """Three sizes, other ones at each call."""
    random = np.random.default_rng(0)
    cuts = np.sort(random.integers(1, columns, (NEW_SIZES, 2)), 1).tolist()
    return cycle([(a, b - a, columns - b) for a, b in cuts])


def numpy_new(rows: int, columns: int, pieces: int, form: type) -> Pair:
    """New arrays, for a tuple or a list of sizes."""
    array, sizes = np.ones((rows, columns), "f4"), form(_sizes(columns, pieces))
    cuts = list(accumulate(sizes))[:-1]
    return Pair(
        lambda: dml.split(array, sizes, 1),
        lambda: [piece.copy() for piece in np.split(array, cuts, 1)],
        1.0,
    )


def numpy_sizes(rows: int, columns: int) -> Pair:
    """Other sizes at each call."""
    array, ours, others = np.ones((rows, columns), "f4"), _drawn(columns), _drawn(columns)

    def instead() -> Any:
        first, second, _ = next(others)
        return [piece.copy() for piece in np.split(array, (first, first + second), 1)]

    return Pair(lambda: dml.split(array, next(ours), 1), instead, 1.4)


def _operator(rows: int, columns: int, sizes: tuple[int, ...]) -> dml.CompiledOperator:
    tensor = dml.TensorDesc("FLOAT32", (rows, columns))
    return dml.Device("cpu").compile(dml.SplitOperatorDesc.from_sizes(tensor, axis=1, sizes=sizes))


def numpy_into(pieces: int, way: str) -> Pair:
    """Outputs that exist, beside a loop of assignments."""
    array, sizes = np.ones((4, 256), "f4"), _sizes(256, pieces)
    outs = [np.empty((4, size), "f4") for size in sizes]
    cuts = [
        (slice(None), slice(end - n, end)) for n, end in zip(sizes, accumulate(sizes), strict=True)
    ]
    operator = _operator(4, 256, sizes)

    def assigned() -> None:
        for out, cut in zip(outs, cuts, strict=True):
            out[...] = array[cut]

    ours: dict[str, Call] = {
        "out=": lambda: dml.split(array, sizes, 1, outs),
        "dispatch": lambda: operator.dispatch(array, outs),
    }
    return Pair(ours[way], assigned, 4.0)


def operator_call(pieces: int) -> Pair:
    """`op(a)` beside `dml.split`."""
    array, sizes = np.ones((4, 256), "f4"), _sizes(256, pieces)
    operator = _operator(4, 256, sizes)
    return Pair(lambda: operator(array), lambda: dml.split(array, sizes, 1), 1.3)


def torch_new(rows: int, columns: int, pieces: int, bar: float, grad: bool = False) -> Pair:
    """New tensors, beside torch's operator that copies."""
    import torch

    torch.set_num_threads(1)
    x, sizes = torch.ones(rows, columns, requires_grad=grad), _sizes(columns, pieces)
    return Pair(
        lambda: dml.split(x, sizes, 1), lambda: torch.split_with_sizes_copy(x, sizes, 1), bar
    )


def torch_sizes(rows: int, columns: int) -> Pair:
    """Other sizes at each call, beside views that are copied."""
    import torch

    torch.set_num_threads(1)
    x, ours, others = torch.ones(rows, columns), _drawn(columns), _drawn(columns)
    return Pair(
        lambda: dml.split(x, next(ours), 1),
        lambda: [piece.clone() for piece in x.split(next(others), 1)],
        1.1,
    )


def torch_into(pieces: int) -> Pair:
    """Tensors that exist."""
    import torch

    torch.set_num_threads(1)
    x, sizes = torch.ones(4, 256), _sizes(256, pieces)
    outs = [torch.empty(4, size) for size in sizes]
    instead = lambda: torch.split_with_sizes_copy(x, sizes, 1, out=outs)  # noqa: E731
    return Pair(lambda: dml.split(x, sizes, 1, outs), instead, 2.0)


def torch_compiled(rows: int, columns: int, bar: float, grad: bool = False) -> Pair:
    """A graph of torch.compile, with its backward pass if `grad`, beside one with torch.split."""
    import torch
    from torch._inductor import config

    torch.set_num_threads(1)
    x, sizes = torch.ones(rows, columns, requires_grad=grad), _sizes(columns, 3)

    def compiled(split: Callable[..., Any]) -> Call:
        graph = torch.compile(lambda x: [piece * 2 for piece in split(x + 1, sizes, 1)])

        def step() -> Any:
            pieces = graph(x)
            return torch.autograd.grad([piece.sum() for piece in pieces], x) if grad else pieces

        return step

    # A cached graph may be one of another version of dmlsplit.
    with config.patch(fx_graph_cache=False):
        pair = Pair(compiled(dml.split), compiled(torch.split), bar)
        pair.ours(), pair.instead()
    return pair


def jax_new(rows: int, columns: int, pieces: int) -> Pair:
    """Eager calls, beside a jitted jnp.split."""
    import jax

    x, sizes = jax.numpy.ones((rows, columns)), _sizes(columns, pieces)
    cuts = list(accumulate(sizes))[:-1]
    jitted = jax.jit(lambda x: jax.numpy.split(x, cuts, 1))
    return Pair(
        lambda: jax.block_until_ready(dml.split(x, sizes, 1)),
        lambda: jax.block_until_ready(jitted(x)),
        1.3,
    )


def _cases() -> Iterator[tuple[str, Make]]:
    for form in (tuple, list):
        for rows, columns in ((4, 256), (64, 256), (64, 1024)):
            for pieces in (3, 16):
                head = f"beside NumPy, {rows}x{columns} into {pieces}, {form.__name__}"
                yield head, partial(numpy_new, rows, columns, pieces, form)
    for rows in (4, 40):
        yield f"beside NumPy, {rows}x1024 new sizes", partial(numpy_sizes, rows, 1024)
    for pieces in (3, 16):
        for way in ("out=", "dispatch"):
            yield f"beside NumPy, {way} {pieces}", partial(numpy_into, pieces, way)
        yield f"op() beside split, {pieces}", partial(operator_call, pieces)
        yield f"beside torch, out= {pieces}", partial(torch_into, pieces)
        yield f"beside JAX, 4x256 into {pieces}", partial(jax_new, 4, 256, pieces)
    for rows in (300, 1000, 4000, 16000):
        for pieces, width in ((3, 1), (8, 1), (3, 4), (8, 4), (3, 16)):
            # The checks take 3 us, which is as much as torch takes for the smallest of these.
            head = f"beside torch, {rows} rows, {pieces} x {4 * width} B"
            yield head, partial(torch_new, rows, pieces * width, pieces, 1.1)
    yield "beside torch, 300 rows, grad", partial(torch_new, 300, 3, 3, 1.1, grad=True)
    for rows, columns in ((300, 64), (40, 1024)):
        yield f"beside torch, {rows}x{columns} new sizes", partial(torch_sizes, rows, columns)
    for rows, columns in ((4, 96), (64, 768), (512, 3072)):
        yield f"compiled, {rows}x{columns}", partial(torch_compiled, rows, columns, 1.5)
    yield "compiled, training 512x3072", partial(torch_compiled, 512, 3072, 1.1, grad=True)


CASES: dict[str, Make] = dict(_cases())


def run(chosen: Iterable[str], rounds: int, results: Results, table: Table) -> None:
    """Time pairs; a row says so if a library is not installed."""
    for case in chosen:
        if results.has(case=case):
            continue
        head = {"case": case, "kind": KIND, "at": case, "threads": 1, "bytes": 0}
        try:
            with environment_variable(VARIABLE, 1):
                pair = CASES[case]()
                samples = short_samples({OURS: pair.ours, INSTEAD: pair.instead}, ROUNDS * rounds)
            rows = {n: measured(summary(s), [], 0) | {"bar": pair.bar} for n, s in samples.items()}
        except Exception as error:
            rows = {OURS: failed(error)}
        for name, row in rows.items():
            results.add({**head, "peer": name, **row})
            table.add(results.rows[-1])
        table.advance()


def bars_are_met(rows: Iterable[dict[str, Any]]) -> bool:
    """Compare the fastest samples with the bars; print each ratio as a Markdown table."""
    ok = [row for row in rows if row["kind"] == KIND and row["status"] == "ok"]
    least = {(row["case"], row["peer"]): row["seconds"]["least"] for row in ok}
    met = []
    print("\n| call | of the other's time | bar | |\n| --- | ---: | ---: | --- |")
    for row in ok:
        if row["peer"] == OURS:
            ratio = least[row["case"], OURS] / least[row["case"], INSTEAD]
            met.append(ratio <= row["bar"])
            verdict = "met" if met[-1] else "**missed**"
            print(f"| {row['case']} | {ratio:.2f} | {row['bar']:.1f} | {verdict} |")
    print(f"\n{met.count(False)} of {len(met)} bars missed")
    return all(met)
