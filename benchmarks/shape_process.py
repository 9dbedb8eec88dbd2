"""One process of `python -m benchmarks shapes`: it makes the calls of a replay and counts.

It prints one line of JSON. The environment decides whether it runs on a GPU or, with `ON_CARD`, on
the simulated card.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.driver_counts import Counts, card_counts, files_in, resident_bytes, wrapped_counts
from benchmarks.replays import BY_NAME, DTYPE, MOST_BYTES, Replay, Split
from benchmarks.results import failed
from benchmarks.timing import quantile

ON_CARD = "DMLSPLIT_ON_SIMULATED_CARD"
CACHE = "CUPY_CACHE_DIR"
CHECKPOINTS = 10
# Calls between waits for the GPU, which are not timed: a full queue would stop the host.
CALLS_IN_QUEUE = 64
CARD_MEMORY = 1 << 40

# `Make` makes an array of a shape on given memory; `Call` splits an array.
Make = Callable[[Any, tuple[int, ...]], Any]
Call = Callable[[Any, Split], Any]


def main(argv: list[str]) -> int:
    """Replay ``argv[0]`` with the peer ``argv[1]``, for ``argv[2]`` shapes; print the row."""
    name, peer, shapes = argv
    began = time.perf_counter()
    try:
        counts = _counts()
        make, call = PEERS[peer]()
        row = _replay(BY_NAME[name], int(shapes), make, call, counts)
        row["seconds"] = time.perf_counter() - began
    except Exception as error:
        row = failed(error)
    print(json.dumps(row))
    return 0


def _counts() -> Callable[[], Counts]:
    if ON_CARD not in os.environ:
        return wrapped_counts()
    from tests.simulated_card import card

    card.load()
    card.set_memory_limit(0, CARD_MEMORY)
    return card_counts(card.count)


def _replay(
    replay: Replay, shapes: int, make: Make, call: Call, counts: Callable[[], Counts]
) -> dict[str, Any]:
    import cupy

    memory = cupy.empty(MOST_BYTES, cupy.uint8)
    taken = np.zeros(shapes, np.int64)
    taken.fill(-1)  # Allocate all of its pages before the first checkpoint.
    checkpoints = []
    for number, split in enumerate(_splits(replay, shapes)):
        array = make(memory, split.shape)
        start = time.perf_counter_ns()
        pieces = call(array, split)
        taken[number] = time.perf_counter_ns() - start
        del pieces
        if number % CALLS_IN_QUEUE == 0:
            cupy.cuda.get_current_stream().synchronize()
        if number == 0:
            first = counts()
        if (number + 1) * CHECKPOINTS // shapes > number * CHECKPOINTS // shapes:
            checkpoints.append(_checkpoint(number + 1, counts()))
    return {"status": "ok", "shapes": shapes, **_summary(taken, first, checkpoints)}


def _splits(replay: Replay, shapes: int) -> Iterator[Split]:
    return islice(replay.splits(np.random.default_rng(shapes)), shapes)


def _checkpoint(calls: int, counts: Counts) -> dict[str, int]:
    return {
        "calls": calls,
        "modules": counts.loads - counts.unloads,
        "resident_bytes": resident_bytes(),
        "compiles": counts.compiles,
        "loads": counts.loads,
        "unloads": counts.unloads,
    }


def _summary(taken: np.ndarray, first: Counts, checkpoints: list[dict[str, int]]) -> dict[str, Any]:
    later = sorted(taken[1:] / 1000)
    last = checkpoints[-1]
    return {
        "compiles": last["compiles"],
        "later_compiles": last["compiles"] - first.compiles,
        "loads": last["loads"],
        "unloads": last["unloads"],
        "files": files_in(Path(os.environ[CACHE])),
        "first_us": taken[0] / 1000,
        "p50_us": quantile(later, 0.5),
        "p99_us": quantile(later, 0.99),
        "longest_us": later[-1],
        "checkpoints": checkpoints,
    }


def eager() -> tuple[Make, Call]:
    """`dml.split`, which allocates the pieces."""
    import dmlsplit as dml

    return _cupy_array, lambda array, split: dml.split(array, split.sizes, split.axis)


def operator() -> tuple[Make, Call]:
    """`Device.compile` of a descriptor for the shape, and a call of the operator."""
    import dmlsplit as dml

    device = dml.Device("cuda:0")

    def call(array: Any, split: Split) -> Any:
        x = dml.TensorDesc(DTYPE.upper(), split.shape)
        desc = dml.SplitOperatorDesc.from_sizes(x, axis=split.axis, sizes=split.sizes)
        return device.compile(desc)(array)

    return _cupy_array, call


def torch_out() -> tuple[Make, Call]:
    """`torch.split_with_sizes_copy` into new tensors."""
    import torch

    def call(array: Any, split: Split) -> Any:
        before, after = split.shape[: split.axis], split.shape[split.axis + 1 :]
        pieces = [array.new_empty((*before, size, *after)) for size in split.sizes]
        torch.split_with_sizes_copy(array, split.sizes, split.axis, out=pieces)
        return pieces

    return _torch_array, call


def torch_contiguous() -> tuple[Make, Call]:
    """`torch.split`, and a copy of each piece, contiguous or not."""
    import torch

    def call(array: Any, split: Split) -> Any:
        pieces = array.split(split.sizes, split.axis)
        return [piece.clone(memory_format=torch.contiguous_format) for piece in pieces]

    return _torch_array, call


def _cupy_array(memory: Any, shape: tuple[int, ...]) -> Any:
    import cupy

    return cupy.ndarray(shape, DTYPE, memory.data)


def _torch_array(memory: Any, shape: tuple[int, ...]) -> Any:
    import torch

    return torch.as_tensor(_cupy_array(memory, shape).view("int16"), device="cuda")


PEERS = {
    "dml.split": eager,
    "op(a)": operator,
    "torch out=": torch_out,
    "torch split + contiguous": torch_contiguous,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
