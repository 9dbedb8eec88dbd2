"""The formula that turns what launches execute into a fraction of a copy's speed."""

from dataclasses import replace
from itertools import product

import pytest

from benchmarks import prediction
from benchmarks.prediction import COPY, GPUS, Blocks, Gpu

H100, H200, B200, RTX_4090, L4, T4 = GPUS
KIB, MIB = 1 << 10, 1 << 20


def steady(gpu: Gpu, issue: float, work: float = 1, **busy: float) -> float:
    return prediction.steady(gpu, replace(COPY, issue=issue, **busy), work)


@pytest.mark.parametrize(
    ("gpu", "clocks"),
    [(H100, 76.6), (H200, 53.4), (B200, 40.6), (RTX_4090, 364.1), (L4, 448.7), (T4, 226.1)],
    ids=str,
)
def test_a_copy_takes_the_clocks_that_its_bandwidth_gives(gpu: Gpu, clocks: float) -> None:
    """Those in which an SM reads and writes 512 bytes, at its share of the memory's bandwidth."""
    assert gpu.copy_clocks == pytest.approx(clocks, abs=0.05)


def test_what_hides_behind_memory_costs_little() -> None:
    """A fifth of the memory's clocks adds a quarter of a percent, and half of them four."""
    for gpu in GPUS:
        assert steady(gpu, 16) > 0.997
        assert steady(gpu, 16, wavefronts=gpu.copy_clocks / 5) == pytest.approx(0.997, abs=0.001)
        assert steady(gpu, 16, wavefronts=gpu.copy_clocks / 2) == pytest.approx(0.96, abs=0.002)


def test_memory_and_a_unit_that_are_both_full_wait_for_each_other() -> None:
    full = H200.copy_clocks
    assert steady(H200, 16, wavefronts=full) == pytest.approx(0.5 ** (1 / 3))
    assert (
        steady(H200, 4 * full)
        == steady(H200, 16, sectors=4 * full)
        == steady(H200, 16, alu=2 * full)
    )


def test_unavoidable_reads_count_as_part_of_the_copy() -> None:
    """Every second element: the copy moves one and a half times the bytes."""
    assert steady(H200, 16, 1.5, wavefronts=1.5 * H200.copy_clocks) == pytest.approx(0.5 ** (1 / 3))


def test_a_unit_that_is_busier_than_the_memory_limits_the_predicted_speed() -> None:
    for busy in ({"wavefronts": 320}, {"alu": 640}, {"imad": 640}, {"sectors": 1280}):
        assert steady(H200, 16, **busy) == pytest.approx(53.4 / 320, rel=0.01)
    assert steady(B200, 1280) == pytest.approx(40.6 / 320, rel=0.01)


def launched(gpu: Gpu, total_bytes: int, **blocks: int) -> float:
    """The fraction for a kernel like the copy, with other blocks."""
    alike = Blocks(total_bytes // (16 * KIB), 8, 16 * KIB, total_bytes)
    return prediction.fraction(gpu, [(COPY, replace(alike, **blocks))], total_bytes)


def test_too_few_bytes_in_flight_lower_the_prediction() -> None:
    """An H200 needs 48 KiB on each SM, a B200 64: three of these blocks, or four."""
    for gpu, total_bytes in product(GPUS[:3], (MIB, 16 * MIB, 20 * MIB, 1024 * MIB)):
        assert launched(gpu, total_bytes) > 0.999
    assert launched(H200, 1024 * MIB, resident=3) > 0.99
    assert launched(H200, 1024 * MIB, resident=2) == pytest.approx(2 / 3, abs=0.01)
    assert launched(B200, 1024 * MIB, resident=3) == pytest.approx(3 / 4, abs=0.01)
    assert launched(H100, 1024 * MIB, resident=2) > 0.99


def test_a_block_that_reads_more_than_it_writes_has_more_in_flight() -> None:
    """Every fourth element: 4 KiB of outputs, for which a block requests 16."""
    blocks = Blocks(1 << 16, 8, 16 * KIB, 256 * MIB)
    speed = prediction.fraction(H200, [(COPY, blocks)], 2.5 * 256 * MIB, work=2.5)
    assert speed > 0.98
    assert launched(H200, 256 * MIB, count=1 << 16) == pytest.approx(2 / 3, abs=0.01)


def test_the_latency_of_serial_rounds_slows_a_small_split() -> None:
    total_bytes = 4 * MIB
    two_rounds = launched(H200, total_bytes, count=total_bytes // (32 * KIB))
    assert two_rounds < 0.6
    assert launched(H200, 1024 * MIB, count=32 * KIB) > 0.98, (
        "a large one has as many bytes in flight"
    )


def test_blocks_beyond_the_first_wave_leave_a_tail() -> None:
    """Blocks that all fit at once end together."""
    block_slots = 132 * 8
    total_bytes = block_slots * 64 * KIB
    at_once = launched(H200, total_bytes, count=block_slots)
    longer = launched(H200, total_bytes, count=block_slots + 1)
    assert longer < at_once
    assert launched(H200, 16 * total_bytes, count=16 * block_slots) > 0.98, "of a large split, less"


def units(count: int) -> float:
    """The clocks that busy banks add for each block, if two blocks fit an SM."""
    busy = replace(COPY, wavefronts=50)
    blocks = Blocks(count, 2, 48 * KIB, count * 48 * KIB)
    return prediction.launch_clocks(H200, busy, blocks).units / count


def test_a_unit_waits_for_the_sm_with_the_most_blocks() -> None:
    """Until so many waves have passed that SMs that were ahead have taken more blocks."""
    for waves in (0.5, 1, 1.5, 2.5):
        even = round(waves * 2 * 132)
        assert units(even + 1) > 1.05 * units(even)
    assert units(4 * 2 * 132 + 1) == pytest.approx(units(4 * 2 * 132))


def test_two_launches_are_predicted_to_be_slower_than_one() -> None:
    half = Blocks(512, 8, 16 * KIB, 8 * MIB)
    speed_of_two = prediction.fraction(H200, [(COPY, half)] * 2, 16 * MIB)
    assert speed_of_two < prediction.fraction(
        H200, [(COPY, replace(half, count=1024, total_bytes=16 * MIB))], 16 * MIB
    )
