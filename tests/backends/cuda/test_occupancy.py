"""How many blocks fit an SM: by threads, blocks, registers and shared memory."""

import pytest

from dmlsplit.backends.cuda.gpus import find_gpu
from dmlsplit.backends.cuda.occupancy import resident_blocks


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
def test_blocks_are_limited_by_what_runs_out_first(
    gpu: str, threads: int, registers: int, shared_bytes: int, blocks: int
) -> None:
    limits = find_gpu(gpu).limits
    assert resident_blocks(limits, threads, registers, shared_bytes) == blocks


def test_what_does_not_fit_has_no_block() -> None:
    assert resident_blocks(find_gpu("T4").limits, 1024, 255) == 0
    assert resident_blocks(find_gpu("T4").limits, 256, 32, 64 << 10) == 0
