"""The machine code of `strided`: every byte that it stores, and how many instructions it takes."""

from pathlib import Path

import pytest

from benchmarks import prediction
from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.occupancy import resident_blocks
from tests.sass import launch as sass
from tests.support import nvrtc
from tests.support.kernel_cases import Case

RGB = (256, 480, 640, 3)
# Cases that fill a GPU, the most instructions allowed per warp and 512 bytes, and sectors that must
# be read for each sector written. Before there were windows, the instructions were 332, 166, 81.5,
# 41.5, 332, 332, 348, 344, 87, 159, 376, 472, 472, 85.5, spills, 78.5.
CASES = {
    "every second byte": (Case((8192, 32768), (16384,) * 2, strides=(65536, 2)), 29, 2),
    "every second half": (Case((8192, 16384), (8192,) * 2, -1, 2, (32768, 2)), 29, 2),
    "every second word": (Case((8192, 8192), (4096,) * 2, -1, 4, (16384, 2)), 27, 2),
    "every second double": (Case((8192, 4096), (2048,) * 2, -1, 8, (8192, 2)), 27, 2),
    "every fourth byte": (Case((8192, 32768), (16384,) * 2, strides=(131072, 4)), 63, 4),
    "every sixteenth byte": (Case((8192, 32768), (16384,) * 2, strides=(1 << 19, 16)), 107, 16),
    "odd rows": (Case((8192, 32769), (16384, 16385), strides=(65539, 2)), 101, 2),
    "bytes reversed": (Case((8192, 32768), (16384,) * 2, strides=(32768, -1)), 66, 1),
    "words reversed": (Case((8192, 8192), (4096,) * 2, -1, 4, (8192, -1)), 51, 1),
    "broadcast elements": (Case((8192, 16384), (8192,) * 2, -1, 2, (1, 0)), 42, 0),
    "permuted odd rows": (
        Case((64, 128, 32768), (16384,) * 2, strides=(32771, 64 * 32771, 1)),
        68,
        1,
    ),
    "RGB of odd rows": (Case(RGB, (1,) * 3, 3, strides=(480 * 1921, 1921, 3, 1)), 44, 1),
    "RGB, edges": (Case((256, 375, 500, 3), (1,) * 3, 3, strides=(375 * 1501, 1501, 3, 1)), 79, 1),
    "pairs of padded rows": (Case((4096, 4096, 2), (1, 1), 2, 4, (8200, 2, 1)), 24, 1),
    "padded outputs": (Case((8192, 8192), (4096,) * 2, -1, 4, None, ((4097, 1), (4100, 1))), 68, 1),
    "outputs of every second word": (
        Case((8192, 8192), (4096,) * 2, -1, 4, None, ((8192, 2),) * 2),
        77,
        1,
    ),
}
# The lowest allowed fraction of the speed of a copy that reads and writes the same sectors.
LEAST = {"H100": 0.90, "H200": 0.88}
IN_FLIGHT_BYTES = 32 << 10
BLOCKS = 6

pytestmark = pytest.mark.skipif(bool(nvrtc.missing()), reason=str(nvrtc.missing()))


@pytest.mark.parametrize("name", CASES)
def test_few_instructions_and_many_bytes_in_flight(name: str, builds: Path) -> None:
    case, most, reads = CASES[name]
    launch = max(case.launches, key=lambda launch: launch.total_bytes)
    assert launch.code.kernel == "strided"
    code = sass.compiled(launch.code.source, builds)
    counts = sass.run(case.geometry, launch, code, sass.sampled(launch.grid, BLOCKS))
    assert counts.issue <= most
    size = launch.block, code.resources.registers, launch.shared_bytes
    resident = resident_blocks(H200.limits, *size)
    in_flight = code.listing.bytes_in_flight() * launch.block * resident
    assert in_flight >= IN_FLIGHT_BYTES
    for gpu in prediction.GPUS:
        if gpu.name in LEAST:
            copy = gpu.copy_clocks * (1 + reads) / 2
            extra = prediction.CLOCKS_PER_INSTRUCTION * (counts.issue - 16)
            assert copy / (copy + extra) >= LEAST[gpu.name]
