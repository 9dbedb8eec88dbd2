"""`dml.split` beside the splits of NumPy, PyTorch and JAX themselves, on the CPU.

Rows of float32 queries, keys and values are cut 2:1:1 with one thread, in three ways: views; views
that are then copied; and a call that returns or fills contiguous pieces. Pieces are compared first.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

import dmlsplit as dml
from benchmarks.peers_cpu import environment_variable
from benchmarks.results import Results, Row, failed, measured
from benchmarks.table import Table
from benchmarks.timing import interleaved, summary
from dmlsplit.backends.cpu.threads import VARIABLE

# Rows and columns of an input.
SHAPES = {"256 B": (1, 64), "64 KiB": (64, 256), "16 MiB": (4096, 1024)}
OURS = "dmlsplit"
VIEWS, COPIES, CALL = "views", "views, each copied", "the call that copies"
BOUND = "our bound dispatch"
Calls = Mapping[str, Callable[[], Any]]
Sizes = tuple[int, ...]


def numpy(array: np.ndarray, sizes: Sizes) -> Calls:
    """How NumPy splits: views, or views and copies."""
    cuts = np.cumsum(sizes)[:-1].tolist()
    return {
        OURS: lambda: dml.split(array, sizes, 1),
        VIEWS: lambda: np.split(array, cuts, 1),
        COPIES: lambda: [piece.copy() for piece in np.split(array, cuts, 1)],
    }


def torch(array: np.ndarray, sizes: Sizes) -> Calls:
    """How PyTorch splits: views, views and copies, or a call that copies."""
    import torch

    torch.set_num_threads(1)
    x = torch.from_numpy(array)
    return {
        OURS: lambda: dml.split(x, sizes, 1),
        VIEWS: lambda: torch.split(x, sizes, 1),
        COPIES: lambda: [piece.clone() for piece in torch.split(x, sizes, 1)],
        CALL: lambda: torch.split_with_sizes_copy(x, sizes, 1),
    }


def torch_out(array: np.ndarray, sizes: Sizes) -> Calls:
    """How PyTorch fills tensors of the caller."""
    import torch

    torch.set_num_threads(1)
    x = torch.from_numpy(array)
    outs = [torch.empty(len(array), size) for size in sizes]

    def filled() -> Any:
        torch.split_with_sizes_copy(x, sizes, 1, out=outs)
        return outs

    desc = dml.SplitOperatorDesc.from_sizes(
        dml.TensorDesc("FLOAT32", array.shape), axis=1, sizes=sizes
    )
    bound = dml.Device("cpu").compile(desc).bind(x, outs)

    def dispatched() -> Any:
        bound.dispatch()
        return outs

    return {OURS: lambda: dml.split(x, sizes, 1, outs), CALL: filled, BOUND: dispatched}


def jax(array: np.ndarray, sizes: Sizes, jitted: bool = False) -> Calls:
    """How JAX splits: always into copies, because JAX has no views."""
    import jax

    x, cuts = jax.numpy.asarray(array), tuple(np.cumsum(sizes)[:-1].tolist())
    ways: dict[str, Callable[[Any], Any]] = {
        OURS: lambda x: dml.split(x, sizes, 1),
        CALL: lambda x: jax.numpy.split(x, cuts, 1),
    }
    made = {name: jax.jit(way) if jitted else way for name, way in ways.items()}
    return {name: partial(_finished, way, x) for name, way in made.items()}


def _finished(way: Callable[[Any], Any], x: Any) -> Any:
    import jax

    return jax.block_until_ready(way(x))


def jax_jit(array: np.ndarray, sizes: Sizes) -> Calls:
    """How JAX splits inside `jax.jit`."""
    return jax(array, sizes, jitted=True)


# By the name that results and documentation use.
LIBRARIES: dict[str, Callable[[np.ndarray, Sizes], Calls]] = {
    "NumPy": numpy,
    "PyTorch": torch,
    "PyTorch, `out=`": torch_out,
    "JAX": jax,
    "JAX, in `jax.jit`": jax_jit,
}
CASES = {f"{library}, {size}": (library, size) for library in LIBRARIES for size in SHAPES}


def run(chosen: Iterable[str], rounds: int, results: Results, table: Table) -> None:
    """Time cases; a row says so if a library is not installed."""
    for case in chosen:
        if results.has(case=case):
            continue
        library, size = CASES[case]
        array = np.random.default_rng(0).random(SHAPES[size], np.float32)
        columns = array.shape[1]
        sizes = (columns // 2, columns // 4, columns // 4)
        head = {"case": case, "library": library, "kind": "instead", "at": size, "threads": 1}
        try:
            with environment_variable(VARIABLE, 1):
                rows = _measure(LIBRARIES[library](array, sizes), array, sizes, rounds)
        except Exception as error:
            rows = {OURS: failed(error)}
        for name, row in rows.items():
            results.add({**head, "bytes": array.nbytes, "peer": name, **row})
            table.add(results.rows[-1])
        table.advance()


def _measure(calls: Calls, array: np.ndarray, sizes: Sizes, rounds: int) -> dict[str, Row]:
    """Check that all calls make the same pieces, and time them."""
    expected = [piece.tolist() for piece in np.split(array, np.cumsum(sizes)[:-1], 1)]
    for name, call in calls.items():
        if [piece.tolist() for piece in call()] != expected:
            raise ValueError(f"{name} makes other pieces")
    samples = interleaved(calls, rounds)
    return {name: measured(summary(s), s, array.nbytes) for name, s in samples.items()}
