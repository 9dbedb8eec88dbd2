"""Plans for wide outputs: how rows become chunks, tiles and blocks."""

from itertools import accumulate, chain
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks.workloads import WORKLOADS
from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.planner.wide import REGISTERS, evenness, resident_blocks
from dmlsplit.geometry import SplitGeometry
from tests.support.descriptors import packed
from tests.support.plans import known, planned, sources

THIRD = 1 / 3


widths = st.integers(512, 100_000)


@given(st.lists(widths, min_size=2, max_size=300), st.integers(2, 100_000))
def test_every_tile_belongs_to_its_output(sizes: list[int], rows: int) -> None:
    (launch,) = planned(packed((rows, sum(sizes)), 1, tuple(sizes), 1), 1, 1)
    assume(launch.kernel == "rows")
    found = known(launch)
    if "tile_starts" not in found:  # equal outputs
        assert found["chunk_tiles"] == found["output_tiles"] * len(sizes)
        return
    starts = list(found["tile_starts"][: len(sizes)])
    tile_bytes = launch.block * 64
    tiles = [-(-found["chunk_rows"] * size // tile_bytes) for size in sizes]
    assert starts == list(accumulate(tiles[:-1], initial=0))
    assert found["chunk_tiles"] == sum(tiles)
    if "nearby" in found:
        for tile in range(0, sum(tiles), 1 + sum(tiles) // 500):
            low, high = (found["nearby"][(tile >> found["nearby_shift"]) + n] for n in (0, 1))
            owner = max(o for o, start in enumerate(starts) if start <= tile)
            assert low <= owner <= high


@given(st.lists(widths, min_size=2, max_size=20), st.lists(st.integers(1, 1 << 20), min_size=2))
def test_no_number_of_rows_needs_a_program_of_its_own(sizes: list[int], rows: list[int]) -> None:
    """One row or more, outputs that fit the L2 cache or not: at most four programs."""
    geometries = [packed((count, sum(sizes)), 1, tuple(sizes), 1) for count in rows]
    assert len(set(chain.from_iterable(map(sources, geometries)))) <= 4


@settings(max_examples=30)
@given(
    st.lists(st.lists(st.integers(1, 1 << 24), min_size=64, max_size=64), min_size=2, max_size=6)
)
def test_no_sizes_along_axis_0_need_a_program_of_their_own(drawn: list[list[int]]) -> None:
    geometries = [packed((sum(sizes), 16), 0, tuple(sizes), 1) for sizes in drawn]
    assert len(set(chain.from_iterable(map(sources, geometries)))) <= 2


def test_narrow_outputs_beside_a_very_wide_one_share_blocks() -> None:
    launches = planned(packed((16384, 202_000), 1, (200_000, *(1,) * 2000), 1))
    assert [launch.kernel for launch in launches] == ["rows", "tile", "tile"]
    assert sum(launch.grid for launch in launches) < 1_000_000


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_a_block_size_that_fills_the_last_wave_is_chosen(workload: Any) -> None:
    geometry: SplitGeometry = workload.case.geometry
    for launch in planned(geometry):
        if launch.kernel != "rows":
            continue
        registers = REGISTERS[bool(known(launch)["kAligned"])]
        at_once = H200.limits.sm_count * resident_blocks(H200.limits, registers, launch.block)
        waves, last = divmod(launch.grid, at_once)
        assert waves == 0 or waves >= 10 or last == 0 or last / at_once >= THIRD


@pytest.mark.parametrize(
    ("grid", "wanted"), [(132, 1), (66, 0.5), (133, 133 / 264), (660, 5 / 5), (1584, 1)]
)
def test_evenness_is_the_share_of_thread_slots_in_use(grid: int, wanted: float) -> None:
    assert evenness(grid, 792, 132) == pytest.approx(wanted)
