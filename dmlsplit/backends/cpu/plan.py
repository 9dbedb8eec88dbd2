"""The plan of a split as copy.c reads it. Its thresholds change speed only.

copy.c says what nests, groups, items and tasks are. A *pattern* is the sizes of all outputs in a
row, in elements, for which copy.c has a kernel.
"""

from array import array
from collections.abc import Iterator
from itertools import chain
from math import gcd, prod
from operator import attrgetter
from typing import NamedTuple

from dmlsplit.geometry import ONE_TRIP, Loop, SplitGeometry, ceil_div

# A task has about this many bytes: enough that fetching it costs little, and few enough that it
# fits the cache and that all threads finish at about the same time.
TASK_BYTES = 64 << 10
# A run that no kernel copies counts as this many bytes more, the cost of a loop.
RUN_BYTES = 8
# The kernel EQUAL passes over its rows several times, so its tasks fit the first-level cache.
EQUAL_TASK_BYTES = 32 << 10
# If outputs are too large for any cache, tasks of EQUAL are larger, to write long runs.
UNCACHED_EQUAL_TASK_BYTES = 256 << 10
# A task of many outputs is larger than TASK_BYTES, so that it writes this many bytes of each output
# and not a single cache line.
PIECE_BYTES = 1 << 10
# The most bytes of a task that is larger for the sake of PIECE_BYTES.
MAX_TASK_BYTES = 512 << 10
# Nests with runs of this size or more read long parts of the input in order, so each is a group of
# its own.
LONG_RUN = 32 << 10
# Runs of this many bytes or more are copied row by row, in the order of the input.
ROW_RUN = 256
# If the input comes from memory, and not from the cache, shorter runs are, too: those of a line.
LARGE_ROW_RUN = 64
# With non-temporal stores, runs of whole words of 16 bytes can also be streamed output by output,
# and are copied row by row from this many bytes.
UNCACHED_WORDS_ROW_RUN = 192
# The most outputs that are copied row by row: copy.c has room for this many.
MAX_ROW_OUTS = 64
# The most if runs are short or stores are non-temporal: memory is slow to write parts of many
# outputs in turn.
MAX_LARGE_ROW_OUTS = 16
# The most outputs that a kernel copies.
MAX_OUTS = 16
# Kernels copy elements of this many sizes: 1, 2, 4, 8 or 16 bytes.
ELEMENT_SIZES = 5
# The largest of these sizes.
WIDEST_ELEMENT = 16
# The most bytes in a row of an output that the kernel EQUAL copies.
WIDEST_PIECE = 8
# The kind of processor that permutes bytes (AVX-512 VBMI), the only one with the kernel EQUAL.
PERMUTES = 2
# In place of a kernel's number: loops copy the split.
NO_KERNEL = -1
# The number of the kernel for packed rows of equal outputs, which it copies in several passes.
EQUAL = -2
# In place of a kernel's number, for a group: its rows are copied one after another.
ROWS = -3
# The patterns of packed rows that a kernel copies in one pass, in the order of copy.c.
PATTERNS = [(1, 1), (1, 2), (2, 1), (1, 3), (3, 1), *((1,) * count for count in (3, 4, 8, 16))]


class _Nest(NamedTuple):
    """The runs of an output, and the loops around them."""

    output: int
    src: int  # bytes before its first run in the input
    dst: int  # and in the output
    run: int  # bytes
    loops: tuple[Loop, ...]  # the last one is the innermost


class Plan(NamedTuple):
    """A plan, in memory that does not move."""

    words: "array[int]"
    address: int
    tasks: int
    cost: int  # bytes, and RUN_BYTES for each run that no kernel copies


def plan_of(geometry: SplitGeometry, kind: int, non_temporal: bool, is_large: bool) -> Plan:
    """The plan of a geometry; `non_temporal` asks for such stores where they are possible.

    `is_large`: input and outputs are so large that the input comes from memory.
    """
    nests = list(_nests(geometry))
    kernel = _kernel(geometry, nests, kind, non_temporal)
    groups = [nests] if kernel != NO_KERNEL else _groups(nests)
    words = array("q", (len(groups), len(nests), non_temporal, kind))
    tasks = 0
    cost = 0
    first_nest = 0
    for group in groups:
        items = prod(size for size, _, _ in group[-1].loops)  # of each nest of the group
        item_cost = sum(nest.run for nest in group)
        if kernel == NO_KERNEL:
            item_cost += RUN_BYTES * len(group)
        step = _task_items(group, item_cost, kernel, non_temporal)
        is_by_rows = kernel == NO_KERNEL and _is_by_rows(group, non_temporal, is_large)
        group_kernel = ROWS if is_by_rows else kernel
        words.extend((tasks, items, step, first_nest, len(group), group_kernel))
        tasks += ceil_div(items, step)
        cost += items * item_cost
        first_nest += len(group)
    _append_nests(words, nests)
    address, _ = words.buffer_info()
    return Plan(words, address, tasks, cost)


def _task_items(group: list[_Nest], item_cost: int, kernel: int, non_temporal: bool) -> int:
    """The items of a group that a task copies."""
    task_bytes = TASK_BYTES
    if kernel == EQUAL:
        task_bytes = UNCACHED_EQUAL_TASK_BYTES if non_temporal else EQUAL_TASK_BYTES
    piece_items = min(PIECE_BYTES // group[-1].run, MAX_TASK_BYTES // item_cost)
    return max(1, task_bytes // item_cost, piece_items)


def _is_by_rows(group: list[_Nest], non_temporal: bool, is_large: bool) -> bool:
    """Whether the items of a group are copied one after another, and not output by output."""
    max_outs = MAX_LARGE_ROW_OUTS if non_temporal else MAX_ROW_OUTS
    if not 1 < len(group) <= max_outs or any(len(nest.loops) > 1 for nest in group):
        return False
    # copy.c reads the rows of all outputs at one distance. Those of overlapping inputs may differ.
    if len({nest.loops[0].input_stride for nest in group}) > 1:
        return False
    min_run = LARGE_ROW_RUN if is_large and len(group) <= MAX_LARGE_ROW_OUTS else ROW_RUN
    if non_temporal and not any(nest.run % WIDEST_ELEMENT for nest in group):
        min_run = UNCACHED_WORDS_ROW_RUN
    return all(nest.run >= min_run and nest.loops[0].output_stride == nest.run for nest in group)


def _append_nests(words: "array[int]", nests: list[_Nest]) -> None:
    """Append nests, and their loops, as copy.c reads them."""
    first_loop = 0
    for output, src, dst, run, loops in nests:
        words.extend((output, src, dst, run, first_loop, len(loops)))
        first_loop += len(loops)
    words.extend(chain.from_iterable(chain.from_iterable(nest.loops for nest in nests)))


def _nests(geometry: SplitGeometry) -> Iterator[_Nest]:
    """The nests of all outputs that have elements. A run of several tasks is one more loop."""
    copies: list[tuple[int, int, tuple[Loop, ...]]]
    if rows := geometry.row_split:  # not from `pieces`, which would take longer than the plan
        packed = zip(rows.offsets, rows.widths, strict=True)
        copies = [(offset, run, (Loop(rows.rows, rows.pitch, run),)) for offset, run in packed]
    else:
        copies = list(map(attrgetter("input_offset", "run_bytes", "loops"), geometry.strided))
    for output, (offset, run, nest) in enumerate(copies):
        loops = nest or (ONE_TRIP,)
        whole, rest = divmod(run, TASK_BYTES)
        if whole:
            tasks = Loop(whole, TASK_BYTES, TASK_BYTES)
            yield _Nest(output, offset, 0, TASK_BYTES, (*loops, tasks))
        if rest:
            whole_bytes = whole * TASK_BYTES
            yield _Nest(output, offset + whole_bytes, whole_bytes, rest, loops)


def _groups(nests: list[_Nest]) -> list[list[_Nest]]:
    """Neighbours with loops of equal sizes and short runs, as many as fit a task."""
    groups: list[list[_Nest]] = []
    group_sizes = [0]
    room = 0
    for nest in nests:
        sizes = [size for size, _, _ in nest.loops]
        if sizes != group_sizes or nest.run > room or nest.run >= LONG_RUN:
            groups.append([])
            group_sizes = sizes
            room = TASK_BYTES
        groups[-1].append(nest)
        room = room - nest.run if nest.run < LONG_RUN else 0
    return groups


def _kernel(geometry: SplitGeometry, nests: list[_Nest], kind: int, non_temporal: bool) -> int:
    """The number of the kernel of a split, for a kind of processor."""
    rows = geometry.row_split
    if rows is None or not 2 <= len(nests) <= MAX_OUTS or rows.pitch != rows.row_bytes:
        return NO_KERNEL
    element = gcd(WIDEST_ELEMENT, *rows.widths)
    pattern = tuple(width // element for width in rows.widths if width)
    # Kernels have no non-temporal stores, which rows of the widest elements could use.
    if pattern in PATTERNS and not (non_temporal and element == WIDEST_ELEMENT):
        return ELEMENT_SIZES * PATTERNS.index(pattern) + element.bit_length() - 1
    is_equal = len(set(pattern)) == 1 and max(rows.widths) <= WIDEST_PIECE
    return EQUAL if is_equal and kind == PERMUTES else NO_KERNEL
