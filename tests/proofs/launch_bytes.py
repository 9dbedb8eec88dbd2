"""The bytes that a launch copies, calculated from its arguments alone, without running it."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from dmlsplit.backends.cuda.launch import VECTOR, KernelLaunch
from dmlsplit.backends.cuda.planner.strided import REPEATED_ITEMS
from dmlsplit.backends.cuda.planner.transpose import Tile
from dmlsplit.geometry import StridedCopy, ceil_div
from tests.support.plans import constants_and_arguments

Pieces = Mapping[int, StridedCopy]
Known = Mapping[str, Any]


def bytes_of(launch: KernelLaunch, pieces: Pieces) -> dict[int, int]:
    """How many bytes of each output the blocks of a launch copy.

    Asserts that the launch has exactly the blocks that it needs, and that tables agree with the
    places of outputs.
    """
    return dict(_KERNELS[launch.code.kernel](launch, constants_and_arguments(launch), pieces))


Copied = Iterator[tuple[int, int]]


def _rows(launch: KernelLaunch, parameters: Known, pieces: Pieces) -> Copied:
    count, in_chunk = len(launch.outputs), parameters["chunk_rows"]
    assert launch.grid == (parameters["last_chunk"] + 1) * parameters["chunk_tiles"]
    assert 0 < parameters["last_rows"] <= in_chunk
    rows = parameters["last_chunk"] * in_chunk + parameters["last_rows"]
    if parameters["kEqual"]:
        (width,), (first,) = parameters["widths"], parameters["offsets"]
        output_tiles = parameters["output_tiles"]
        starts = range(0, parameters["chunk_tiles"] + 1, output_tiles)
        assert len(starts) == count + 1
        widths, offsets = [width] * count, range(first, first + count * width, width)
    else:
        starts = [*parameters["tile_starts"][:count], parameters["chunk_tiles"]]
        widths, offsets = parameters["widths"][:count], parameters["offsets"][:count]
    tile_bytes = parameters["tile_bytes"]
    for output, width, offset, part in zip(
        launch.outputs, widths, offsets, pairwise(starts), strict=True
    ):
        tiles = ceil_div(in_chunk * width, tile_bytes)
        assert tiles == part[1] - part[0]
        assert offset == pieces[output].input_offset
        for _, pitch, _ in pieces[output].loops:
            assert (parameters["pitch"], parameters["chunk_pitch"]) == (pitch, in_chunk * pitch)
        yield output, rows * width


def _tile(launch: KernelLaunch, parameters: Known, pieces: Pieces) -> Copied:
    groups, slab_rows = parameters["groups"], parameters["slab_rows"]
    count = len(launch.outputs)
    rows = parameters["full_tiles"] * parameters["tile_rows"] + parameters["rest_rows"]
    # The last vectors of outputs that are not aligned may end in one more tile.
    assert launch.grid == groups * ceil_div(
        rows + parameters["rows_before"], parameters["tile_rows"]
    )
    assert parameters["tile_rows"] == slab_rows * parameters["kLoads"] * parameters["rounds"]
    ends = parameters["group_first_items"][: groups + 1]
    shares = pairwise((*parameters["output_first_items"][:count], ends[-1]))
    for number, (output, (first, end)) in enumerate(zip(launch.outputs, shares, strict=True)):
        group = bisect_right(ends, first) - 1
        offset, width = divmod(parameters["offsets_and_widths"][number], 2**32)
        before = parameters["run_offsets"][group] + parameters["rows_before"] * parameters["pitch"]
        assert before + offset == pieces[output].input_offset
        assert (end - first) * VECTOR >= slab_rows * width
        run_bytes = parameters["run_bytes"][group]
        assert offset + width <= run_bytes <= parameters["run_vectors"] * VECTOR
        yield output, rows * width


def _transpose(launch: KernelLaunch, parameters: Known, pieces: Pieces) -> Copied:
    unit = parameters["kUnit"]
    elements, is_aligned = VECTOR // unit, bool(parameters["kOutputAligned"])
    tile = Tile(unit, parameters["kDownVectors"], parameters["kInputAlign"], is_aligned)
    assert tile.across == parameters["kAcross"]
    assert launch.shared_bytes == parameters["kSharedVectors"] * VECTOR
    entries = 1 if parameters["kPointers"] else len(launch.outputs)
    starts = [*parameters["starts"][:entries], launch.grid]
    assert starts[0] == 0
    for entry, (first, end) in enumerate(pairwise(starts)):
        plane = parameters["planes"][entry]
        sides = parameters["down_sizes"][plane], parameters["across_sizes"][plane]
        # Vectors of lines that are not aligned begin before those of aligned ones.
        across = sides[1] + (0 if is_aligned else elements - 1)
        tiles = ceil_div(sides[0], tile.down) * ceil_div(across, tile.across)
        turns, rest = divmod(end - first, tiles)
        assert not rest
        if parameters["kPointers"]:
            assert (turns, sides[0]) == (1, len(launch.outputs))
            yield from ((output, sides[1] * unit) for output in launch.outputs)
        else:
            assert parameters["offsets"][entry] == pieces[launch.outputs[entry]].input_offset
            yield launch.outputs[entry], sides[0] * sides[1] * turns * unit


def _strided(launch: KernelLaunch, parameters: Known, pieces: Pieces) -> Copied:
    channels, unit = parameters["kChannels"], parameters["kUnit"]
    entries = len(launch.outputs) // channels
    starts = [*parameters["tile_starts"][:entries], launch.grid]
    for entry, (first, end) in enumerate(pairwise(starts)):
        nest = 0 if parameters["kNests"] == 1 else entry
        items, row_bytes = parameters["counts"][nest], parameters["row_units"][nest] * unit
        tile = launch.threads * parameters["kItems"] - REPEATED_ITEMS * (
            0 < parameters["kStagedAlign"] < VECTOR
        )
        assert ceil_div(items + bool(parameters["kStagedAlign"]), tile) == end - first
        rows, rest = divmod(items, row_bytes // parameters["kItemBytes"])
        assert not rest
        for channel in range(channels):
            output = launch.outputs[entry * channels + channel]
            assert parameters["offsets"][entry] + channel * unit == pieces[output].input_offset
            yield output, rows * row_bytes


_KERNELS = {"rows": _rows, "tile": _tile, "transpose": _transpose, "strided": _strided}
