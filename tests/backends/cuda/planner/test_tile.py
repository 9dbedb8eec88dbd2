"""Plans of `tile`: the rows and outputs of a block."""

import itertools
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.launch import Assumptions, KernelLaunch
from dmlsplit.backends.cuda.planner import layouts, tile
from dmlsplit.backends.cuda.planner.layouts import Layout, _groups
from dmlsplit.backends.cuda.planner.tile import tile_launches
from dmlsplit.geometry import RowSplit
from tests.support.descriptors import packed_split
from tests.support.plans import check_fits, constants_and_arguments, sources

ALIGNMENTS = st.sampled_from([1, 2, 4, 8, 16])


def assumed(input_alignment: int, output_alignment: int, bytes_: int = 32764) -> Assumptions:
    return Assumptions(
        input_alignment,
        output_alignment,
        limits=H200.limits._replace(parameter_bytes=bytes_),
        output_count=100,
        is_streaming=True,
    )


@st.composite
def narrow_splits(draw: st.DrawFn) -> RowSplit:
    """Outputs of at most 112 bytes, with or without gaps between them, or far rows."""
    unit = draw(st.sampled_from([1, 1, 2, 4, 16]))
    most = draw(st.sampled_from([2, 20, 96])) // unit + 1
    pattern = draw(st.lists(st.integers(1, most), min_size=1, max_size=20))
    widths = [width * unit for width in pattern * draw(st.sampled_from([1, 1, 30]))]
    gap = draw(st.sampled_from([0, 0, unit * 700]))
    ends = list(itertools.accumulate(width + gap for width in widths))
    offsets = [end - width - gap for end, width in zip(ends, widths, strict=True)]
    rows = draw(st.integers(2, 4000))
    pitch = draw(st.sampled_from([ends[-1], ends[-1], 2**31 - 1, 2**32 + 1, 2**33 + 1]))
    return RowSplit(rows, pitch, tuple(range(len(widths))), tuple(offsets), tuple(widths))


def places_of(launch: KernelLaunch) -> list[tuple[int, int]]:
    """The offset and the width of each output in a row."""
    places = constants_and_arguments(launch)["offsets_and_widths"][: len(launch.outputs)]
    return [divmod(place, 2**32) for place in places]


@given(narrow_splits(), ALIGNMENTS, ALIGNMENTS)
def test_phases_repeat_after_each_slab_in_the_input_and_in_every_output(
    split: RowSplit, src: int, dst: int
) -> None:
    """A phase is an address modulo 16 bytes, the size of a vector.

    A slab is some rows. All slabs begin at the same phase iff its bytes are a multiple of 16: rows
    times pitch in the input, rows times width in an output.
    """
    for launch in tile_launches(split, assumed(src, dst)):
        slab_rows = constants_and_arguments(launch)["slab_rows"]
        assert slab_rows * split.pitch % 16 == 0
        assert all(slab_rows * split.widths[output] % 16 == 0 for output in launch.outputs)


@given(narrow_splits(), ALIGNMENTS, ALIGNMENTS)
def test_the_table_of_a_launch_has_the_widths_of_its_outputs(
    split: RowSplit, src: int, dst: int
) -> None:
    for launch in tile_launches(split, assumed(src, dst)):
        table_widths = [width for _, width in places_of(launch)]
        assert table_widths == [split.widths[output] for output in launch.outputs]


@given(narrow_splits(), ALIGNMENTS, ALIGNMENTS)
def test_a_slab_has_what_its_outputs_need_and_fits_its_memory(
    split: RowSplit, src: int, dst: int
) -> None:
    """The rows before it are those that the first vectors of its outputs need."""
    for launch in tile_launches(split, assumed(src, dst)):
        parameters = constants_and_arguments(launch)
        read_rows = parameters["slab_rows"] + parameters["rows_before"]
        reach = max(offset + width for offset, width in places_of(launch))
        # The rows are read as one run, or each for itself.
        runs = parameters["read_vectors"] // parameters["run_vectors"]
        longest_run = max(parameters["run_bytes"][: parameters["groups"]])
        assert parameters["read_vectors"] <= launch.threads <= 256
        if runs == read_rows:
            assert longest_run == reach
            assert parameters["run_vectors"] * 16 >= reach
        else:
            assert runs == 1
            assert longest_run == read_rows * split.pitch
            assert parameters["run_vectors"] * 16 >= longest_run + 16 - src  # at any phase
        if dst < 16:
            assert parameters["rows_before"] * min(split.widths) >= 16 - parameters["kPartBytes"]
        assert (parameters["row_pitch"] - split.pitch) % 16 == 0
        assert parameters["kSlabVectors"] * 16 >= (read_rows - 1) * parameters["row_pitch"] + reach
        check_fits(launch, H200.limits)


@given(narrow_splits(), ALIGNMENTS, st.integers(2, 4000))
def test_every_vector_of_a_slab_has_a_thread(split: RowSplit, dst: int, rows: int) -> None:
    for launch in tile_launches(split._replace(rows=rows), assumed(1, dst)):
        parameters, count = constants_and_arguments(launch), len(launch.outputs)
        ends = parameters["group_first_items"][: parameters["groups"] + 1]
        assert all(end - begin <= launch.threads for begin, end in itertools.pairwise(ends))
        for output, (begin, end) in enumerate(
            itertools.pairwise((*parameters["output_first_items"][:count], ends[-1]))
        ):
            width = parameters["offsets_and_widths"][output] & 0xFFFFFFFF
            assert end - begin == parameters["slab_rows"] * width // 16


# Some rows up to two tiles, and many rows.
ROWS = (2, 3, 7, 8, 15, 31, 32, 33, 63, 64, 65, 100, 257, 4096, 99_999)


@settings(max_examples=40)
@given(narrow_splits(), ALIGNMENTS, ALIGNMENTS)
def test_any_number_of_rows_has_the_same_specialization(
    split: RowSplit, src: int, dst: int
) -> None:
    texts = {
        tuple(
            launch.code.source
            for launch in tile_launches(split._replace(rows=rows), assumed(src, dst))
        )
        for rows in ROWS
    }
    assert len(texts) == 1


@given(st.lists(st.integers(1, 40), min_size=4, max_size=16), st.integers(2, 5000))
def test_reordered_columns_differ_only_in_shared_memory(widths: list[int], rows: int) -> None:
    """For the same number of outputs, only the size and padding of shared memory may differ."""
    texts = set()
    for cut in range(1, len(widths)):
        geometry = packed_split((rows, sum(widths)), axis=1, sizes=(*widths[cut:], *widths[:cut]))
        texts.update(sources(geometry, 1, 16))
    assert len({re.sub(r"(kSlabVectors|kPadded) = \d+", "", text) for text in texts}) <= 2


@given(narrow_splits(), st.sampled_from([4096, 32764]))
@example(RowSplit(2, 2**33 + 1, tuple(range(4)), (0, 40, 44, 75), (40, 4, 31, 14)), 32764)
def test_every_launch_fits_the_parameter_limit(split: RowSplit, most: int) -> None:
    launches = list(tile_launches(split, assumed(1, 16, most)))
    assert [output for launch in launches for output in launch.outputs] == list(split.outputs)
    for launch in launches:
        check_fits(launch, H200.limits._replace(parameter_bytes=most))


def test_groups_of_outputs_differ_by_at_most_one_output() -> None:
    """No group is left with a single output, whose blocks would be as many as the others'."""
    begins, ends = range(0, 32000, 32), range(32, 32032, 32)
    for most in (70, 1000, 1008, 1023, 8000):
        starts = _groups(begins, ends, (), most)
        sizes = [end - begin for begin, end in itertools.pairwise(starts)]
        assert max(sizes) * 32 <= most
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("bytes_", [4096, 32764])
def test_no_more_outputs_are_planned_than_fit_the_parameters(
    bytes_: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = []

    def layout_of(split: RowSplit, assumptions: Assumptions) -> Layout:
        planned.append(len(split.outputs))
        return layouts.layout_of(split, assumptions)

    monkeypatch.setattr(tile, "layout_of", layout_of)
    count = 5000
    widths = tuple(1 + output % 7 for output in range(count))
    offsets = tuple(itertools.accumulate(widths[:-1], initial=0))
    split = RowSplit(100, sum(widths), tuple(range(count)), offsets, widths)
    launches = list(tile_launches(split, assumed(1, 1, bytes_)))
    assert planned == [len(launch.outputs) for launch in launches]
    assert sum(planned) == count
