"""Plans for wide outputs: how rows become chunks, tiles and blocks."""

from itertools import accumulate, chain
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks.workloads import WORKLOADS
from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.launch import IN_FLIGHT_BYTES, LOADS, VECTOR
from dmlsplit.backends.cuda.planner import plan, wide
from tests.support.descriptors import packed
from tests.support.plans import known, planned, sources

widths = st.integers(512, 100_000)


@given(st.lists(widths, min_size=2, max_size=300), st.integers(2, 100_000))
def test_every_tile_belongs_to_its_output(sizes: list[int], rows: int) -> None:
    (launch,) = planned(packed((rows, sum(sizes)), 1, tuple(sizes), 1), 1, 1)
    assume(launch.code.kernel == "rows")
    found = known(launch)
    if "tile_starts" not in found:  # equal outputs
        assert found["chunk_tiles"] == found["output_tiles"] * len(sizes)
        return
    starts = list(found["tile_starts"][: len(sizes)])
    tile_bytes = found["tile_bytes"]
    tiles = [-(-found["chunk_rows"] * size // tile_bytes) for size in sizes]
    assert starts == list(accumulate(tiles[:-1], initial=0))
    assert found["chunk_tiles"] == sum(tiles)


@given(st.lists(widths, min_size=2, max_size=20), st.lists(st.integers(1, 1 << 20), min_size=2))
def test_no_number_of_rows_needs_a_program_of_its_own(sizes: list[int], rows: list[int]) -> None:
    """One row or more, outputs that fit the L2 cache or not: at most two programs."""
    geometries = [packed((count, sum(sizes)), 1, tuple(sizes), 1) for count in rows]
    assert len(set(chain.from_iterable(map(sources, geometries)))) <= 2


@settings(max_examples=30)
@given(
    st.lists(st.lists(st.integers(1, 1 << 24), min_size=64, max_size=64), min_size=2, max_size=6)
)
def test_no_sizes_along_axis_0_need_a_program_of_their_own(drawn: list[list[int]]) -> None:
    geometries = [packed((sum(sizes), 16), 0, tuple(sizes), 1) for sizes in drawn]
    assert len(set(chain.from_iterable(map(sources, geometries)))) <= 2
    plans = list(map(planned, geometries))
    with patch.object(wide, "FEW", 0):  # the same by NumPy
        assert list(map(planned, geometries)) == plans


def test_narrow_outputs_beside_a_very_wide_one_share_blocks() -> None:
    launches = planned(packed((16384, 202_000), 1, (200_000, *(1,) * 2000), 1))
    assert [launch.code.kernel for launch in launches] == ["rows", "tile", "tile"]
    assert sum(launch.grid for launch in launches) < 1_000_000


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_blocks_are_as_large_as_a_busy_gpu_allows(workload: Any) -> None:
    for launch in planned(workload.geometry):
        if launch.code.kernel != "rows":
            continue
        size = launch.block, known(launch)["tile_bytes"] // (launch.block * LOADS * VECTOR)
        assert size in wide.BLOCKS
        needed = H200.limits.sm_count * -(-IN_FLIGHT_BYTES // (launch.block * LOADS * VECTOR))
        is_busy = wide.evenness(launch.grid, needed, H200.limits.sm_count) >= 0.85
        assert is_busy or size in wide.BLOCKS[-2:]


@pytest.mark.parametrize(
    ("grid", "wanted"), [(132, 1), (66, 0.5), (133, 133 / 264), (660, 5 / 5), (1584, 0.8)]
)
def test_evenness_is_the_share_of_thread_slots_in_use(grid: int, wanted: float) -> None:
    assert wide.evenness(grid, 792, 132) == pytest.approx(wanted)


def test_chunks_shrink_with_the_gpu() -> None:
    """What a slice of a GPU copies at the same time is in all outputs."""
    geometry = packed((1 << 16, 4096), 1, (1024, 1024, 2048), 4)
    slice_ = H200.limits._replace(sm_count=16)
    rows = [
        known(launch)["chunk_rows"]
        for limits in (H200.limits, slice_)
        for launch in plan(geometry, 16, 16, limits)
    ]
    assert rows[0] * 16384 <= 132 * IN_FLIGHT_BYTES
    assert rows[1] * 16384 <= 16 * IN_FLIGHT_BYTES
