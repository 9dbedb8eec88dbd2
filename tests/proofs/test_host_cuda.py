"""Kernels on the CPU instead of a GPU: right kernels pass, and wrong ones are caught."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.host_cuda import harness

ROWS, THREADS = 48, 64

# Every thread loads 16 bytes for its left neighbour, which reads them from shared memory.
KERNEL = """
constexpr int kThreads = 64;
struct Parameters { const unsigned char* input; unsigned char* outputs[1]; };

extern "C" __global__ void __launch_bounds__(kThreads)
turn(const __grid_constant__ Parameters pointers) {
    __shared__ uint4 tile[kThreads];
    const unsigned first = blockIdx.x * kThreads;
    const unsigned at = first + threadIdx.x;
    const unsigned next = first + (threadIdx.x + 1) % kThreads;
    tile[threadIdx.x] = __ldg(reinterpret_cast<const uint4*>(pointers.input) + next);
    __syncthreads();
    __stcs(reinterpret_cast<uint4*>(pointers.outputs[0]) + at,
           tile[(threadIdx.x + kThreads - 1) % kThreads]);
}
"""

WRONG = {
    "load out of bounds": ("pointers.input) + next", "pointers.input) + next + 1"),
    "store out of bounds": ("outputs[0]) + at", "outputs[0]) + at - 1"),
    "misaligned address": ("pointers.input) + next", "pointers.input + 4) + next"),
    "part at __syncthreads": ("__syncthreads();", "if (threadIdx.x < 32) __syncthreads();"),
    "store to the source": (
        "reinterpret_cast<uint4*>(pointers.outputs[0])",
        "const_cast<uint4*>(reinterpret_cast<const uint4*>(pointers.input))",
    ),
    "load from a target": ("uint4*>(pointers.input)", "uint4*>(pointers.outputs[0])"),
    "insufficient space|AddressSanitizer": ("tile[threadIdx.x] =", "tile[threadIdx.x + 1] ="),
    "shift exponent": ("blockIdx.x * kThreads", "blockIdx.x * (1 << blockDim.x)"),
    "store to misaligned": (
        "tile[threadIdx.x] =",
        "*reinterpret_cast<uint4*>(reinterpret_cast<char*>(tile) + 4) =",
    ),
    "target byte stored twice": ("outputs[0]) + at", "outputs[0]) + at / 2"),
}

# Threads clear, fill, fetch and refill each other's slots; each barrier separates two of these.
PHASES = """
constexpr int kThreads = 64;
struct Parameters { const unsigned char* input; unsigned char* outputs[1]; };

extern "C" __global__ void __launch_bounds__(kThreads)
phases(const __grid_constant__ Parameters pointers) {
    __shared__ uint4 tile[kThreads];
    const unsigned first = blockIdx.x * kThreads, own = threadIdx.x, right = (own + 1) % kThreads;
    tile[right] = make_uint4(0, 0, 0, 0);
    __syncthreads();  // cleared
    tile[own] = __ldg(reinterpret_cast<const uint4*>(pointers.input) + first + own);
    __syncthreads();  // filled
    const uint4 held = tile[right];
    __syncthreads();  // fetched
    tile[own] = held;
    __stcs(reinterpret_cast<uint4*>(pointers.outputs[0]) + first + right, tile[own]);
}
"""
BARRIERS = ["cleared", "filled", "fetched"]


def without(barrier: str) -> str:
    return PHASES.replace(f"__syncthreads();  // {barrier}", "")


# Each of these gives the right bytes, or might do so on a GPU.
HAZARDS = [
    (
        "shared memory race: threads 0 and 1, store after store",
        "tile[threadIdx.x] =",
        "reinterpret_cast<char*>(tile)[threadIdx.x / 2] = 7; __syncthreads(); tile[threadIdx.x] =",
    ),
    (
        "shared memory race: threads 0 and 1, store after store .*: 16 bytes",
        "tile[threadIdx.x] =",
        "if (threadIdx.x == 0) reinterpret_cast<char*>(tile)[31] = 7; tile[threadIdx.x] =",
    ),
    ("shared memory loaded before its block stores it: 16 bytes", "__syncthreads();", ""),
    (
        "shared memory loaded before its block stores it: 16 bytes",
        "tile[threadIdx.x] =",
        "if (threadIdx.x) tile[threadIdx.x] =",
    ),
    (
        "shared memory loaded before its block stores it: .* block 1",
        "tile[threadIdx.x] =",
        "if (blockIdx.x == 0) tile[threadIdx.x] =",
    ),
    (
        "target byte stored twice in one launch: 16 bytes .* thread 62\n  byte 496 of target 0",
        "outputs[0]) + at",
        "outputs[0]) + at / 2",
    ),
    (
        "target byte stored twice in one launch: 16 bytes .* block 1, .*\n  byte 0 of target 0",
        "outputs[0]) + at",
        "outputs[0]) + at % kThreads",
    ),
    (
        "target byte stored twice in one launch: 1 bytes .*\n  byte 16 of target 0",
        "__syncthreads();",
        "__syncthreads(); if (at == 0) __stcs(pointers.outputs[0] + 16, (unsigned char)0);",
    ),
]

# Code to insert before KERNEL's first store, and its error.
WRAPS = {
    "const unsigned n = at + 4294967290u;": "6 . 4294967290 wraps at 32 bits: block 0, .* 6",
    "const unsigned n = at - 1;": "0 - 1 wraps at 32 bits: block 0, thread 0",
    "const unsigned n = (at + 1) * 4000000000u;": "2 . 4000000000 wraps at 32 bits",
    "unsigned n = at + 1; n *= 4000000000u;": "2 . 4000000000 wraps at 32",
    "const unsigned n = -at;": "0 - 1 wraps at 32 bits: block 0, thread 1",
    "const unsigned n = blockIdx.x * 4000000000u;": "2 . 4000000000 wraps",
    "const unsigned long long n = at - 1ull;": "0 - 1 wraps at 64 bits",
    "const auto n = static_cast<unsigned>(at + 4294967290ull);": "4294967296 wraps at 32",
    "const int m = threadIdx.x; const unsigned n = m - 5;": "-5 wraps at 32 bits",
    "const int n = static_cast<int>(at + 2147483647u);": "2147483648 wraps at 32",
    "const int n = threadIdx.x; if (n - 1 < at) return;": "-1 wraps at 32 bits",
}

# Stores one byte of each word, loads the word, and masks the rest away.
PARTIAL = KERNEL.replace(
    "tile[threadIdx.x] =",
    """
    unsigned* const words = reinterpret_cast<unsigned*>(tile);
    reinterpret_cast<unsigned char*>(words + threadIdx.x)[2] = 5;
    __syncthreads();
    if ((words[threadIdx.x] >> 16 & 255) != 5) return;
    __syncthreads();
    tile[threadIdx.x] =""",
)


RACE = KERNEL.replace("__syncthreads();", "")
WRAPPING = {
    KERNEL.replace("tile[threadIdx.x] =", f"{line} tile[threadIdx.x] ="): f"fault: {message}"
    for line, message in WRAPS.items()
}
# Wrong kernels by the toolchain that refuses them, each with its message.
FAULTS = {
    "sanitizers": (
        harness.SANITIZED,
        {KERNEL.replace(*change): message for message, change in WRONG.items()},
    ),
    "hazards": (
        harness.COUNTING,
        {KERNEL.replace(*change): message for message, *change in HAZARDS},
    ),
    "wraps": (harness.CHECKED, WRAPPING),
}
RIGHT = {"turn": KERNEL, "phases": PHASES, "partial": PARTIAL}
EACH_FAULT = [
    pytest.param(kind, source, message, id=f"{kind}-{message}")
    for kind, (_, faults) in FAULTS.items()
    for source, message in faults.items()
]

pytestmark = pytest.mark.skipif(bool(harness.missing()), reason=str(harness.missing()))
Programs = Callable[[str], dict[str, harness.Program]]


@pytest.fixture(scope="module")
def programs(builds: Path) -> Programs:
    """The programs for one kind of fault, including right kernels."""

    @cache
    def made(kind: str) -> dict[str, harness.Program]:
        toolchain, faults = FAULTS[kind]
        assert not faults.keys() & set(RIGHT.values())
        sources = [*RIGHT.values(), RACE, *map(without, BARRIERS), *faults]
        return harness.build(sources, builds, toolchain)

    return made


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("name", RIGHT)
def test_a_correct_kernel_passes(
    kind: str, name: str, programs: Programs, data: np.ndarray
) -> None:
    (_, (target,)) = programs(kind)[RIGHT[name]].run(3, THREADS, memory(data)).windows
    assert np.array_equal(target, data)


@pytest.mark.parametrize(("kind", "source", "message"), EACH_FAULT)
def test_a_kernel_with_a_fault_is_rejected(
    kind: str, source: str, message: str, programs: Programs, data: np.ndarray
) -> None:
    with pytest.raises(harness.KernelFaultError, match=message):
        programs(kind)[source].run(3, THREADS, memory(data))


@pytest.mark.parametrize("block", [0, 1], ids=["forwards", "backwards"])
@pytest.mark.parametrize("barrier", BARRIERS)
def test_a_missing_barrier_is_reported_as_a_race_in_either_thread_order(
    barrier: str, block: int, programs: Programs, data: np.ndarray
) -> None:
    race = r"shared memory race: threads (\d+) and (?!\1\b)\d+, \w+ after \w+ without a barrier"
    with pytest.raises(harness.KernelFaultError, match=race):
        programs("hazards")[without(barrier)].run(3, THREADS, memory(data), blocks=[block])


def memory(data: np.ndarray) -> list[harness.Buffer]:
    poison = np.full(data.nbytes, 0xEE, np.uint8)
    whole = ((0, data.nbytes),)
    return [
        harness.Buffer(data.nbytes, patches=((0, data),), windows=whole),
        harness.Buffer(data.nbytes, patches=((0, poison),), windows=whole),
    ]


@pytest.fixture
def data() -> np.ndarray:
    """The bytes of the input: random ones."""
    return np.random.default_rng(3).integers(0, 256, ROWS * 64, np.uint8)


def test_a_correct_kernel_gives_the_expected_bytes_and_counts(
    programs: Programs, data: np.ndarray
) -> None:
    outcome = programs("sanitizers")[KERNEL].run(3, THREADS, memory(data), counting=True)
    (source,), (target,) = outcome.windows
    assert np.array_equal(source, data)
    assert np.array_equal(target, data)
    counts = outcome.counts
    assert counts.load_instructions == counts.store_instructions == 3 * THREADS
    assert counts.load_bytes == counts.store_bytes == counts.store_bytes_16 == data.nbytes
    assert counts.store_requests == counts.store_request_targets == 3 * THREADS // 32
    assert counts.load_block_sectors == counts.store_block_sectors == data.nbytes // 32


def test_every_sector_that_a_misaligned_range_touches_is_counted(
    programs: Programs, data: np.ndarray
) -> None:
    source, target = memory(data)
    shifted = [harness.Buffer(source.size, misalignment=16, patches=source.patches), target]
    counts = programs("sanitizers")[KERNEL].run(3, THREADS, shifted, counting=True).counts
    assert counts.load_block_sectors == data.nbytes // 32 + 3


def test_wavefronts_count_the_conflicts_of_shared_memory(builds: Path, data: np.ndarray) -> None:
    """A warp of 16-byte accesses takes 4 turns, or 32 if all lanes need the same four banks."""
    apart = KERNEL.replace("tile[kThreads]", "tile[8 * kThreads]").replace("tile[(", "tile[8 * ((")
    apart = apart.replace("% kThreads]", "% kThreads)]")
    apart = apart.replace("tile[threadIdx.x]", "tile[8 * threadIdx.x]")
    programs_by_source = harness.build([KERNEL, apart], builds, harness.COUNTING)
    for source, turns in [(KERNEL, 4), (apart, 32)]:
        outcome = programs_by_source[source].run(3, THREADS, memory(data), counting=True)
        assert np.array_equal(outcome.windows[1][0], data)
        assert outcome.counts.shared_requests == 2 * 3 * THREADS // 32
        assert outcome.counts.shared_wavefronts == turns * outcome.counts.shared_requests


def test_only_the_chosen_blocks_run(programs: Programs, data: np.ndarray) -> None:
    (_, (target,)) = (
        programs("sanitizers")[KERNEL].run(3, THREADS, memory(data), blocks=[1]).windows
    )
    assert np.array_equal(target[1024:2048], data[1024:2048])
    assert np.all(target[:1024] == 0xEE)
    assert np.all(target[2048:] == 0xEE)


def test_a_missing_barrier_changes_the_output(programs: Programs, data: np.ndarray) -> None:
    (_, (target,)) = programs("sanitizers")[RACE].run(3, THREADS, memory(data)).windows
    assert not np.array_equal(target, data)


def test_a_source_that_does_not_compile_shows_the_compiler_log(builds: Path) -> None:
    with pytest.raises(RuntimeError, match="no_such_word"):
        harness.build([KERNEL.replace("__syncthreads", "no_such_word")], builds)
