"""Plans for `tile`, which copies narrow outputs through shared memory, some rows at a time."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from dmlsplit.backends.cuda.launch import (
    VECTOR,
    Assumptions,
    KernelLaunch,
    even_parts,
    launches_within,
    outputs_within,
)
from dmlsplit.backends.cuda.planner.layouts import MAX_THREADS, RESIDENT, SLABS, Layout, layout_of
from dmlsplit.backends.cuda.specialization import (
    COUNT_64,
    DIVISOR,
    OFFSET_64,
    POINTER_BYTES,
    UNUSED_TILE,
    Argument,
    capacity,
    divisor,
    divisors,
    padded_table,
    specialize,
)
from dmlsplit.geometry import RowSplit, indices

# The largest divisor, which replaces longer pitches. The kernel divides at most 8 KiB by the pitch,
# so the quotient is 0 in either case.
LONG_PITCH = 1 << 31
# The bytes of an output in the parameters: its address, and its entries of the tables.
OUTPUT_BYTES = POINTER_BYTES + 8 + 8 + 4


def tile_launches(split: RowSplit, assumptions: Assumptions) -> Iterator[KernelLaunch]:
    """The launches for narrow outputs, with as many outputs each as the parameters can hold.

    The number of rows changes only arguments.
    """
    limits = assumptions.limits
    # To plan too many outputs, only to halve them, would take seconds for thousands.
    slots = capacity(1)
    while (larger := capacity(slots + 1)) <= outputs_within(limits, OUTPUT_BYTES):
        slots = larger

    def launch(positions: Sequence[int]) -> KernelLaunch:
        part = split.take(positions)
        return _launch(part, assumptions, layout_of(part, assumptions))

    for part in even_parts(indices(len(split.outputs)), slots):
        yield from launches_within(launch, part, limits.parameter_bytes)


def _launch(split: RowSplit, assumptions: Assumptions, layout: Layout) -> KernelLaunch:
    """The launch for outputs with a layout."""
    slots = capacity(len(split.outputs))
    arguments = [
        *_output_tables(split, layout),
        *_group_tables(split, layout),
        *_scalar_arguments(split, layout),
    ]
    return KernelLaunch(
        *specialize("tile", slots, RESIDENT, _constants(split, layout), arguments, MAX_THREADS),
        outputs=split.outputs,
        total_bytes=split.total_bytes,
        is_streaming=assumptions.is_streaming,
        grid=layout.grid(split.rows),
        shared_bytes=layout.shared_bytes,
        bytes_in_flight=SLABS * VECTOR,
        reason=_reason(split, layout),
        threads=layout.threads,
    )


def _constants(split: RowSplit, layout: Layout) -> tuple[Argument, ...]:
    """The constants of a launch, which select its specialization."""
    return (
        ("int", "kPartBytes", layout.part_bytes),
        ("int", "kLoads", SLABS),
        ("int", "kSlabVectors", layout.slab_vectors),
        ("bool", "kPadded", int(layout.pad[1] > 0)),
        ("bool", "kWide", int(layout.part_bytes == 1 and max(split.widths) >= VECTOR)),
    )


def _reason(split: RowSplit, layout: Layout) -> str:
    """What a block reads at a time, in one line."""
    runs = f"outputs up to {max(split.widths)} bytes wide"
    if layout.run_rows > 1:
        runs = f"rows of {split.pitch} bytes"
    return f"{runs}, up to {layout.tile_rows} rows at a time, through shared memory"


def _items(split: RowSplit, layout: Layout) -> list[int]:
    """The vectors of each output in a slab."""
    return [layout.slab_rows * width // VECTOR for width in split.widths]


def _output_tables(split: RowSplit, layout: Layout) -> Iterator[Argument]:
    """For each output: its offset in a run, its width, and its first vector of a slab."""
    size = capacity(len(split.outputs))
    # The offset in the upper 32 bits, and the width in the lower ones.
    offsets_and_widths = [
        split.widths[output] + (split.offsets[output] - split.offsets[first] << 32)
        for first, last in pairwise(layout.groups)
        for output in range(first, last)
    ]
    first_items = accumulate(_items(split, layout)[:-1], initial=0)
    yield COUNT_64, "offsets_and_widths", padded_table(offsets_and_widths, size, 0)
    yield DIVISOR, "by_width", padded_table(divisors(split.widths), size, divisor(1))
    yield "unsigned", "output_first_items", padded_table(first_items, size, UNUSED_TILE)


def _group_tables(split: RowSplit, layout: Layout) -> Iterator[Argument]:
    """For each group: its first run in the input, the bytes of a run, and its vectors of a slab."""
    items = _items(split, layout)
    item_starts = [0]
    run_offsets = []
    run_bytes = []
    for first, last in pairwise(layout.groups):
        item_starts.append(item_starts[-1] + sum(items[first:last]))
        run_offsets.append(split.offsets[first] - layout.rows_before * split.pitch)
        group_bytes = split.offsets[last - 1] + split.widths[last - 1] - split.offsets[first]
        run_bytes.append((layout.run_rows - 1) * split.pitch + group_bytes)
    size = capacity(len(run_bytes))
    yield OFFSET_64, "run_offsets", padded_table(run_offsets, size, 0)
    yield "unsigned", "run_bytes", padded_table(run_bytes, size, 1)
    yield ("unsigned", "group_first_items", padded_table(item_starts, size + 1, item_starts[-1]))


def _scalar_arguments(split: RowSplit, layout: Layout) -> Iterator[Argument]:
    """The arguments about rows and runs."""
    full_tiles, rest_rows = divmod(split.rows, layout.tile_rows)
    yield COUNT_64, "pitch", split.pitch
    yield COUNT_64, "slab_pitch", split.pitch * layout.slab_rows
    yield COUNT_64, "tile_pitch", split.pitch * layout.tile_rows
    yield DIVISOR, "by_run_vectors", divisor(layout.run_vectors)
    yield DIVISOR, "by_pitch", divisor(min(split.pitch, LONG_PITCH))
    yield DIVISOR, "by_groups", divisor(len(layout.groups) - 1)
    for name, number in {
        "groups": len(layout.groups) - 1,
        "full_tiles": full_tiles,
        "rest_rows": rest_rows,
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
        yield "unsigned", name, number
