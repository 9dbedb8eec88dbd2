"""The machine code of `strided`: every byte that it stores, and how many instructions it takes."""

from pathlib import Path

import pytest

from benchmarks import prediction
from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.occupancy import resident_blocks
from tests.counts.predictions import executed
from tests.sass import launch as sass
from tests.support import nvrtc
from tests.support.large_splits import LARGE

# The most instructions allowed per warp and 512 bytes, and sectors that must be read for each one
# that is written. Before there were windows, the instructions were 332, 166, 81.5, 41.5, 332, 332,
# 348, 344, 87, 159, 376, 472, 472, 85.5, spills, 78.5.
LIMITS = {
    "second_byte": (29, 2),
    "second_half": (29, 2),
    "second_word": (31, 2),
    "second_double": (27, 2),
    "fourth_byte": (63, 4),
    "sixteenth_byte": (107, 16),
    "odd_rows": (101, 2),
    "bytes_reversed": (66, 1),
    "words_reversed": (51, 1),
    "broadcast_elements": (42, 0),
    "permuted_odd_rows": (68, 1),
    "rgb_of_odd_rows": (44, 1),
    "rgb_with_edges": (79, 1),
    "pairs_of_padded_rows": (24, 1),
    "padded_outputs": (68, 1),
    "second_words_of_outputs": (77, 1),
}
# The lowest allowed fraction of the speed of a copy that reads and writes the same sectors.
LEAST = 0.9
# Here every byte is in a sector of its own, so a load of a warp takes 32 wavefronts.
LOWER = {"sixteenth_byte": 0.74}
HOPPER = prediction.GPUS[:2]  # H100 and H200
IN_FLIGHT_BYTES = 32 << 10
BLOCKS = 6  # of a launch that are executed

pytestmark = pytest.mark.skipif(bool(nvrtc.missing()), reason=str(nvrtc.missing()))


@pytest.mark.parametrize("name", LIMITS)
def test_strided_issues_few_instructions_and_keeps_many_bytes_in_flight(
    name: str, builds: Path
) -> None:
    case, (most_instructions, sectors_read) = LARGE[f"strided_{name}"], LIMITS[name]
    launch = max(case.launches, key=lambda launch: launch.total_bytes)
    assert launch.code.kernel == "strided"
    code = sass.compiled(launch.code.source, builds)
    counts = sass.run(case.geometry, launch, code, sass.sampled(launch.grid, BLOCKS))
    assert counts.issue <= most_instructions
    blocks = resident_blocks(
        H200.limits, launch.threads, code.resources.registers, launch.shared_bytes
    )
    assert code.listing.bytes_in_flight() * launch.threads * blocks >= IN_FLIGHT_BYTES
    # A copy reads one sector for each one that it writes.
    traffic_of_a_copy = (sectors_read + 1) / 2
    for gpu in HOPPER:
        predicted = prediction.steady(gpu, executed(counts), traffic_of_a_copy)
        assert predicted >= LOWER.get(name, LEAST)
