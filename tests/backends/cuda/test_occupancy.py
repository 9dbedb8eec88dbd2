"""How many blocks fit an SM: by threads, blocks, registers and shared memory."""

import pytest

from dmlsplit.backends.cuda.gpus import find_gpu
from dmlsplit.backends.cuda.occupancy import blocks_of, in_flight_per_sm, resident_blocks
from dmlsplit.backends.cuda.planner import plan
from dmlsplit.backends.cuda.specialization import THREADS
from tests.support.descriptors import packed_split

SHORT = packed_split((1000, 2408), axis=1, sizes=(301,) * 8)


@pytest.mark.parametrize(
    ("gpu", "threads", "registers", "shared_bytes", "blocks"),
    [
        ("H200", 256, 32, 0, 8),  # threads
        ("H200", 256, 33, 0, 6),  # registers, in units of 8
        ("H200", 64, 40, 0, 24),  # 12 warps in each part of the SM, not 51 in all of it
        ("H200", 64, 64, 0, 16),
        ("H200", 32, 16, 0, 32),  # blocks
        ("H200", 256, 40, 44_704, 5),  # shared memory
        ("H200", 128, 64, 22_864, 8),
        ("L4", 256, 64, 44_704, 2),
        ("L4", 128, 64, 22_864, 4),
        ("L4", 256, 32, 0, 6),
        ("T4", 256, 40, 0, 4),
        ("T4", 256, 40, 44_704, 1),
    ],
)
def test_blocks_per_sm_are_limited_by_the_scarcest_resource(
    gpu: str, threads: int, registers: int, shared_bytes: int, blocks: int
) -> None:
    limits = find_gpu(gpu).limits
    assert resident_blocks(limits, threads, registers, shared_bytes) == blocks


def test_a_block_that_does_not_fit_an_sm_gives_zero_blocks() -> None:
    assert resident_blocks(find_gpu("T4").limits, 1024, 255) == 0
    assert resident_blocks(find_gpu("T4").limits, 256, 32, 64 << 10) == 0


def test_the_blocks_of_a_launch_are_at_least_those_of_its_code() -> None:
    """Smaller blocks than the code allows."""
    limits = find_gpu("H200").limits
    for case, blocks in (
        (packed_split((64, 20480), axis=1, sizes=(16384, 2048, 2048)), 24),
        (SHORT, 16),
    ):
        (launch,) = plan(case, 16, 16, limits)
        assert launch.threads < THREADS
        assert blocks_of(launch, limits) == blocks >= launch.code.resident


def test_bytes_in_flight_are_those_of_the_blocks_that_fit() -> None:
    limits = find_gpu("H200").limits
    (small,) = plan(packed_split((1 << 20,), axis=0, sizes=(1 << 19,) * 2), 16, 16, limits)
    assert in_flight_per_sm(small, limits) == (1 << 20) // limits.sm_count, "all of a small split"
    (large,) = plan(packed_split((1 << 30,), axis=0, sizes=(1 << 29,) * 2), 16, 16, limits)
    assert in_flight_per_sm(large, limits) == 6 * 256 * 64, "and six full blocks of a large one"
