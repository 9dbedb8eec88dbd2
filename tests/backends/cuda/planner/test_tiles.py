"""Plans of `tile`: what a block takes of rows and outputs."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from descriptors import packed
from dmlsplit.backends.cuda.planner import plan


@given(st.lists(st.integers(1, 700), min_size=1, max_size=40), st.integers(1, 4000))
def test_tiles_hold_their_rows(widths: list[int], rows: int) -> None:
    geometry = packed((rows, sum(widths)), 1, tuple(widths), 1)
    assert geometry.row_split is not None
    rows = geometry.row_split.rows  # one output is one row
    for launch in plan(geometry, 1, 1).launches:
        if launch.kernel != "tile":
            continue
        found = {constant.name: constant.value for constant in launch.constants}
        groups, offsets, given = (found[name] for name in ("kGroupOutputs", "kOffsets", "kWidths"))
        assert isinstance(groups, tuple)
        assert isinstance(offsets, tuple)
        assert isinstance(given, tuple)
        assert (groups[0], groups[-1]) == (0, len(launch.outputs))
        assert all(a < b for a, b in itertools.pairwise(groups))
        runs = [offsets[b - 1] + given[b - 1] - offsets[a] for a, b in itertools.pairwise(groups)]
        run, tile_rows = found["kRunBytes"], found["kTileRows"]
        assert isinstance(run, int)
        assert isinstance(tile_rows, int)
        assert run >= max(runs)
        assert launch.shared_bytes >= tile_rows * max(runs)
        assert launch.grid == -(-rows // tile_rows) * (len(groups) - 1)
