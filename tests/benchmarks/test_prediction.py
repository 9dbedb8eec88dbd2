"""The formula that turns what launches execute into a fraction of a copy's speed."""

from dataclasses import replace
from itertools import product

import pytest

from benchmarks import prediction
from benchmarks.prediction import GPUS, Blocks, Executed, Gpu

H100, H200, B200, RTX_4090, L4, T4 = GPUS
COPY = Executed(issue=16, sectors=16, alu=0, imad=0, wavefronts=8)
KIB, MIB = 1 << 10, 1 << 20


def steady(gpu: Gpu, issue: float, work: float = 1, **busy: float) -> float:
    return prediction.steady(gpu, replace(COPY, issue=issue, **busy), work)


def test_a_copy_takes_the_clocks_that_its_bandwidth_gives() -> None:
    """512 bytes are read and written, at 3.0, 4.3 and 6.9 TB/s in total, on 132 or 148 SMs."""
    found = [round(gpu.copy_clocks, 1) for gpu in GPUS]
    assert found == [76.6, 53.4, 40.6, 364.1, 448.7, 226.1]


def test_each_instruction_and_sector_beyond_those_of_the_copy_costs_the_same() -> None:
    for gpu in GPUS:
        assert steady(gpu, 16) == steady(gpu, 12) == steady(gpu, 16, sectors=15) == 1
    found = [round(steady(gpu, issue), 3) for gpu, issue in ((H200, 47), (H100, 47), (H200, 230))]
    assert found == [0.938, 0.956, 0.687]
    assert steady(H200, 16, sectors=47) == steady(H200, 47)


def test_unavoidable_reads_count_as_part_of_the_copy() -> None:
    """Every second element: a copy of one and a half times the bytes does as much."""
    assert steady(H200, 24, 1.5, sectors=24) == 1
    extra = 0.114 * (4 + 40)
    assert steady(H200, 28, 1.5, sectors=64) == pytest.approx(80.2 / (80.2 + extra), abs=0.001)


def test_a_unit_that_is_busier_than_the_memory_limits_the_predicted_speed() -> None:
    assert steady(H200, 40, wavefronts=80) == pytest.approx(53.4 / 80, abs=0.001)
    assert steady(H200, 200, alu=160) == pytest.approx(53.4 / 80, abs=0.001)
    assert steady(B200, 400) == pytest.approx(40.6 / 100, abs=0.001)


def test_the_formula_gives_the_measured_ratio_of_two_transposes() -> None:
    """137 and 74 instructions: 75.4 % and 82.8 % of a GH200's memory speed (pytorch#194310).

    The formula turns the difference in instructions into the difference in time, at the memory's
    speed of 4 TB/s and 1.7 GHz.
    """
    gh200 = replace(H200, name="GH200", copy=4.0)
    assert steady(gh200, 137) / steady(gh200, 74) == pytest.approx(75.4 / 82.8, abs=0.02)


def launched(gpu: Gpu, total_bytes: int, **blocks: int) -> float:
    """The fraction for a kernel like the copy, with other blocks."""
    alike = Blocks(total_bytes // (16 * KIB), 8, 16 * KIB, total_bytes)
    return prediction.fraction(gpu, [(COPY, replace(alike, **blocks))], total_bytes)


def test_too_few_bytes_in_flight_lower_the_prediction() -> None:
    """An H200 needs 48 KiB on each SM, a B200 64: three of these blocks, or four."""
    for gpu, total_bytes in product(GPUS[:3], (MIB, 16 * MIB, 20 * MIB, 1024 * MIB)):
        assert launched(gpu, total_bytes) == 1
    assert launched(H200, 1024 * MIB, resident=3) > 0.99
    assert launched(H200, 1024 * MIB, resident=2) == pytest.approx(2 / 3, abs=0.01)
    assert launched(B200, 1024 * MIB, resident=3) == pytest.approx(3 / 4, abs=0.01)
    assert launched(H100, 1024 * MIB, resident=2) > 0.99


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


def test_a_unit_waits_for_the_sm_with_the_most_blocks() -> None:
    busy = replace(COPY, wavefronts=50)
    clocks = [
        prediction.launch_clocks(H200, busy, Blocks(count, 2, 48 * KIB, count * 48 * KIB)).total
        for count in (132, 133)
    ]
    assert clocks[1] > 1.5 * clocks[0]


def test_two_launches_are_predicted_to_be_slower_than_one() -> None:
    half = Blocks(512, 8, 16 * KIB, 8 * MIB)
    both = prediction.fraction(H200, [(COPY, half)] * 2, 16 * MIB)
    assert both < prediction.fraction(
        H200, [(COPY, replace(half, count=1024, total_bytes=16 * MIB))], 16 * MIB
    )
