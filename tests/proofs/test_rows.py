"""The kernel for wide outputs: its few specializations split any sizes."""

from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.planner import rows as rows_planner
from dmlsplit.backends.cuda.planner.rows import BLOCKS, Block
from dmlsplit.backends.cuda.specialization import Constant
from tests.host_cuda import harness
from tests.sass import cases as sass
from tests.support import kernel_cases, nvrtc, plans
from tests.support.kernel_cases import Case

MAX_BYTES = 1 << 17
EMPTY = 0

pytestmark = pytest.mark.skipif(bool(harness.missing()), reason=str(harness.missing()))
needs_nvrtc = pytest.mark.skipif(bool(nvrtc.missing()), reason=str(nvrtc.missing()))

wide_widths = st.one_of(
    st.integers(512, 1100), st.integers(512, 20_000), st.sampled_from([512, 1024, 4096, 16_384])
)
# These outputs go with a wide one; without it they would be copied through shared memory.
narrow_widths = st.one_of(st.integers(16, 60), st.sampled_from([16, 32, 48]))
short_widths = st.one_of(st.integers(96, 500), st.sampled_from([101, 128, 301]))
phases = st.one_of(st.just(0), st.integers(0, 15))


@st.composite
def wide_cases(draw: st.DrawFn) -> Case:
    """Rows of bytes for which the planner gives all outputs to `rows`."""
    kind = draw(st.sampled_from([wide_widths, short_widths]))
    widths = draw(st.lists(kind, min_size=1, max_size=20))
    if draw(st.booleans()):
        widths += draw(st.lists(narrow_widths, max_size=sum(widths) // 60 // 16))
    if draw(st.booleans()):
        widths = widths[:1] * draw(st.integers(1, 24))
    if draw(st.booleans()):
        widths = [-(-width // 16) * 16 for width in widths]
    widths = draw(st.permutations(widths))
    empty = draw(st.integers(0, len(widths)))
    sizes = (*widths[:empty], EMPTY, *widths[empty:])
    rows = draw(st.integers(1, max(1, MAX_BYTES // sum(sizes))))
    misaligned = (0, 0) if draw(st.booleans()) else (draw(phases), draw(phases))
    return Case((rows, sum(sizes)), sizes, misaligned=misaligned)


@st.composite
def single_rows(draw: st.DrawFn) -> Case:
    """Splits along axis 0: every output is one run of any length, at least one byte."""
    sizes = draw(st.lists(st.integers(0, 40_000), min_size=1, max_size=30).filter(any))
    return Case((sum(sizes),), tuple(sizes), misaligned=(draw(phases), draw(phases)))


def small_chunks(chunk_bytes: int, block: Block) -> object:
    """Plan small chunks and blocks of a given size, so that a small split has several."""
    bytes_per_sm = chunk_bytes // H200.limits.sm_count
    return patch.multiple(rows_planner, SM_CHUNK_BYTES=bytes_per_sm, _best_block=lambda *_: block)


chunk_sizes = st.sampled_from([2000, 10_000, 60_000, 4 << 20])
chunkings = st.tuples(chunk_sizes, st.sampled_from([*BLOCKS, Block(64, 4)]))


@given(case=wide_cases() | single_rows(), chunks=chunkings)
def test_any_wide_split_gives_the_bytes_of_numpy(
    builds: Path, case: Case, chunks: tuple[int, Block]
) -> None:
    with small_chunks(*chunks):
        assert case.kernels <= {"rows", "tile"}
        (ran,) = kernel_cases.run([case], builds)
    kernel_cases.check(case, ran)


@needs_nvrtc
@settings(max_examples=20, deadline=None)
@given(case=wide_cases() | single_rows(), chunks=chunkings)
def test_the_machine_code_stores_every_byte_once(
    builds: Path, case: Case, chunks: tuple[int, Block]
) -> None:
    with small_chunks(*chunks):
        sass.run_and_check_stores(case, builds)


@needs_nvrtc
def test_the_blocks_at_the_end_of_a_very_wide_row_store_the_right_bytes(builds: Path) -> None:
    """Modulo 2^32, a row of 2^25 bytes ends at the same address as the row 128 rows later."""
    width = 2**25 + 5
    case = Case((4, width + 9600), (width, *(96,) * 100))
    (launch,) = case.launches
    assert Constant("bool", "kOneRow", 0) in launch.code.constants
    end_of_row = width // plans.arguments(launch)["tile_bytes"]
    sass.run_and_check_stores(case, builds, lambda launch: [end_of_row - 1, end_of_row])
