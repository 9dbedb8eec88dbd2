"""Plans of `tile`: the rows and outputs of a block."""

import itertools

from hypothesis import example, given, settings
from hypothesis import strategies as st

from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.launch import Assumptions
from dmlsplit.backends.cuda.planner.tiles import tile_launches
from dmlsplit.geometry import RowSplit
from tests.support.descriptors import packed
from tests.support.plans import check_fits, known, sources

ALIGNMENTS = st.sampled_from([1, 2, 4, 8, 16])


def assumed(input_alignment: int, output_alignment: int, bytes_: int = 32764) -> Assumptions:
    return Assumptions(
        input_alignment,
        output_alignment,
        limits=H200.limits._replace(parameter_bytes=bytes_),
        outputs=100,
        bypasses_cache=True,
    )


@st.composite
def narrow_splits(draw: st.DrawFn) -> RowSplit:
    """Outputs of less than 512 bytes, with or without gaps between them, or far rows."""
    unit = draw(st.sampled_from([1, 1, 2, 4, 16]))
    most = draw(st.sampled_from([2, 20, 500])) // unit + 1
    pattern = draw(st.lists(st.integers(1, most), min_size=1, max_size=20))
    widths = [width * unit for width in pattern * draw(st.sampled_from([1, 1, 30]))]
    gap = draw(st.sampled_from([0, 0, unit * 700]))
    ends = list(itertools.accumulate(width + gap for width in widths))
    offsets = [end - width - gap for end, width in zip(ends, widths, strict=True)]
    rows = draw(st.integers(2, 4000))
    pitch = draw(st.sampled_from([ends[-1], ends[-1], 2**31 - 1, 2**32 + 1, 2**33 + 1]))
    return RowSplit(rows, pitch, tuple(range(len(widths))), tuple(offsets), tuple(widths))


@given(narrow_splits(), ALIGNMENTS, ALIGNMENTS)
def test_tiles_hold_their_rows(split: RowSplit, src: int, dst: int) -> None:
    for launch in tile_launches(split, assumed(src, dst)):
        found = known(launch)
        places = [(place >> 32, place & 0xFFFFFFFF) for place in found["places"]]
        count = len(launch.outputs)
        assert [width for _, width in places[:count]] == [split.widths[o] for o in launch.outputs]
        rows, fill_rows = found["tile_rows"], found["fill_rows"]
        assert rows % 32 == 0
        assert launch.grid == -(-split.rows // rows) * found["groups"]
        # Everything that outputs need from a tile is loaded into shared memory.
        reach = max(offset + width for offset, width in places[:count])
        loaded = found["kLoads"] * launch.block * 16
        assert loaded >= fill_rows * (split.pitch if found["kWhole"] else reach)
        assert launch.shared_bytes >= (fill_rows - 1) * found["row_pitch"] + reach
        check_fits(launch, H200.limits)
        # The following rows complete the vector at the end of an output.
        if dst < 16:
            assert (fill_rows - rows) * min(split.widths) >= 16 - found["kItem"]
        if not found["kWhole"]:
            assert (found["row_pitch"] - split.pitch) % 16 == 0


@given(narrow_splits(), ALIGNMENTS)
def test_every_output_is_in_chunks(split: RowSplit, dst: int) -> None:
    for launch in tile_launches(split, assumed(1, dst)):
        found = known(launch)
        starts = found["chunk_starts"][: found["groups"] + 1]
        chunks = found["chunks"][: starts[-1]]
        for output, place in enumerate(found["places"][: len(launch.outputs)]):
            begins = sorted(chunk >> 16 for chunk in chunks if chunk & 0xFFFF == output)
            share = found["tile_rows"] * (place & 0xFFFFFFFF)
            assert begins == list(range(0, begins[-1] + 1, found["chunk_bytes"]))
            assert begins[-1] + found["chunk_bytes"] >= share


# A single row, some rows up to two tiles, and many rows.
ROWS = (1, 2, 3, 7, 8, 15, 31, 32, 33, 63, 64, 65, 100, 257, 4096, 99_999)


@settings(max_examples=40)
@given(narrow_splits(), ALIGNMENTS, ALIGNMENTS)
def test_the_number_of_rows_is_not_compiled(split: RowSplit, src: int, dst: int) -> None:
    texts = {
        tuple(
            launch.code.source
            for launch in tile_launches(split._replace(rows=rows), assumed(src, dst))
        )
        for rows in ROWS
    }
    # For a single row, neither the pitch nor its alignment matters.
    assert len(texts) <= 2


@given(st.lists(st.integers(1, 40), min_size=4, max_size=16), st.integers(2, 5000))
def test_columns_are_not_compiled(widths: list[int], rows: int) -> None:
    """Splits into the same number of outputs with other widths share programs."""
    texts = set()
    for cut in range(1, len(widths)):
        geometry = packed((rows, sum(widths)), 1, (*widths[cut:], *widths[:cut]), 1)
        texts.update(sources(geometry, 1, 16))
    assert len(texts) <= 2


@given(narrow_splits(), st.sampled_from([4096, 32764]))
@example(RowSplit(2, 2**33 + 1, tuple(range(4)), (0, 40, 44, 75), (40, 4, 31, 14)), 32764)
def test_every_launch_fits_the_parameter_limit(split: RowSplit, most: int) -> None:
    launches = list(tile_launches(split, assumed(1, 16, most)))
    assert [output for launch in launches for output in launch.outputs] == list(split.outputs)
    for launch in launches:
        check_fits(launch, H200.limits._replace(parameter_bytes=most))
