"""Plans for `tile`, which copies narrow outputs through shared memory, some rows at a time."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from dmlsplit.backends.cuda.launch import (
    COUNT_64,
    DIVISOR,
    OFFSET_64,
    UNUSED_TILE,
    VECTOR,
    Assumptions,
    KernelLaunch,
    TypedValue,
    capacity,
    divisor,
    divisors,
    launches_within,
    padded_table,
    specialize,
)
from dmlsplit.backends.cuda.planner.layouts import MAX_THREADS, SLABS, Layout, layout_of
from dmlsplit.geometry import RowSplit, ceil_div, indices

# An SM must hold this many of the largest blocks, so that a thread gets up to 64 registers.
RESIDENT = 2
# The largest divisor, which replaces longer pitches. The kernel divides at most 8 KiB by the pitch,
# so the quotient is 0 in either case.
LONG_PITCH = 1 << 31


def tile_launches(split: RowSplit, assumed: Assumptions) -> Iterator[KernelLaunch]:
    """The launches for narrow outputs, with as many outputs each as the parameters can hold.

    The number of rows changes only arguments.
    """

    def launch(positions: Sequence[int]) -> KernelLaunch:
        part = split.take(positions)
        return _launch(part, assumed, layout_of(part, assumed))

    return launches_within(launch, indices(len(split.outputs)), assumed.limits.parameter_bytes)


def _launch(split: RowSplit, assumed: Assumptions, layout: Layout) -> KernelLaunch:
    groups = len(layout.groups) - 1
    # A vector of an unaligned output belongs to the tile in which it ends, even after the last row.
    tiles = ceil_div(split.rows + layout.rows_before, layout.tile_rows)
    full, slots = split.rows // layout.tile_rows, capacity(len(split.outputs))
    constants = (
        TypedValue("int", "kPartBytes", layout.part_bytes),
        TypedValue("int", "kLoads", SLABS),
        TypedValue("int", "kSlabVectors", layout.slab_vectors),
        TypedValue("bool", "kPadded", int(layout.pad[1] > 0)),
        TypedValue("bool", "kShiftWords", int(layout.are_words)),
    )
    arguments = [
        *_output_tables(split, layout),
        *_group_tables(split, layout),
        *_numbers(split, layout, full),
    ]
    wide = f"outputs up to {max(split.widths)} bytes wide"
    what = f"rows of {split.pitch} bytes" if layout.runs == 1 else wide
    return KernelLaunch(
        *specialize("tile", slots, RESIDENT, constants, arguments, MAX_THREADS),
        split.outputs,
        split.total_bytes,
        assumed.is_streaming,
        tiles * groups,
        shared_bytes=layout.shared_bytes,
        bytes_in_flight=SLABS * VECTOR,
        reason=f"{what}, up to {layout.tile_rows} rows at a time, through shared memory",
        block=layout.threads,
    )


def _items(split: RowSplit, layout: Layout) -> list[int]:
    """The vectors of each output in a slab."""
    return [layout.slab_rows * width // VECTOR for width in split.widths]


def _output_tables(split: RowSplit, layout: Layout) -> Iterator[TypedValue]:
    """For each output: its place in a run, its width, a divisor, and its first vector of a slab."""
    size = capacity(len(split.outputs))
    places = [
        split.widths[output] + (split.offsets[output] - split.offsets[first] << 32)
        for first, last in pairwise(layout.groups)
        for output in range(first, last)
    ]
    first_items = accumulate(_items(split, layout)[:-1], initial=0)
    yield TypedValue(COUNT_64, "offsets_and_widths", padded_table(places, size, 0))
    yield TypedValue(DIVISOR, "by_width", padded_table(divisors(split.widths), size, divisor(1)))
    yield TypedValue("unsigned", "first_items", padded_table(first_items, size, UNUSED_TILE))


def _group_tables(split: RowSplit, layout: Layout) -> Iterator[TypedValue]:
    """For each group: where its columns begin in the input, its run, and its vectors of a slab."""
    items, starts, begins, runs = _items(split, layout), [0], [], []
    for first, last in pairwise(layout.groups):
        starts.append(starts[-1] + sum(items[first:last]))
        begins.append(split.offsets[first] - layout.rows_before * split.pitch)
        runs.append(split.offsets[last - 1] + split.widths[last - 1] - split.offsets[first])
    if layout.runs == 1:
        runs = [(layout.slab_rows + layout.rows_before) * split.pitch]
    size = capacity(len(runs))
    yield TypedValue(OFFSET_64, "run_offsets", padded_table(begins, size, 0))
    yield TypedValue("unsigned", "run_bytes", padded_table(runs, size, 1))
    yield TypedValue("unsigned", "group_items", padded_table(starts, size + 1, starts[-1]))


def _numbers(split: RowSplit, layout: Layout, full_tiles: int) -> Iterator[TypedValue]:
    """The arguments about rows and runs."""
    yield TypedValue(COUNT_64, "pitch", split.pitch)
    yield TypedValue(COUNT_64, "slab_pitch", split.pitch * layout.slab_rows)
    yield TypedValue(COUNT_64, "tile_pitch", split.pitch * layout.tile_rows)
    yield TypedValue(DIVISOR, "by_run_vectors", divisor(layout.run_vectors))
    yield TypedValue(DIVISOR, "by_pitch", divisor(min(split.pitch, LONG_PITCH)))
    yield TypedValue(DIVISOR, "by_groups", divisor(len(layout.groups) - 1))
    for name, number in {
        "groups": len(layout.groups) - 1,
        "full_tiles": full_tiles,
        "rest_rows": split.rows - full_tiles * layout.tile_rows,
        "tile_rows": layout.tile_rows,
        "slab_rows": layout.slab_rows,
        "rows_before": layout.rows_before,
        "rounds": layout.rounds,
        "run_vectors": layout.run_vectors,
        "read_vectors": layout.read_vectors,
        "row_pitch": layout.row_pitch,
        "pad_bits": layout.pad[0],
        "pad_bytes": layout.pad[1],
    }.items():
        yield TypedValue("unsigned", name, number)
