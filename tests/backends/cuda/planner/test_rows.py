"""Plans for wide outputs: how rows become chunks, tiles and blocks."""

from itertools import accumulate, chain
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks.prediction import GPUS, Gpu
from benchmarks.workloads import WORKLOADS
from dmlsplit.backends.cuda.gpus import H200, find_gpu
from dmlsplit.backends.cuda.launch import IN_FLIGHT_BYTES, VECTOR, DeviceLimits, KernelLaunch
from dmlsplit.backends.cuda.occupancy import resident_blocks
from dmlsplit.backends.cuda.planner import plan
from dmlsplit.backends.cuda.planner import rows as rows_planner
from dmlsplit.backends.cuda.planner.estimates import WIDE_BYTES
from dmlsplit.backends.cuda.planner.times import Blocks, launch_time
from dmlsplit.geometry import RowSplit
from tests.support.descriptors import packed_split
from tests.support.plans import constants_and_arguments, planned, sources

widths = st.integers(512, 100_000)
# Fewer bytes in flight cost more than the instructions of smaller blocks.
ENOUGH = 0.86


@given(st.lists(widths, min_size=2, max_size=300), st.integers(2, 100_000))
def test_every_tile_belongs_to_its_output(sizes: list[int], rows: int) -> None:
    (launch,) = planned(packed_split((rows, sum(sizes)), axis=1, sizes=tuple(sizes)), 1, 1)
    assume(launch.code.kernel == "rows")
    parameters = constants_and_arguments(launch)
    if "tile_starts" not in parameters:  # equal outputs
        assert parameters["chunk_tiles"] == parameters["output_tiles"] * len(sizes)
        return
    starts = list(parameters["tile_starts"][: len(sizes)])
    tile_bytes = parameters["tile_bytes"]
    tiles = [-(-parameters["chunk_rows"] * size // tile_bytes) for size in sizes]
    assert starts == list(accumulate(tiles[:-1], initial=0))
    assert parameters["chunk_tiles"] == sum(tiles)


@given(st.lists(widths, min_size=2, max_size=20), st.lists(st.integers(1, 1 << 20), min_size=2))
def test_all_numbers_of_rows_share_at_most_two_specializations(
    sizes: list[int], rows: list[int]
) -> None:
    """One row or more, outputs that fit the L2 cache or not: at most two specializations."""
    geometries = [packed_split((count, sum(sizes)), axis=1, sizes=tuple(sizes)) for count in rows]
    assert len(set(chain.from_iterable(map(sources, geometries)))) <= 2


@settings(max_examples=30)
@given(
    st.lists(st.lists(st.integers(1, 1 << 24), min_size=64, max_size=64), min_size=2, max_size=6)
)
def test_all_sizes_along_axis_0_share_two_specializations(size_lists: list[list[int]]) -> None:
    geometries = [
        packed_split((sum(sizes), 16), axis=0, sizes=tuple(sizes)) for sizes in size_lists
    ]
    assert len(set(chain.from_iterable(map(sources, geometries)))) <= 2


def test_narrow_outputs_beside_a_very_wide_one_share_blocks() -> None:
    launches = planned(packed_split((16384, 202_000), axis=1, sizes=(200_000, *(1,) * 2000)))
    assert [launch.code.kernel for launch in launches] == ["rows", "tile", "tile"]
    assert sum(launch.grid for launch in launches) < 1_000_000


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_rounds_leave_enough_bytes_in_flight(workload: Any) -> None:
    for launch in planned(workload.geometry):
        if launch.code.kernel == "rows" and rounds_of(launch) > 1:
            assert in_flight(launch, H200.limits) >= ENOUGH * IN_FLIGHT_BYTES


class Form(NamedTuple):
    """How a block of `rows` is launched."""

    rounds: int
    threads: int


def rounds_of(launch: KernelLaunch) -> int:
    """The rounds of a block of `rows`."""
    parameters = constants_and_arguments(launch)
    return int(parameters["tile_bytes"] // (launch.threads * parameters["kLoads"] * VECTOR))


def in_flight(launch: KernelLaunch, limits: DeviceLimits) -> float:
    """The bytes that an SM waits for at first."""
    parameters = constants_and_arguments(launch)
    registers = rows_planner.THREAD_REGISTERS[bool(parameters["kAligned"])]
    resident = resident_blocks(limits, launch.threads, registers, launch.shared_bytes)
    at_once = min(launch.grid, limits.sm_count * resident)
    return at_once * launch.total_bytes / launch.grid / rounds_of(launch) / limits.sm_count


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
@pytest.mark.parametrize("is_aligned", [True, False])
def test_blocks_take_about_the_least_time(gpu: Gpu, is_aligned: bool) -> None:
    """The planner guesses how many tiles are partly empty; here, they are counted."""
    columns = rows_planner.Columns(is_aligned, False, "unsigned")
    registers = rows_planner.THREAD_REGISTERS[is_aligned]

    def time(split: RowSplit, chunks: rows_planner.Chunks) -> float:
        threads, rounds = chunks.block
        resident = resident_blocks(gpu.limits, threads, registers)
        blocks = Blocks(chunks.grid, resident, split.total_bytes / chunks.grid / rounds, rounds)
        unit_clocks = rows_planner.UNIT_CLOCKS[is_aligned]
        return launch_time(gpu.limits, split.total_bytes, blocks, unit_clocks)

    splits = [workload.geometry.row_split for workload in WORKLOADS]
    wide = [split for split in splits if split and min(split.widths) >= WIDE_BYTES]
    assert len(wide) >= 10
    for split in wide:
        row_choices = rows_planner._row_choices(split, gpu.limits)
        chosen = rows_planner._best_chunks(split, gpu.limits, columns)
        all_chunks = [
            rows_planner._chunks(split, row_choices, block) for block in rows_planner.BLOCKS
        ]
        assert time(split, chosen) <= 1.03 * min(time(split, chunks) for chunks in all_chunks)


@pytest.mark.parametrize("gpu", ["H100 SXM", "H200", "B200", "RTX 4090", "L4", "T4"])
@pytest.mark.parametrize("alignments", [(16, 16), (1, 1)])
def test_large_splits_have_large_blocks(gpu: str, alignments: tuple[int, int]) -> None:
    """A block takes one round while all bytes are in flight at once, and four in the end.

    In between, fewer rounds may leave a shorter tail, so a larger split may have smaller blocks.
    """
    limits, forms = find_gpu(gpu).limits, []
    for mib in (*range(1, 64), *range(64, 1025, 8)):
        (launch,) = plan(
            packed_split((mib << 20,), axis=0, sizes=(mib << 19,) * 2),
            *alignments,
            limits,
        )
        forms.append(Form(rounds_of(launch), launch.threads))
        if rounds_of(launch) > 1:
            assert in_flight(launch, limits) >= ENOUGH * limits.in_flight_bytes
    one, two, four = (
        Form(rounds=1, threads=64),
        Form(rounds=2, threads=256),
        Form(rounds=4, threads=256),
    )
    first_forms = [form for form in dict.fromkeys(forms) if form in (one, two, four)]
    assert first_forms == [one, two, four]  # in the order in which they first occur
    assert (forms[0], forms[-1]) == (one, four)


@pytest.mark.parametrize(
    ("mib", "aligned", "odd"),
    [(1, 1, 1), (6, 1, 1), (13, 2, 2), (17, 2, 1), (21, 2, 1), (25, 4, 4), (45, 4, 2)],
)
def test_larger_splits_take_more_rounds_on_an_h200(mib: int, aligned: int, odd: int) -> None:
    rounds = []
    for alignment in 16, 1:
        (launch,) = planned(
            packed_split((mib << 20,), axis=0, sizes=(mib << 19,) * 2),
            alignment,
            alignment,
        )
        rounds.append(rounds_of(launch))
    assert rounds == [aligned, odd]


def test_chunks_of_16_kib_rows_have_at_most_the_bytes_in_flight_of_their_gpu() -> None:
    """On a slice of a GPU, blocks that run at the same time still cover all outputs of a chunk."""
    geometry = packed_split((1 << 16, 4096), axis=1, sizes=(1024, 1024, 2048), element_bytes=4)
    for limits in (H200.limits, H200.limits._replace(sm_count=16)):
        (launch,) = plan(geometry, 16, 16, limits)
        chunk_rows = constants_and_arguments(launch)["chunk_rows"]
        assert chunk_rows * (16 << 10) <= limits.sm_count * IN_FLIGHT_BYTES
