"""Plans for strided splits of any layout: rows of units, any distance apart.

A kernel is compiled for a form, the depth of the nests, the room for outputs, whether these share a
nest, the alignment of rows and windows, and the width of numbers. Sizes, strides and offsets are
arguments. Compiled-in sizes, above all powers of two, would need fewer instructions. Judged by the
instructions executed, arguments cost at most 2 % of the speed for vectors in nests of two or three
loops, and at most 3 % otherwise.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain
from math import gcd, lcm

from dmlsplit.backends.cuda.launch import (
    COUNT_64,
    OFFSET_64,
    THREADS,
    UNUSED_TILE,
    VECTOR,
    Assumptions,
    KernelLaunch,
    TypedValue,
    capacity,
    divisor,
    launches_within,
    padded_table,
    resident_for,
    specialize,
)
from dmlsplit.backends.cuda.planner.forms import (
    MIN_EDGED_UNITS,
    Entry,
    Form,
    Nest,
    entries_of,
    form_of,
)
from dmlsplit.geometry import ONE_TRIP, Loop, RowSplit, ceil_div, trips

# Fewer items and units than this are numbered with 32 bits. The division needs numbers below 2^31,
# and threads past the last item divide the numbers after the last one.
SMALL = 2**30
# The most loops for which a thread has registers for all items of a form.
SHALLOW = 3
# Blocks that an SM must hold if items are narrower than vectors: of 4 bytes, 32 KiB are in flight.
NARROW_RESIDENT = 4
# If a thread has several items, and 64-bit numbers for edges or the strides of many loops, an SM
# must hold only this number of blocks, which leaves a thread more registers.
RESIDENT_64_BIT = 3

# A block that also gathers the item before its first one has this many fewer items than threads.
# One fewer would do; with four, blocks begin a multiple of half a line apart and share fewer lines.
REPEATING = 4
# Threads of a block that stages items for aligned outputs: splits of a few MiB then have blocks for
# all multiprocessors (docs/design/016-slabs.md). Blocks of unaligned outputs are larger, because
# each also gathers an item of the block before it.
STAGED_THREADS = 64
# The most vectors in a window that fills all outputs: MAX_DIRECT if threads store from registers,
# MAX_STAGED if items go through shared memory. With more than MAX_PAIRED vectors in flight, code
# would spill unless an SM is required to hold only THREADS threads. For items of PAIRED_ITEMS bytes
# in aligned windows, numbered with 32 bits, this begins above MAX_UNSHIFTED.
MAX_DIRECT, MAX_STAGED = 8, 22
MAX_PAIRED, MAX_UNSHIFTED, PAIRED_ITEMS = 13, 20, (48, 80)

# The loops of a nest over items; the innermost one is over those of a row.
ItemLoops = tuple[Loop, ...]


def strided_launches(
    alike: Mapping[Nest, Sequence[tuple[int, int]]], assumptions: Assumptions
) -> Iterator[KernelLaunch]:
    """Launches for strided outputs of any layout; `alike` has indices and offsets by nest."""
    by_form: dict[Form, list[Entry]] = {}
    for nest, outputs in alike.items():
        for entry in entries_of(nest, outputs, assumptions):
            form = form_of(nest, len(entry.outputs), assumptions)
            by_form.setdefault(form, []).append(entry)
    for form, entries in by_form.items():
        launch = partial(_strided, form, assumptions)
        yield from launches_within(launch, entries, assumptions.limits.parameter_bytes)


def fits_window(split: RowSplit, assumptions: Assumptions) -> bool:
    """Whether rows are equal elements, so few that one window fills all outputs."""
    unit, count = split.equal_width, len(split.outputs)
    is_direct = _is_direct(unit, assumptions)
    beside = 0 if is_direct else VECTOR - assumptions.input_alignment
    most = MAX_DIRECT if is_direct else MAX_STAGED
    return (
        unit % VECTOR > 0
        and count > 1
        and split.row_bytes == split.pitch
        and split.rows >= MIN_EDGED_UNITS
        and lcm(unit, VECTOR) * count + beside <= most * VECTOR
    )


def _is_direct(unit: int, assumptions: Assumptions) -> bool:
    """Whether a thread gathers one aligned vector of each output, and edges are aligned units."""
    is_vector = lcm(unit, VECTOR) == assumptions.output_alignment == VECTOR
    return is_vector and assumptions.input_alignment % unit == 0


def interleaved_launch(split: RowSplit, assumptions: Assumptions) -> KernelLaunch:
    """The launch for outputs that are one unit wide each, and are all filled from one window."""
    unit, count = split.equal_width, len(split.outputs)
    staged = 0 if _is_direct(unit, assumptions) else assumptions.output_alignment
    form = Form(unit, lcm(unit, VECTOR), count, count, staged)

    def launch(rows: int) -> KernelLaunch:
        nest = Nest(unit, (Loop(rows, split.pitch, unit),))
        return _strided(form, assumptions, [Entry(split.outputs, split.offsets[0], nest)])

    # Outputs that are whole vectors have no edges, which selects another specialization.
    other = split.rows // VECTOR * VECTOR + (split.rows * unit % VECTOR == 0)
    return launch(split.rows)._replace(siblings=lambda: [launch(other)])


def _strided(form: Form, assumptions: Assumptions, entries: Sequence[Entry]) -> KernelLaunch:
    nests, slots = [entry.nest for entry in entries], capacity(len(entries), least=1)
    is_one_nest = len(set(nests)) == 1
    item_loops = _item_loops(nests, form.item_bytes)
    counts = [*map(trips, item_loops)]
    is_small = max(*counts, *(nest.row_units for nest in nests)) < SMALL
    depth = len(item_loops[0])
    # 64-bit numbers and the strides of many loops need registers.
    has_64_bit_strides = _has_64_bit_strides(nests, item_loops)
    fits_registers = depth <= SHALLOW and (is_one_nest or not has_64_bit_strides)
    items = form.items if is_small and fits_registers else ceil_div(form.items, 2)
    # The block that is not full copies the ends of a staged row. Counting one item more (`more`)
    # ensures that there is such a block.
    threads = STAGED_THREADS if form.staged == VECTOR else THREADS
    more, tile = int(form.staged > 0), threads * items - REPEATING * (0 < form.staged < VECTOR)
    *starts, grid = accumulate((ceil_div(count + more, tile) for count in counts), initial=0)
    kept = 1 if is_one_nest else slots
    nests = list(padded_table(nests, slots, nests[0]))[:kept]
    item_loops = list(padded_table(item_loops, slots, item_loops[0]))[:kept]
    parts = (
        gcd(form.item_bytes, nest.row_alignment(assumptions), nest.row_bytes) for nest in nests
    )
    has_edges = not form.staged and min(parts) < form.item_bytes
    has_leads = min(nest.row_alignment(assumptions) for nest in nests) < form.item_bytes
    in_flight = items * form.channels * form.item_bytes
    has_window = form.window_step is not None
    staged_item = form.item_bytes if form.staged else 0
    alignment = min(entry.window_alignment(assumptions, staged_item) for entry in entries)
    # A thread has up to eight narrow items, each with a number and two addresses in registers.
    resident = NARROW_RESIDENT if form.item_bytes < VECTOR else resident_for(in_flight)
    has_64_bit_loops = has_64_bit_strides and depth >= SHALLOW and form.item_bytes < VECTOR
    has_64_bit_edges = not is_small and has_edges and form.item_bytes == VECTOR
    if items > 1 and (has_64_bit_loops or has_64_bit_edges):
        resident = RESIDENT_64_BIT
    needs_no_shift = is_small and alignment == VECTOR and form.item_bytes in PAIRED_ITEMS
    if in_flight > (MAX_UNSHIFTED if needs_no_shift else MAX_PAIRED) * VECTOR:
        resident = 1
    resident *= THREADS // threads
    how = f"out of {VECTOR}-byte loads" if has_window else "each with its own load"
    constants = (
        TypedValue("int", "kUnit", form.unit),
        TypedValue("int", "kItemBytes", form.item_bytes),
        TypedValue("int", "kItems", items),
        TypedValue("int", "kTile", tile),
        TypedValue("int", "kChannels", form.channels),
        TypedValue("bool", "kWindow", int(has_window)),
        TypedValue("int", "kStep", form.window_step or 0),
        TypedValue("int", "kAlign", alignment),
        TypedValue("bool", "kEdges", int(has_edges)),
        TypedValue("bool", "kLeads", int(has_edges and has_leads)),
        TypedValue("int", "kStaged", form.staged),
        TypedValue("int", "kNests", len(nests)),
        TypedValue("int", "kDimensions", depth),
        TypedValue("using", "Index", "unsigned" if is_small else COUNT_64),
        TypedValue("using", "Signed", "int" if is_small else OFFSET_64),
    )
    arguments = [
        TypedValue(OFFSET_64, "offsets", padded_table((e.offset for e in entries), slots, 0)),
        TypedValue("unsigned", "tile_starts", padded_table(starts, slots, UNUSED_TILE)),
        *_tables(nests, item_loops, 32 if is_small else 64),
    ]
    return KernelLaunch(
        *specialize("strided", slots * form.channels, resident, constants, arguments, threads),
        tuple(chain.from_iterable(entry.outputs for entry in entries)),
        sum(trips(entry.nest.loops) * form.unit * form.channels for entry in entries),
        assumptions.is_streaming,
        grid,
        bytes_in_flight=in_flight,
        shared_bytes=threads * staged_item,
        reason=f"moves {form.unit} byte{'s' * (form.unit > 1)} at a time, {how}",
        threads=threads,
    )


def _item_loops(nests: Sequence[Nest], item_bytes: int) -> list[ItemLoops]:
    """The loops over items, of equal depth."""
    item_loops: list[ItemLoops] = []
    for nest in nests:
        *outer, (_, src, dst) = nest.loops
        units = item_bytes // nest.unit
        item_loops.append((*outer, Loop(nest.row_bytes // item_bytes, src * units, dst * units)))
    depth = max(map(len, item_loops))
    # If all rows are single items, the loops over items of a row are not needed.
    if depth > 1 and all(len(loops) == depth and loops[-1].size == 1 for loops in item_loops):
        return [loops[:-1] for loops in item_loops]
    return [(ONE_TRIP,) * (depth - len(loops)) + loops for loops in item_loops]


def _has_64_bit_strides(nests: Sequence[Nest], item_loops: Sequence[ItemLoops]) -> bool:
    """Whether any stride needs 64 bits."""
    strides = [stride for loop in chain.from_iterable(item_loops) for stride in loop[1:]]
    strides += [nest.loops[-1].input_stride for nest in nests]
    return max(map(abs, strides)) >= 2**31


def _tables(
    nests: Sequence[Nest], item_loops: Sequence[ItemLoops], bits: int
) -> Iterator[TypedValue]:
    """The tables of nests: sizes, strides, and divisors by the sizes."""
    index, signed = ("unsigned", "int") if bits == 32 else (COUNT_64, OFFSET_64)
    sizes, input_strides, output_strides = zip(*chain.from_iterable(item_loops), strict=True)
    steps = tuple(nest.loops[-1].input_stride for nest in nests)
    stride = OFFSET_64 if _has_64_bit_strides(nests, item_loops) else "int"
    divisors = [divisor(size, bits) for size in sizes]
    yield TypedValue(index, "counts", tuple(map(trips, item_loops)))
    yield TypedValue(index, "minus_sizes", tuple((1 << bits) - size for size in sizes))
    yield TypedValue(index, "magics", tuple(by.magic for by in divisors))
    yield TypedValue("unsigned", "shifts", tuple(by.shift for by in divisors))
    yield TypedValue(stride, "input_strides", input_strides)
    yield TypedValue(stride, "output_strides", output_strides)
    yield TypedValue(stride, "steps", steps)
    yield TypedValue(signed, "row_units", tuple(nest.row_units for nest in nests))
