"""The bytes that a launch copies, calculated from its arguments alone, without running it."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from dmlsplit.backends.cuda.launch import VECTOR, KernelLaunch
from dmlsplit.backends.cuda.planner.strided import REPEATED_ITEMS
from dmlsplit.backends.cuda.planner.transpose import Tile
from dmlsplit.geometry import StridedCopy, ceil_div
from tests.support.plans import known

Pieces = Mapping[int, StridedCopy]
Known = Mapping[str, Any]


def bytes_of(launch: KernelLaunch, pieces: Pieces) -> dict[int, int]:
    """How many bytes of each output the blocks of a launch copy.

    Asserts that the launch has exactly the blocks that it needs, and that tables agree with the
    places of outputs.
    """
    return dict(_KERNELS[launch.code.kernel](launch, known(launch), pieces))


Copied = Iterator[tuple[int, int]]


def _rows(launch: KernelLaunch, known: Known, pieces: Pieces) -> Copied:
    count, in_chunk = len(launch.outputs), known["chunk_rows"]
    assert launch.grid == (known["last_chunk"] + 1) * known["chunk_tiles"]
    assert 0 < known["last_rows"] <= in_chunk
    rows = known["last_chunk"] * in_chunk + known["last_rows"]
    if known["kEqual"]:
        (width,), (first,), each = known["widths"], known["offsets"], known["output_tiles"]
        starts = range(0, known["chunk_tiles"] + 1, each)
        assert len(starts) == count + 1
        widths, offsets = [width] * count, range(first, first + count * width, width)
    else:
        starts = [*known["tile_starts"][:count], known["chunk_tiles"]]
        widths, offsets = known["widths"][:count], known["offsets"][:count]
    tile_bytes = known["tile_bytes"]
    for output, width, offset, part in zip(
        launch.outputs, widths, offsets, pairwise(starts), strict=True
    ):
        tiles = ceil_div(in_chunk * width, tile_bytes)
        assert tiles == part[1] - part[0]
        assert offset == pieces[output].input_offset
        for _, pitch, _ in pieces[output].loops:
            assert (known["pitch"], known["chunk_pitch"]) == (pitch, in_chunk * pitch)
        yield output, rows * width


def _tile(launch: KernelLaunch, known: Known, pieces: Pieces) -> Copied:
    groups, slab_rows = known["groups"], known["slab_rows"]
    count = len(launch.outputs)
    rows = known["full_tiles"] * known["tile_rows"] + known["rest_rows"]
    # The last vectors of outputs that are not aligned may end in one more tile.
    assert launch.grid == groups * ceil_div(rows + known["rows_before"], known["tile_rows"])
    assert known["tile_rows"] == slab_rows * known["kLoads"] * known["rounds"]
    ends = known["group_first_items"][: groups + 1]
    shares = pairwise((*known["output_first_items"][:count], ends[-1]))
    for number, (output, (first, end)) in enumerate(zip(launch.outputs, shares, strict=True)):
        group = bisect_right(ends, first) - 1
        offset, width = divmod(known["offsets_and_widths"][number], 2**32)
        before = known["run_offsets"][group] + known["rows_before"] * known["pitch"]
        assert before + offset == pieces[output].input_offset
        assert (end - first) * VECTOR >= slab_rows * width
        yield output, rows * width


def _transpose(launch: KernelLaunch, known: Known, pieces: Pieces) -> Copied:
    unit = known["kUnit"]
    elements, is_aligned = VECTOR // unit, bool(known["kOutputAligned"])
    tile = Tile(unit, known["kDownVectors"], known["kInputAlign"], is_aligned)
    assert tile.across == known["kAcross"]
    assert launch.shared_bytes == known["kSharedVectors"] * VECTOR
    assert (known["starts"][0], known["starts"][-1]) == (0, launch.grid)
    for entry, (first, end) in enumerate(pairwise(known["starts"])):
        plane = known["planes"][entry]
        sides = known["down_sizes"][plane], known["across_sizes"][plane]
        # Vectors of lines that are not aligned begin before those of aligned ones.
        across = sides[1] + (0 if is_aligned else elements - 1)
        tiles = ceil_div(sides[0], tile.down) * ceil_div(across, tile.across)
        turns, rest = divmod(end - first, tiles)
        assert not rest
        if known["kPointers"]:
            assert (turns, sides[0]) == (1, len(launch.outputs))
            yield from ((output, sides[1] * unit) for output in launch.outputs)
        else:
            assert known["offsets"][entry] == pieces[launch.outputs[entry]].input_offset
            yield launch.outputs[entry], sides[0] * sides[1] * turns * unit


def _strided(launch: KernelLaunch, known: Known, pieces: Pieces) -> Copied:
    channels, unit = known["kChannels"], known["kUnit"]
    entries = len(launch.outputs) // channels
    starts = [*known["tile_starts"][:entries], launch.grid]
    for entry, (first, end) in enumerate(pairwise(starts)):
        nest = 0 if known["kNests"] == 1 else entry
        items, row_bytes = known["counts"][nest], known["row_units"][nest] * unit
        tile = launch.threads * known["kItems"] - REPEATED_ITEMS * (
            0 < known["kStagedAlign"] < VECTOR
        )
        assert ceil_div(items + bool(known["kStagedAlign"]), tile) == end - first
        rows, rest = divmod(items, row_bytes // known["kItemBytes"])
        assert not rest
        for channel in range(channels):
            output = launch.outputs[entry * channels + channel]
            assert known["offsets"][entry] + channel * unit == pieces[output].input_offset
            yield output, rows * row_bytes


_KERNELS = {"rows": _rows, "tile": _tile, "transpose": _transpose, "strided": _strided}
