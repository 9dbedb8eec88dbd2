"""Plans for strided splits of any layout: rows of units, any distance apart.

A kernel is compiled for a unit, the depth of the nests, the number of outputs, and the alignment of
rows; sizes, strides and offsets are arguments. By executed instructions, that costs 0 to 2 % of the
predicted speed for vectors in nests of two or three loops, compared with compiled sizes that are
powers of two, and up to 3 % for deeper nests, single units and broadcast elements.
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
    Constant,
    KernelLaunch,
    capacity,
    coded,
    divisor,
    filled,
    fitting,
    resident_for,
)
from dmlsplit.backends.cuda.planner.forms import (
    LEAST_EDGED_UNITS,
    Entry,
    Form,
    Nest,
    entries,
    form_of,
)
from dmlsplit.geometry import ONE_TRIP, Loop, RowSplit, ceil_div, trips

# With fewer items and units than this, they are numbered with 32 bits. Threads past the last item
# still compute its number, and divisors of 32 bits need numbers below 2^31.
SMALL = 2**30
# Loops up to which a thread has registers for all items of a form.
SHALLOW = 3
# Blocks that an SM must hold if items are narrower than vectors: 32 KiB are then in flight.
NARROW_RESIDENT = 4
# Blocks that it must hold if several items have 64-bit numbers, which need registers: in edges, and
# as the strides of loops.
FAR_RESIDENT = 3

# If a block also sorts the item before its first one, it has this many fewer items than threads.
# Its items then fill half cache lines of outputs; otherwise blocks would share more lines.
REPEATING = 4
# Threads of a block that stages items for aligned outputs: splits of a few MiB then have blocks for
# all multiprocessors. For others, so small a block would repeat too many items.
STAGED_THREADS = 64
# The most vectors of a window of all outputs: if a thread stores a vector to each, and if shared
# memory puts them in order. If a thread has more than MOST_PAIRED vectors, or than MOST_EASY with
# items of PAIRED_ITEMS bytes and no shifts or 64-bit numbers, an SM may hold a single block.
MOST_DIRECT, MOST_STAGED = 8, 22
MOST_PAIRED, MOST_EASY, PAIRED_ITEMS = 13, 20, (48, 80)

# The loops of a nest over items; the innermost one is over those of a row.
Walk = tuple[Loop, ...]


def strided_launches(
    alike: Mapping[Nest, Sequence[tuple[int, int]]], assumed: Assumptions
) -> Iterator[KernelLaunch]:
    """Launches for outputs that are strided in any way: indices and offsets, by nest."""
    by_form: dict[Form, list[Entry]] = {}
    for nest, outputs in alike.items():
        for entry in entries(nest, outputs, assumed):
            form = form_of(nest, len(entry.outputs), assumed)
            by_form.setdefault(form, []).append(entry)
    for form, found in by_form.items():
        launch = partial(_strided, form, assumed)
        yield from fitting(launch, found, assumed.limits.parameter_bytes)


def fit_windows(split: RowSplit, assumed: Assumptions) -> bool:
    """Whether rows are equal elements, few enough for one window of all outputs."""
    unit, count = split.equal_width, len(split.outputs)
    is_direct = _is_direct(unit, assumed)
    beside = 0 if is_direct else VECTOR - assumed.input_alignment
    most = MOST_DIRECT if is_direct else MOST_STAGED
    return (
        unit % VECTOR > 0
        and count > 1
        and split.row_bytes == split.pitch
        and split.rows >= LEAST_EDGED_UNITS
        and lcm(unit, VECTOR) * count + beside <= most * VECTOR
    )


def _is_direct(unit: int, assumed: Assumptions) -> bool:
    """Whether a thread sorts one aligned vector of each output, and edges are aligned units."""
    is_vector = lcm(unit, VECTOR) == assumed.output_alignment == VECTOR
    return is_vector and assumed.input_alignment % unit == 0


def interleaved_launch(split: RowSplit, assumed: Assumptions) -> KernelLaunch:
    """The launch for equal outputs, one unit wide each, that are all filled from one window."""
    unit, count = split.equal_width, len(split.outputs)
    staged = 0 if _is_direct(unit, assumed) else assumed.output_alignment
    form = Form(unit, lcm(unit, VECTOR), count, count, staged)

    def launch(rows: int) -> KernelLaunch:
        nest = Nest(unit, (Loop(rows, split.pitch, unit),))
        return _strided(form, assumed, [Entry(split.outputs, split.offsets[0], nest)])

    # Whole vectors have a program without edges.
    other = split.rows // VECTOR * VECTOR + (split.rows * unit % VECTOR == 0)
    return launch(split.rows)._replace(siblings=lambda: [launch(other)])


def _strided(form: Form, assumed: Assumptions, found: Sequence[Entry]) -> KernelLaunch:
    nests, slots = [entry.nest for entry in found], capacity(len(found), least=1)
    is_one_nest = len(set(nests)) == 1
    walks = _walks(nests, form.item)
    is_small = max(*map(trips, walks), *(nest.row_units for nest in nests)) < SMALL
    depth = len(walks[0])
    # 64-bit numbers and the strides of many loops need registers.
    is_far = _is_far(nests, walks)
    is_light = depth <= SHALLOW and (is_one_nest or not is_far)
    items = form.items if is_small and is_light else ceil_div(form.items, 2)
    # The ends of a staged row belong to a block that has fewer items than threads.
    threads = STAGED_THREADS if form.staged == VECTOR else THREADS
    more, tile = int(form.staged > 0), threads * items - REPEATING * (0 < form.staged < VECTOR)
    *starts, grid = accumulate((ceil_div(trips(walk) + more, tile) for walk in walks), initial=0)
    kept = 1 if is_one_nest else slots
    nests = list(filled(nests, slots, nests[0]))[:kept]
    walks = list(filled(walks, slots, walks[0]))[:kept]
    parts = (gcd(form.item, nest.row_alignment(assumed), nest.row_bytes) for nest in nests)
    has_edges = not form.staged and min(parts) < form.item
    has_leads = min(nest.row_alignment(assumed) for nest in nests) < form.item
    in_flight = items * form.channels * form.item
    has_window = form.window_step is not None
    staged_item = form.item if form.staged else 0
    alignment = min(entry.window_alignment(assumed, staged_item) for entry in found)
    # Eight items, each with a number and two addresses, need registers.
    resident = NARROW_RESIDENT if form.item < VECTOR else resident_for(in_flight)
    has_far_loops = is_far and depth >= SHALLOW and form.item < VECTOR
    has_far_edges = not is_small and has_edges and form.item == VECTOR
    if items > 1 and (has_far_loops or has_far_edges):
        resident = FAR_RESIDENT
    is_easy = is_small and alignment == VECTOR and form.item in PAIRED_ITEMS
    if in_flight > (MOST_EASY if is_easy else MOST_PAIRED) * VECTOR:
        resident = 1
    resident *= THREADS // threads
    how = "from vectors of the input" if has_window else "each by its own load"
    constants = (
        Constant("int", "kUnit", form.unit),
        Constant("int", "kItemBytes", form.item),
        Constant("int", "kItems", items),
        Constant("int", "kTile", tile),
        Constant("int", "kChannels", form.channels),
        Constant("bool", "kWindow", int(has_window)),
        Constant("int", "kStep", form.window_step or 0),
        Constant("int", "kAlign", alignment),
        Constant("bool", "kEdges", int(has_edges)),
        Constant("bool", "kLeads", int(has_edges and has_leads)),
        Constant("int", "kStaged", form.staged),
        Constant("int", "kNests", len(nests)),
        Constant("int", "kDimensions", depth),
        Constant("using", "Index", "unsigned" if is_small else COUNT_64),
        Constant("using", "Signed", "int" if is_small else OFFSET_64),
    )
    arguments = [
        Constant(OFFSET_64, "offsets", filled((e.offset for e in found), slots, 0)),
        Constant("unsigned", "tile_starts", filled(starts, slots, UNUSED_TILE)),
        *_tables(nests, walks, 32 if is_small else 64),
    ]
    return KernelLaunch(
        *coded("strided", slots * form.channels, resident, constants, arguments, threads),
        tuple(chain.from_iterable(entry.outputs for entry in found)),
        sum(trips(entry.nest.loops) * form.unit * form.channels for entry in found),
        assumed.bypasses_cache,
        grid,
        bytes_in_flight=in_flight,
        shared_bytes=threads * staged_item,
        reason=f"in units of {form.unit} byte{'s' * (form.unit > 1)}, {how}",
        block=threads,
    )


def _walks(nests: Sequence[Nest], item: int) -> list[Walk]:
    """The loops over items, of equal depth."""
    walks: list[Walk] = []
    for nest in nests:
        *outer, (_, src, dst) = nest.loops
        units = item // nest.unit
        walks.append((*outer, Loop(nest.row_bytes // item, src * units, dst * units)))
    depth = max(map(len, walks))
    # Rows of one item need no loop.
    if depth > 1 and all(len(walk) == depth and walk[-1].size == 1 for walk in walks):
        return [walk[:-1] for walk in walks]
    return [(ONE_TRIP,) * (depth - len(walk)) + walk for walk in walks]


def _is_far(nests: Sequence[Nest], walks: Sequence[Walk]) -> bool:
    """Whether a stride needs 64 bits."""
    strides = [stride for loop in chain.from_iterable(walks) for stride in loop[1:]]
    strides += [nest.loops[-1].input_stride for nest in nests]
    return max(map(abs, strides)) >= 2**31


def _tables(nests: Sequence[Nest], walks: Sequence[Walk], bits: int) -> Iterator[Constant]:
    """Sizes and strides, and divisors by the sizes."""
    index, signed = ("unsigned", "int") if bits == 32 else (COUNT_64, OFFSET_64)
    sizes, input_strides, output_strides = zip(*chain.from_iterable(walks), strict=True)
    steps = tuple(nest.loops[-1].input_stride for nest in nests)
    stride = OFFSET_64 if _is_far(nests, walks) else "int"
    divisors = [divisor(size, bits) for size in sizes]
    yield Constant(index, "counts", tuple(map(trips, walks)))
    yield Constant(index, "minus_sizes", tuple((1 << bits) - size for size in sizes))
    yield Constant(index, "magics", tuple(by.magic for by in divisors))
    yield Constant("unsigned", "shifts", tuple(by.shift for by in divisors))
    yield Constant(stride, "input_strides", input_strides)
    yield Constant(stride, "output_strides", output_strides)
    yield Constant(stride, "steps", steps)
    yield Constant(signed, "row_units", tuple(nest.row_units for nest in nests))
