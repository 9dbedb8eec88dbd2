"""Plans for strided splits of any layout: rows of units, any distance apart.

A kernel is compiled for a form, the depth of the nests, the room for outputs, whether these share a
nest, the alignment of rows and windows, and the width of needs. Sizes, strides and offsets are
arguments. Compiled-in sizes, above all powers of two, would need fewer instructions. Judged by the
instructions executed, arguments cost at most 2 % of the speed for vectors in nests of two or three
loops, and at most 3 % otherwise.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain
from math import lcm
from typing import NamedTuple

from dmlsplit.backends.cuda.launch import (
    VECTOR,
    Assumptions,
    DeviceLimits,
    KernelLaunch,
    launches_within,
    resident_for,
)
from dmlsplit.backends.cuda.planner.estimates import MAX_DIRECT, MAX_STAGED, MIN_EDGED_UNITS
from dmlsplit.backends.cuda.planner.forms import Entry, Form, Nest, entries_of, form_of
from dmlsplit.backends.cuda.specialization import (
    COUNT_64,
    OFFSET_64,
    THREADS,
    UNUSED_TILE,
    Argument,
    capacity,
    divisor,
    padded_table,
    specialize,
)
from dmlsplit.geometry import ONE_TRIP, Loop, RowSplit, ceil_div, trips

# Fewer items and units than this are numbered with 32 bits: the division needs numbers below 2^31,
# and copy_edges in strided.cu divides an item's number plus up to the items of a row.
SMALL = 2**30
FAR = 2**31  # bytes: strides of as many and more need 64 bits
# The most loops for which a thread has registers for all items of a form.
MAX_CHEAP_DEPTH = 3
# Blocks that an SM must hold if items are narrower than vectors. Four have 32 KiB in flight with
# items of 4 bytes. Six would have 48 KiB, but leave a thread 40 registers, and some code spilled.
NARROW_RESIDENT = 4
# An SM must hold only this number of blocks, which leaves a thread more registers, if numbers of
# items or strides have 64 bits.
RESIDENT_64_BIT = 3
# A block that also gathers the item before its first one has this many fewer items than threads.
# One fewer would do. With four, outputs of neighbouring blocks begin a multiple of 64 bytes apart,
# because 252 items are a multiple of 4 vectors; such blocks share fewer cache lines.
REPEATED_ITEMS = 4
# Threads of a block that stages items for aligned outputs: splits of a few MiB then have blocks for
# all SMs (docs/design/016-slabs.md). Blocks of unaligned outputs are larger, because
# each also gathers an item of the block before it.
STAGED_THREADS = 64
# The most vectors of items that a thread can hold without spilling, if an SM must hold two blocks
# of THREADS (tests/proofs/test_spills.py). With more vectors, it must hold only one such block.
MAX_IN_FLIGHT = 13

# The loops of a nest over items. The innermost one is over those of a row; it is left out if all
# rows are single items.
ItemLoops = tuple[Loop, ...]


class _RegisterNeeds(NamedTuple):
    """What decides how many registers the numbers of a launch take."""

    is_small: bool  # whether items and units of a row are numbered with 32 bits
    has_64_bit_strides: bool
    depth: int  # of the loops over items
    is_one_nest: bool  # whether all entries have the same nest


class _Block(NamedTuple):
    """The share of a block in the items."""

    threads: int
    items: int  # of a thread
    tile_items: int  # that the block stores


def strided_launches(
    outputs_by_nest: Mapping[Nest, Sequence[tuple[int, int]]], assumptions: Assumptions
) -> Iterator[KernelLaunch]:
    """Launches for strided outputs of any layout, each given by its index and offset."""
    by_form: dict[Form, list[Entry]] = {}
    for nest, outputs in outputs_by_nest.items():
        for entry in entries_of(nest, outputs, assumptions):
            form = form_of(nest, len(entry.outputs), assumptions)
            by_form.setdefault(form, []).append(entry)
    for form, entries in by_form.items():
        launch = partial(_strided, form, assumptions)
        yield from launches_within(launch, entries, assumptions.limits.parameter_bytes)


def fits_window(split: RowSplit, assumptions: Assumptions) -> bool:
    """Whether rows are equal elements, so few that one window fills all outputs."""
    unit = split.equal_width
    count = len(split.outputs)
    is_direct = _is_direct(unit, assumptions)
    # The largest phase of a window.
    max_phase = 0 if is_direct else VECTOR - assumptions.input_alignment
    max_vectors = MAX_DIRECT if is_direct else MAX_STAGED
    return (
        unit % VECTOR > 0
        and split.row_bytes == split.pitch
        and split.rows >= MIN_EDGED_UNITS
        and lcm(unit, VECTOR) * count + max_phase <= max_vectors * VECTOR
    )


def _is_direct(unit: int, assumptions: Assumptions) -> bool:
    """Whether a thread gathers one aligned vector of each output, and edges are aligned units."""
    is_vector = lcm(unit, VECTOR) == assumptions.output_alignment == VECTOR
    return is_vector and assumptions.input_alignment % unit == 0


def interleaved_launch(split: RowSplit, assumptions: Assumptions) -> KernelLaunch:
    """The launch for outputs that are one unit wide each, and are all filled from one window."""
    unit = split.equal_width
    count = len(split.outputs)
    staged = 0 if _is_direct(unit, assumptions) else _all_or_none(assumptions.output_alignment)
    form = Form(unit, lcm(unit, VECTOR), count, count, staged)

    def launch(rows: int) -> KernelLaunch:
        nest = Nest(unit, (Loop(rows, split.pitch, unit),))
        return _strided(form, assumptions, [Entry(split.outputs, split.offsets[0], nest)])

    # Outputs that are whole vectors have no edges, which selects another specialization. 16 n rows
    # are whole vectors. 16 n + 1 are not, because a unit is not.
    other_rows = split.rows // VECTOR * VECTOR + (split.rows * unit % VECTOR == 0)
    return launch(split.rows)._replace(siblings=lambda: [launch(other_rows)])


def _strided(form: Form, assumptions: Assumptions, entries: Sequence[Entry]) -> KernelLaunch:
    """The launch for entries of one form."""
    item_loops = _item_loops([entry.nest for entry in entries], form.item_bytes)
    needs = _register_needs(entries, item_loops)
    block = _block(form, needs)
    *starts, grid = _tile_starts(form, item_loops, block.tile_items)
    slots = capacity(len(entries), least=1)
    nest_slots = 1 if needs.is_one_nest else slots
    resident = _resident_blocks(form, needs, block, assumptions.limits)
    constants = _constants(form, assumptions, entries, needs, block, nest_slots)
    tables = chain(
        _entry_tables(entries, starts, slots),
        _nest_tables(entries, item_loops, needs, nest_slots),
    )
    count = slots * form.channels
    return KernelLaunch(
        *specialize("strided", count, resident, constants, tables, block.threads),
        outputs=tuple(chain.from_iterable(entry.outputs for entry in entries)),
        total_bytes=sum(trips(entry.nest.loops) * form.unit * form.channels for entry in entries),
        is_streaming=assumptions.is_streaming,
        grid=grid,
        bytes_in_flight=block.items * _loaded_bytes(form),
        shared_bytes=block.threads * _staged_bytes(form),
        reason=_reason(form),
        threads=block.threads,
    )


def _constants(
    form: Form,
    assumptions: Assumptions,
    entries: Sequence[Entry],
    needs: _RegisterNeeds,
    block: _Block,
    nest_slots: int,
) -> tuple[Argument, ...]:
    """The constants of a launch, which select its specialization."""
    has_edges, has_leads = _edges(form, entries, assumptions)
    # Windows of staged items, whose rows begin at the input's first byte, are whole vectors apart.
    alignment = (
        _all_or_none(assumptions.input_alignment)
        if form.staged_alignment
        else min(entry.window_alignment(assumptions) for entry in entries)
    )
    return (
        ("int", "kUnit", form.unit),
        ("int", "kItemBytes", form.item_bytes),
        ("int", "kItems", block.items),
        ("int", "kTile", block.tile_items),
        ("int", "kChannels", form.channels),
        ("bool", "kWindow", int(form.window_step is not None)),
        ("int", "kStep", form.window_step or 0),
        ("int", "kAlign", alignment),
        ("bool", "kEdges", int(has_edges)),
        ("bool", "kLeads", int(has_edges and has_leads)),
        ("int", "kStagedAlign", form.staged_alignment),
        ("int", "kNests", nest_slots),
        ("int", "kDimensions", needs.depth),
        ("using", "Index", "unsigned" if needs.is_small else COUNT_64),
        ("using", "Signed", "int" if needs.is_small else OFFSET_64),
    )


def _all_or_none(alignment: int) -> int:
    """The alignment for which staged items are compiled: of whole vectors, or none.

    Code for alignments between them is hardly faster: at most 0.003 of a copy's speed.
    """
    return VECTOR if alignment == VECTOR else 1


def _reason(form: Form) -> str:
    """What a launch moves at a time, and how it loads that, in one line."""
    units = f"{form.unit} bytes" if form.unit > 1 else "1 byte"
    if form.window_step is None:
        return f"moves {units} at a time, each with its own load"
    return f"moves {units} at a time, out of {VECTOR}-byte loads"


def _staged_bytes(form: Form) -> int:
    """The shared memory of an item; 0 if items do not go through it."""
    return form.item_bytes if form.staged_alignment else 0


def _loaded_bytes(form: Form) -> int:
    """The bytes of an item, or of its window if that has more."""
    span = (form.item_bytes // form.unit - 1) * abs(form.window_step or 1) + form.channels
    return max(span * form.unit, form.item_bytes)


def _register_needs(entries: Sequence[Entry], item_loops: Sequence[ItemLoops]) -> _RegisterNeeds:
    """The needs of a launch, from the largest numbers of all entries."""
    nests = [entry.nest for entry in entries]
    is_small = max(*map(trips, item_loops), *(nest.row_units for nest in nests)) < SMALL
    strides = [stride for loop in chain.from_iterable(item_loops) for stride in loop[1:]]
    strides += [nest.loops[-1].input_stride for nest in nests]
    has_64_bit_strides = max(map(abs, strides)) >= FAR
    return _RegisterNeeds(is_small, has_64_bit_strides, len(item_loops[0]), len(set(nests)) == 1)


def _block(form: Form, needs: _RegisterNeeds) -> _Block:
    """The block for entries of a form: as many items as registers allow."""
    threads = STAGED_THREADS if form.staged_alignment == VECTOR else THREADS
    # 64-bit numbers, many loops, and 64-bit strides of several nests each take the registers of
    # half the items.
    has_cheap_strides = needs.is_one_nest or not needs.has_64_bit_strides
    fits_registers = needs.is_small and needs.depth <= MAX_CHEAP_DEPTH and has_cheap_strides
    items = form.items if fits_registers else ceil_div(form.items, 2)
    is_unaligned = 0 < form.staged_alignment < VECTOR
    repeated_items = REPEATED_ITEMS if is_unaligned else 0
    return _Block(threads, items, threads * items - repeated_items)


def _tile_starts(form: Form, item_loops: Sequence[ItemLoops], tile_items: int) -> Iterator[int]:
    """The first block of each entry, and the number of blocks."""
    # The ends of a staged row are copied by a block that is not full. Counting one item more than
    # there are ensures that there is such a block.
    extra_item = int(form.staged_alignment > 0)
    counts = (ceil_div(trips(loops) + extra_item, tile_items) for loops in item_loops)
    return accumulate(counts, initial=0)


def _edges(form: Form, entries: Sequence[Entry], assumptions: Assumptions) -> tuple[bool, bool]:
    """Whether rows that are not staged begin or end inside an item, and whether rows begin so."""
    nests = [entry.nest for entry in entries]
    has_leads = any(nest.row_alignment(assumptions) % form.item_bytes for nest in nests)
    has_tails = any(nest.row_bytes % form.item_bytes for nest in nests)
    return not form.staged_alignment and (has_leads or has_tails), has_leads


def _resident_blocks(form: Form, needs: _RegisterNeeds, block: _Block, limits: DeviceLimits) -> int:
    """The blocks that an SM must hold."""
    resident = _resident_for_registers(form, needs, block.items) * (THREADS // block.threads)
    # The compiler ignores a number of blocks with more threads than an SM has: 1,024 on a T4.
    return min(resident, limits.threads_per_sm // block.threads)


def _resident_for_registers(form: Form, needs: _RegisterNeeds, items: int) -> int:
    """The blocks of THREADS threads that an SM must hold: so few that threads do not spill."""
    in_flight = items * form.channels * form.item_bytes
    if in_flight > MAX_IN_FLIGHT * VECTOR:
        return 1
    # A thread has up to eight narrow items, each with a number and two addresses in registers.
    resident = NARROW_RESIDENT if form.item_bytes < VECTOR else resident_for(in_flight)
    is_64_bit = needs.has_64_bit_strides or not needs.is_small
    return min(resident, RESIDENT_64_BIT) if is_64_bit else resident


def _item_loops(nests: Sequence[Nest], item_bytes: int) -> Sequence[ItemLoops]:
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


def _entry_tables(
    entries: Sequence[Entry], starts: Sequence[int], slots: int
) -> Iterator[Argument]:
    """The tables of entries: where each begins in the input, and its first block."""
    offsets = (entry.offset for entry in entries)
    yield OFFSET_64, "offsets", padded_table(offsets, slots, 0)
    yield "unsigned", "tile_starts", padded_table(starts, slots, UNUSED_TILE)


def _nest_tables(
    entries: Sequence[Entry], item_loops: Sequence[ItemLoops], needs: _RegisterNeeds, slots: int
) -> Iterator[Argument]:
    """The tables of nests: sizes, strides, and divisors by the sizes.

    Unused slots have the first nest again. Nests that are all equal have one slot.
    """
    nests = padded_table((entry.nest for entry in entries[:slots]), slots, entries[0].nest)
    item_loops = padded_table(item_loops[:slots], slots, item_loops[0])
    bits, index, signed = (32, "unsigned", "int") if needs.is_small else (64, COUNT_64, OFFSET_64)
    sizes, input_strides, output_strides = zip(*chain.from_iterable(item_loops), strict=True)
    steps = tuple(nest.loops[-1].input_stride for nest in nests)
    stride = OFFSET_64 if needs.has_64_bit_strides else "int"
    magics, shifts = zip(*[divisor(size, bits) for size in sizes], strict=True)
    yield index, "counts", tuple(map(trips, item_loops))
    yield index, "minus_sizes", tuple((1 << bits) - size for size in sizes)
    yield index, "magics", magics
    yield "unsigned", "shifts", shifts
    yield stride, "input_strides", input_strides
    yield stride, "output_strides", output_strides
    yield stride, "steps", steps
    yield signed, "row_units", tuple(nest.row_units for nest in nests)
