"""The formula that turns what launches execute into a fraction of a copy's speed."""

from dataclasses import replace

import pytest

from benchmarks import prediction
from benchmarks.prediction import COPY, EVEN_WAVES, GPUS, Blocks, Gpu

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


@pytest.mark.parametrize("gpu", GPUS, ids=str)
def test_what_hides_behind_memory_costs_little(gpu: Gpu) -> None:
    """A fifth of the memory's clocks adds a quarter of a percent, and half of them four."""
    assert steady(gpu, COPY.issue) > 0.997
    for share, speed in ((1 / 5, 0.997), (1 / 2, 0.96)):
        predicted = steady(gpu, COPY.issue, wavefronts=share * gpu.copy_clocks)
        assert predicted == pytest.approx((1 + share**3) ** (-1 / 3))
        assert predicted == pytest.approx(speed, abs=0.002)


def test_memory_and_a_unit_that_are_both_full_wait_for_each_other() -> None:
    full = H200.copy_clocks
    assert steady(H200, COPY.issue, wavefronts=full) == pytest.approx((1 + 1) ** (-1 / 3))


def test_every_unit_is_full_at_its_own_rate() -> None:
    """In a clock: four instructions, four sectors, two of the ALU or of IMAD, one wavefront."""
    full = H200.copy_clocks
    speeds = {
        steady(H200, 4 * full),
        steady(H200, COPY.issue, sectors=4 * full),
        steady(H200, COPY.issue, alu=2 * full),
        steady(H200, COPY.issue, imad=2 * full),
        steady(H200, COPY.issue, wavefronts=full),
    }
    assert len(speeds) == 1


def test_unavoidable_reads_count_as_part_of_the_copy() -> None:
    """Every second element: the copy moves one and a half times the bytes."""
    speed = steady(H200, COPY.issue, 1.5, wavefronts=1.5 * H200.copy_clocks)
    assert speed == pytest.approx(steady(H200, COPY.issue, wavefronts=H200.copy_clocks))


def test_a_unit_that_is_busier_than_the_memory_limits_the_predicted_speed() -> None:
    for gpu in (H200, B200):
        assert steady(gpu, COPY.issue, wavefronts=320) == pytest.approx(
            gpu.copy_clocks / 320, rel=0.01
        )


def launched(gpu: Gpu, total_bytes: int, **blocks: int) -> float:
    """The fraction for a kernel like the copy, whose blocks differ from the copy's in these."""
    alike = Blocks(total_bytes // (16 * KIB), 8, 16 * KIB, total_bytes)
    return prediction.fraction(gpu, [(COPY, replace(alike, **blocks))], total_bytes)


@pytest.mark.parametrize("gpu", [H100, H200, B200], ids=str)
@pytest.mark.parametrize("mib", [1, 16, 20, 1024])
def test_a_kernel_with_the_blocks_of_the_copy_is_as_fast_as_the_copy(gpu: Gpu, mib: int) -> None:
    assert launched(gpu, mib * MIB) > 0.999


@pytest.mark.parametrize(
    ("gpu", "needed"), [(H100, 2), (H200, 3), (B200, 4)], ids=["H100", "H200", "B200"]
)
def test_too_few_bytes_in_flight_lower_the_prediction(gpu: Gpu, needed: int) -> None:
    """So many blocks of 16 KiB on each SM keep memory busy; fewer have their share of its speed."""
    assert gpu.in_flight == needed * 16 * KIB
    assert launched(gpu, 1024 * MIB, resident=needed) > 0.99
    predicted = launched(gpu, 1024 * MIB, resident=needed - 1)
    assert predicted == pytest.approx((needed - 1) / needed, abs=0.01)


def test_a_block_that_reads_more_than_it_writes_has_more_in_flight() -> None:
    """Every fourth element: 4 KiB of outputs, for which a block requests 16."""
    total_bytes = 256 * MIB
    count = total_bytes // (4 * KIB)
    blocks = Blocks(count, 8, 16 * KIB, total_bytes)
    moved = (4 + 1) / 2  # four elements are read for one written; a copy reads one
    assert prediction.fraction(H200, [(COPY, blocks)], moved * total_bytes, work=moved) > 0.98
    # Eight blocks that read no more than they write have 32 of the 48 KiB that memory needs.
    assert launched(H200, total_bytes, count=count) == pytest.approx(32 / 48, abs=0.01)


def test_the_latency_of_serial_rounds_slows_a_small_split_only() -> None:
    """Blocks of 32 KiB, which request 16 at a time, copy in two rounds."""
    assert launched(H200, 4 * MIB, count=4 * MIB // (32 * KIB)) < 0.6
    assert launched(H200, 1024 * MIB, count=1024 * MIB // (32 * KIB)) > 0.98


def test_blocks_beyond_the_first_wave_leave_a_tail() -> None:
    """Blocks that all fit at once end together."""
    block_slots = H200.limits.sm_count * 8  # eight blocks fit an SM
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
    """Until enough waves have passed that SMs that were ahead have taken more blocks."""
    wave = 2 * H200.limits.sm_count
    for waves in (0.5, 1, 1.5, 2.5):
        even = round(waves * wave)
        assert units(even + 1) > 1.05 * units(even)
    assert units(EVEN_WAVES * wave + 1) == pytest.approx(units(EVEN_WAVES * wave))


def test_two_launches_are_predicted_to_be_slower_than_one() -> None:
    half = Blocks(512, 8, 16 * KIB, 8 * MIB)
    speed_of_two = prediction.fraction(H200, [(COPY, half)] * 2, 16 * MIB)
    assert speed_of_two < prediction.fraction(
        H200, [(COPY, replace(half, count=1024, total_bytes=16 * MIB))], 16 * MIB
    )
