"""Plans for `tile`: narrow outputs, some rows at a time, through shared memory."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from dmlsplit.backends.cuda.launch import (
    COUNT_64,
    DIVISOR,
    THREADS,
    VECTOR,
    Assumptions,
    Constant,
    KernelLaunch,
    capacity,
    coded,
    divisor,
    filled,
    fitting,
    index_type,
    resident_for,
)
from dmlsplit.backends.cuda.planner.layouts import Layout, layout_of
from dmlsplit.backends.cuda.planner.warps import chunk_steps, dealt
from dmlsplit.geometry import RowSplit, ceil_div, indices


def tile_launches(split: RowSplit, assumed: Assumptions) -> Iterator[KernelLaunch]:
    """The launches for narrow outputs, with as many outputs each as the parameters can hold.

    The number of rows changes only arguments: outputs have one program for a single row, and one
    for more.
    """

    def launch(positions: Sequence[int]) -> KernelLaunch:
        part = split.take(positions)
        return _launch(part, assumed, layout_of(part, assumed))

    return fitting(launch, indices(len(split.outputs)), assumed.limits.parameter_bytes)


def _launch(split: RowSplit, assumed: Assumptions, layout: Layout) -> KernelLaunch:
    # The vector with an output's first byte may begin before it.
    lead = 0 if assumed.output_alignment == VECTOR else VECTOR - layout.item
    arguments = [
        *_output_tables(split, layout),
        *_numbers(split, layout),
        *_chunks(split, layout, lead),
    ]
    constants = (
        Constant("int", "kItem", layout.item),
        Constant("bool", "kWhole", int(layout.is_whole)),
        Constant("bool", "kPadded", int(layout.arrangement.pad_bits is not None)),
        Constant("bool", "kAligned", int(assumed.output_alignment == VECTOR)),
        Constant("int", "kLoads", layout.loads),
        Constant("int", "kSharedVectors", layout.shared_vectors),
    )
    slots, in_flight = capacity(len(split.outputs)), layout.loads * VECTOR
    wide = f"outputs up to {max(split.widths)} bytes wide"
    what = f"rows of {split.pitch} bytes" if layout.is_whole else wide
    at_once = "1 row" if layout.rows == 1 else f"up to {layout.rows} rows"
    return KernelLaunch(
        *coded("tile", slots, resident_for(in_flight), constants, arguments),
        split.outputs,
        split.total_bytes,
        assumed.bypasses_cache,
        ceil_div(split.rows, layout.rows) * (len(layout.groups) - 1),
        shared_bytes=layout.shared_vectors * VECTOR,
        bytes_in_flight=in_flight,
        reason=f"{what}, {at_once} at a time, through shared memory",
    )


def _output_tables(split: RowSplit, layout: Layout) -> Iterator[Constant]:
    """The place of each output in its run, its width, and a divisor."""
    size = capacity(len(split.outputs))
    places = [
        split.widths[output] + (split.offsets[output] - split.offsets[first] << 32)
        for first, last in pairwise(layout.groups)
        for output in range(first, last)
    ]
    yield Constant(COUNT_64, "places", filled(places, size, 0))
    yield Constant(DIVISOR, "by_width", filled(map(divisor, split.widths), size, divisor(1)))


def _numbers(split: RowSplit, layout: Layout) -> Iterator[Constant]:
    """The arguments about rows and runs."""
    arranged, groups = layout.arrangement, len(layout.groups) - 1
    pad_bits = arranged.pad_bits or 0
    # The pitch of a single row is never added to an address.
    pitch = 0 if split.rows == 1 else split.pitch
    full = max(0, (split.rows - layout.fill_rows) // layout.rows + 1)
    skip = arranged.row_pitch // VECTOR - layout.run_vectors
    yield Constant(COUNT_64, "tile_pitch", pitch * layout.rows)
    yield Constant(DIVISOR, "by_run_vectors", divisor(max(1, layout.run_vectors)))
    # For whole rows, which are contiguous in shared memory as in the input.
    pad_vectors = (arranged.row_pitch << pad_bits) // VECTOR
    yield Constant(DIVISOR, "by_pad_vectors", divisor(max(1, pad_vectors)))
    yield Constant(DIVISOR, "by_groups", divisor(groups))
    yield Constant(index_type(split.pitch), "pitch", pitch)
    for name, number in {
        "full_tiles": full,
        "rest_rows": split.rows - full * layout.rows,
        "groups": groups,
        "minus_run_vectors": -layout.run_vectors % 2**32,
        "row_pitch": arranged.row_pitch,
        "run_skip": skip % 2**32,
        "pad_bits": pad_bits,
        "tile_rows": layout.rows,
        "fill_rows": layout.fill_rows,
        "team_bits": arranged.team_bits,
        "teams": THREADS >> arranged.team_bits,
        "last_member": (1 << arranged.team_bits) - 1,
    }.items():
        yield Constant("unsigned", name, number)


def _chunks(split: RowSplit, layout: Layout, lead: int) -> Iterator[Constant]:
    """The groups of outputs, and the chunks in which each is dealt out."""
    bits = layout.arrangement.team_bits
    sizes = [layout.rows * width for width in split.widths]
    shares = [sizes[first:last] for first, last in pairwise(layout.groups)]
    chunk_bytes = max(chunk_steps(share, bits) for share in shares) * VECTOR << bits
    chunks: list[int] = []
    starts, begins, runs = [0], [], []
    for (first, last), share in zip(pairwise(layout.groups), shares, strict=True):
        found = dealt(share, chunk_bytes, lead)
        chunks += [first + output + (begin << 16) for output, begin in found]
        starts.append(len(chunks))
        begins.append(split.offsets[first])
        runs.append(split.offsets[last - 1] + split.widths[last - 1] - split.offsets[first])
    size = 1 if layout.is_whole else capacity(len(runs))
    yield Constant(COUNT_64, "columns", filled(begins, size, 0))
    yield Constant("unsigned", "run_bytes", filled(runs, size, 0))
    yield Constant("unsigned", "chunk_starts", filled(starts, size + 1, 0))
    yield Constant("unsigned", "chunks", filled(chunks, capacity(len(chunks)), 0))
    yield Constant("int", "chunk_bytes", chunk_bytes)
    yield Constant("int", "team_bytes", VECTOR << bits)
