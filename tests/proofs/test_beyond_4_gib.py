"""Machine code beyond 4 GiB: the last blocks of huge launches store the right bytes."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from dmlsplit.backends.cuda import planner
from dmlsplit.self_test.paths import arguments
from tests.sass import cases
from tests.support import nvrtc
from tests.support.large_splits import FAR, GIB

pytestmark = pytest.mark.skipif(bool(nvrtc.missing()), reason=str(nvrtc.missing()))


def last_blocks(launch: planner.KernelLaunch) -> Sequence[int]:
    """The last two blocks; of `rows`, the one that copies the end of each output.

    The last chunk of `rows` may not be full.
    """
    if launch.code.kernel != "rows":
        return range(launch.grid - 2, launch.grid)
    parameters = arguments(launch)
    first = parameters["last_chunk"] * parameters["chunk_tiles"]
    starts, widths = parameters["tile_starts"], parameters["widths"]
    ends = [(parameters["last_rows"] * width - 1) // parameters["tile_bytes"] for width in widths]
    return [first + starts[output] + ends[output] for output in range(len(launch.outputs))]


@pytest.mark.parametrize("name", FAR)
def test_the_last_blocks_beyond_4_gib_store_the_right_bytes(name: str, builds: Path) -> None:
    case = FAR[name]
    assert max(case.source.size, case.targets[0].size) > 4 * GIB
    assert case.kernels == {name.partition("_")[0]}
    cases.run_and_check_stores(case, builds, last_blocks)
