"""Run ``python -m benchmarks`` on the simulated card, to rehearse the program and not the card.

Its times mean nothing. The data are small and few calls are made. The host makes and compares the
data, because the program uses CuPy's own kernels for that. The rest of the program is unchanged.
"""

import sys
from typing import Any, NoReturn

import numpy as np

from tests.simulated_card import card

card.load()

import cupy  # noqa: E402

from benchmarks import __main__ as command  # noqa: E402
from benchmarks import gpu, gpu_planner, gpu_samples, peers_cub, timing, workloads  # noqa: E402

MAX_BYTES = 1 << 16
# Cases that are large even with fewer rows do not fit; their rows have that message.
MEMORY = 16 << 20


def random_words(count: int) -> Any:
    memory = cupy.empty(count, np.uint32)  # first, because large cases end here
    memory.set(np.random.default_rng(count).integers(0, 1 << 32, count, np.uint32))
    return memory


def on_host(array: Any) -> np.ndarray:
    """A copy on the host of an array with any strides, made by copying all of its memory."""
    memory = array.data.mem
    whole = np.empty(memory.size, np.uint8)
    cupy.cuda.get_current_stream().synchronize()
    cupy.cuda.runtime.memcpy(
        whole.ctypes.data, memory.ptr, memory.size, cupy.cuda.runtime.memcpyDeviceToHost
    )
    return np.ndarray(array.shape, array.dtype, whole, array.data.ptr - memory.ptr, array.strides)


def count_different(pieces: list[Any], expected_pieces: list[Any]) -> int:
    pairs = zip(pieces, expected_pieces, strict=True)
    return sum(not np.array_equal(on_host(piece), on_host(expected)) for piece, expected in pairs)


def no_library() -> NoReturn:
    raise NotImplementedError("a program of nvcc does not run on the simulated card")


def prepare() -> None:
    """Make the program's data small, and make it on the host."""
    gpu.random_words, gpu.count_different = random_words, count_different
    gpu.WORKLOADS = tuple(workloads.scaled(workload, MAX_BYTES) for workload in workloads.WORKLOADS)
    gpu.MAX_SETS = gpu_samples.MAX_CALLS = gpu_samples.HOST_CALLS = 2
    gpu_planner.TOTAL_BYTES = 2 * MAX_BYTES
    gpu.WARM_UP_BYTES = 1 << 16
    timing.WARM_SECONDS = 0
    peers_cub.library = no_library


if __name__ == "__main__":
    card.set_memory_limit(0, MEMORY)
    prepare()
    sys.exit(command.main(sys.argv[1:]))
