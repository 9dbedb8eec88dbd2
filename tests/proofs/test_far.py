"""Kernels beyond 4 GiB: the last blocks of huge launches, in memory that is mostly not allocated.

A buffer costs only the pages that are touched. The end of the input holds random bytes, none of
them 0, and the last blocks must store exactly those bytes, at the end of the outputs.
"""

from pathlib import Path

import numpy as np
import pytest

from dmlsplit.backends.cuda import planner
from tests.host_cuda import harness
from tests.support.kernel_cases import Case
from tests.support.large_splits import FAR, GIB
from tests.support.plans import arguments

BLOCKS = 2
# How many of the last rows and columns of each output are checked.
WINDOWS = {
    "rows_aligned": (64, None),
    "rows_aligned_segments": (1, 1 << 18),
    "rows_misaligned": (64, 5000),
    "rows_columns": (1, 1 << 18),
    "tile": (4096, None),
    "tile_groups": (256, 3),
    "strided_interleaved": (1 << 15, 1),
    "transpose": (256, 1024),
    "transpose_elements": (512, None),
    "strided_staged": (1 << 15, 1),
    "strided_source": (5, 2048),
    "strided_targets": (5, 2048),
}

pytestmark = pytest.mark.skipif(bool(harness.missing()), reason=str(harness.missing()))


@pytest.fixture(scope="module")
def programs(builds: Path) -> dict[str, harness.Program]:
    sources = [launch.code.source for case in FAR.values() for launch in case.launches]
    return harness.build(sources, builds)


class Corner:
    """The last rows and columns of each output: their bytes in the input, and their destination."""

    def __init__(self, case: Case, rows: int, columns: int | None) -> None:
        self.case = case
        width = case.element_bytes
        draw = np.random.default_rng(11)
        self.patches: list[tuple[int, np.ndarray]] = []
        self.data: list[np.ndarray] = []
        self.windows: list[tuple[tuple[int, int], ...]] = []
        starts = np.cumsum([0, *case.sizes]).tolist()
        for layout, start in zip(case.targets, starts, strict=False):
            axis_0 = case.axis == 0
            wide = min(columns or layout.shape[1], layout.shape[1])
            row, column = layout.shape[0] - rows, layout.shape[1] - wide
            data = draw.integers(1, 256, (rows, wide, width), np.uint8)
            first = (row + start * axis_0, column + start * (not axis_0))
            self.patches += self._patches(first, data)
            self.data.append(data.reshape(rows, -1))
            self.windows.append(
                tuple(
                    (
                        layout.origin + r * layout.strides[0] + column * layout.strides[1],
                        wide * width,
                    )
                    for r in range(row, row + rows)
                )
            )

    def _patches(self, first: tuple[int, int], data: np.ndarray) -> list[tuple[int, np.ndarray]]:
        source = self.case.source
        begin = source.origin + first[0] * source.strides[0] + first[1] * source.strides[1]
        if source.strides[1] == source.element_bytes:
            return [(begin + r * source.strides[0], row) for r, row in enumerate(data)]
        columns = range(data.shape[1])
        if source.strides[0] == source.element_bytes:
            return [(begin + c * source.strides[1], data[:, c].copy()) for c in columns]
        return [
            (begin + r * source.strides[0] + c * source.strides[1], data[r, c])
            for r in range(data.shape[0])
            for c in columns
        ]


def last_tiles(launch: planner.KernelLaunch) -> list[int]:
    """The block of `rows` that copies the end of each output, whose last chunk may not be full."""
    known = arguments(launch)
    first = known["last_chunk"] * known["chunk_tiles"]
    tile_bytes = known["tile_bytes"]
    ends = [(known["last_rows"] * width - 1) // tile_bytes for width in known["widths"]]
    starts = known["tile_starts"][: len(launch.outputs)]
    return [first + start + end for start, end in zip(starts, ends, strict=False)]


@pytest.mark.parametrize("name", FAR)
def test_the_last_blocks_reach_the_end(name: str, programs: dict[str, harness.Program]) -> None:
    case, (rows, columns) = FAR[name], WINDOWS[name]
    assert max(case.source.size, case.targets[0].size) > 4 * GIB
    assert case.kernels == {name.partition("_")[0]}
    corner = Corner(case, rows, columns)
    layouts = case.targets
    for launch in case.launches:
        source = harness.Buffer(case.source.size, case.source.origin, patches=tuple(corner.patches))
        targets = [
            harness.Buffer(layouts[o].size, layouts[o].origin, windows=corner.windows[o])
            for o in launch.outputs
        ]
        blocks = range(max(0, launch.grid - BLOCKS), launch.grid)
        if launch.code.kernel == "rows":
            blocks = last_tiles(launch)
        outcome = programs[launch.code.source].run(
            launch.grid,
            launch.block,
            [source, *targets],
            blocks,
            counting=True,
            arguments=launch.argument_bytes,
        )
        arrived = 0
        for output, windows in zip(launch.outputs, outcome.windows[1:], strict=True):
            found = np.array(windows)
            assert np.array_equal(found[found != 0], corner.data[output][found != 0])
            arrived += np.count_nonzero(found)
        assert arrived == outcome.counts.store_bytes > 0
