"""Launches of splits as machine code: every byte is checked, and work is counted exactly."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.proofs import forms
from tests.sass import cases, kernels, launch, split_memory
from tests.sass.split_memory import SplitMemory
from tests.sass.threads import SassError
from tests.sass.wavefronts import wavefronts
from tests.support import nvrtc
from tests.support.kernel_cases import MACHINE, Case, chosen, tagged
from tests.support.kernel_splits import SMALL

pytestmark = pytest.mark.skipif(bool(nvrtc.missing()), reason=str(nvrtc.missing()))

# Small launches of every kernel, of which all blocks run.
WHOLE = tagged(MACHINE, SMALL)
# One of each other form, and then the rest: parts of both are compiled together.
OTHERS = [name for name in forms.distinct(WHOLE | SMALL) if name not in WHOLE]
REST = [name for name in SMALL if name not in WHOLE and name not in OTHERS]
PARTS = [
    *(
        pytest.param(OTHERS[n::4], marks=pytest.mark.slow, id=f"distinct forms, part {n + 1} of 4")
        for n in range(4)
    ),
    *(
        pytest.param(
            REST[n::8], marks=pytest.mark.exhaustive, id=f"remaining cases, part {n + 1} of 8"
        )
        for n in range(8)
    ),
]


def disassemble(splits: Iterable[Case], builds: Path) -> None:
    launches = (kernel_launch for case in splits for kernel_launch in case.launches)
    launch.disassemble((kernel_launch.code.source for kernel_launch in launches), builds)


@pytest.fixture(scope="module")
def whole(request: pytest.FixtureRequest, builds: Path) -> Path:
    """The folder of the builds, once it has the code of all chosen cases of `WHOLE`."""
    names = chosen(request, test_launches_store_every_byte_once)
    disassemble((WHOLE[name] for name in names), builds)
    return builds


@pytest.mark.parametrize("name", WHOLE)
def test_launches_store_every_byte_once(name: str, whole: Path) -> None:
    cases.run_and_check_stores(WHOLE[name], whole)


@pytest.mark.parametrize("names", PARTS)
def test_remaining_small_cases_store_every_byte_once(names: list[str], builds: Path) -> None:
    disassemble((SMALL[name] for name in names), builds)
    for name in names:
        cases.run_and_check_stores(SMALL[name], builds)


@dataclass(frozen=True)
class Launch:
    """The properties of a launch that the interpreter needs, for a kernel of our own."""

    outputs: tuple[int, ...]
    grid: int
    threads: int

    def parameters(self, addresses: Sequence[int]) -> bytes:
        return struct.pack(f"<{len(addresses)}Q", *addresses)


COPY = """
struct Pointers { const unsigned char* input; unsigned char* outputs[2]; };
extern "C" __global__ void kernel(const __grid_constant__ Pointers p) {
    const int row = threadIdx.x;  // 64 rows of 24 bytes: 8 to one output, 16 to the other
    typedef unsigned long long u64;
    const u64* source = reinterpret_cast<const u64*>(p.input + row * 24);
    u64* first = reinterpret_cast<u64*>(p.outputs[0] + row * 8);
    u64* second = reinterpret_cast<u64*>(p.outputs[1] + row * 16);
    FIRST
    second[0] = source[1]; second[1] = source[2];
}
"""
ROWS = Case((64, 24), (8, 16))


def store(first: str, builds: Path) -> int:
    memory = SplitMemory(ROWS.geometry, (0, 1))
    kernels.run_in(COPY.replace("FIRST", first), memory, memory.addresses, builds)
    return memory.check()


def test_a_correct_copy_stores_every_byte(builds: Path) -> None:
    assert store("first[0] = source[0];", builds) == 64 * 24


WRONG = {
    "first[0] = row == 5 ? source[0] ^ 0x10000 : source[0];": (
        r"thread 5: byte 42 of output 0 is .*, not byte 122 of the input"
    ),
    "first[0] = source[1];": "not byte 0 of the input",
    "first[0] = source[0]; if (row == 9) *(p.outputs[0] + 70) = p.input[198];": (
        "thread 9: address .* is stored twice"
    ),
    "first[row == 63] = source[0];": "thread 63: byte 512 of output 0 is not in the output",
    "first[row - 1] = source[0];": "byte -8 of output 0 is not in the output",
    "first[0] = source[row == 63 ? 99 : 0];": "without a byte of the input",
    "first[0] = source[row == 0 ? -1 : 0];": "thread 0: loads from a 16-byte word without",
    "first[0] = *(const u64*)(p.input + row * 24 + (row == 3));": (
        "thread 3: an address is not a multiple of 8"
    ),
}


@pytest.mark.parametrize("first", WRONG)
def test_a_kernel_with_a_wrong_load_or_store_is_rejected(first: str, builds: Path) -> None:
    with pytest.raises(SassError, match=WRONG[first]):
        store(first, builds)


def test_a_byte_that_no_thread_stores_is_rejected(builds: Path) -> None:
    source = COPY.replace("FIRST", "if (row != 7) first[0] = source[0];")
    code = launch.compiled(source, builds)
    kernel_launch = Launch((0, 1), grid=1, threads=64)
    with pytest.raises(SassError, match="stored 1528 of 1536 bytes"):
        launch.run(ROWS.geometry, kernel_launch, code, [0])


def test_a_store_between_the_elements_of_an_output_is_rejected(builds: Path) -> None:
    padded_case = Case((64, 24), (8, 16), output_strides=((9, 1), (16, 1)))
    memory = SplitMemory(padded_case.geometry, (0, 1))
    body = COPY.replace("FIRST", "first[0] = source[0];")
    kernels.run_in(body, memory, memory.addresses, builds)
    with pytest.raises(SassError, match="byte 8 of output 0 is not in the output, or between"):
        memory.check()


def test_loads_of_any_size_read_the_same_random_input_bytes() -> None:
    addresses = np.arange(1 << 20, (1 << 20) + 4096, dtype=np.uint64)
    words = split_memory.input_words(addresses[::4])
    for size in (1, 16):
        runs = np.lib.stride_tricks.sliding_window_view(words.view(np.uint8), size)
        assert np.array_equal(split_memory.input_runs(addresses[: len(runs)], size), runs)
    assert np.bincount(words.view(np.uint8), minlength=256).max() < 40  # evenly distributed


LANES = np.arange(32, dtype=np.uint64)[None]


@pytest.mark.parametrize(
    ("addresses", "size", "expected"),
    [
        (LANES * 4, 4, 1),
        (LANES * 0, 4, 1),  # one word for all
        (LANES * 8, 4, 2),
        (LANES * 128, 4, 32),
        (LANES * 132, 4, 1),  # padded rows
        (LANES, 1, 1),
        (LANES * 128 + LANES % 2, 1, 32),
        (LANES * 8, 8, 2),  # by half warps
        (LANES * 16, 16, 4),  # by quarters
        (LANES * 128, 16, 32),
        (LANES // 8 * 16, 16, 4),  # the same vector for a quarter
        (LANES * 144, 16, 4),
        (LANES * 256, 8, 32),
    ],
)
def test_bank_conflicts_are_counted(addresses: np.ndarray, size: int, expected: int) -> None:
    everyone = np.ones((1, 32), bool)
    assert wavefronts(addresses, everyone, size) == expected
    address_pair = np.concatenate([addresses, addresses + np.uint64(1 << 16)])
    assert wavefronts(address_pair, np.concatenate([everyone, everyone]), size) == 2 * expected
    assert wavefronts(addresses, ~everyone, size) == 0


def test_inactive_threads_cause_no_bank_conflicts() -> None:
    assert wavefronts(LANES * 128, LANES < 3, 4) == 3
    assert wavefronts(LANES * 128, LANES < 3, 16) == 3
    assert wavefronts(LANES * 16, LANES >= 24, 16) == 1


def test_the_instructions_and_wavefronts_of_a_copy_are_counted_exactly(builds: Path) -> None:
    """Per warp and 512 bytes: one load and one store of 16 bytes, four wavefronts each."""
    source = """
    struct Pointers { const uint4* input; uint4* outputs[1]; };
    extern "C" __global__ void kernel(const __grid_constant__ Pointers p) {
        const unsigned i = blockIdx.x * 128 + threadIdx.x;
        p.outputs[0][i] = p.input[i];
    }"""
    case = Case((5 * 128 * 16,), (5 * 128 * 16,))
    code = launch.compiled(source, builds)
    kernel_launch = Launch((0,), grid=5, threads=128)
    counts = launch.run(case.geometry, kernel_launch, code, list(range(5)))
    length = next(i.index for i in code.listing.instructions if i.opcode == "EXIT") + 1
    assert counts.issue == length
    assert (counts.loads, counts.stores, counts.load_bytes) == (1, 1, 1)
    assert (counts.global_wavefronts, counts.shared_wavefronts) == (8, 0)
    parts = counts.alu + counts.imad + counts.lsu + counts.uniform + counts.other
    assert parts == counts.issue
    assert counts.stored_bytes == 3 * 128 * 16, "the first and the last block are not counted"


def test_sampled_blocks_include_the_first_and_the_last() -> None:
    assert launch.sampled(5) == [0, 1, 2, 3, 4]
    blocks = launch.sampled(10**6)
    assert (blocks[0], blocks[-1]) == (0, 10**6 - 1)
    assert blocks == sorted(set(blocks)) == launch.sampled(10**6)
