"""The plan of a split as copy.c reads it. Its thresholds change speed only.

copy.c says what nests, groups, items and tasks are. A *pattern* is the sizes of all outputs in a
row, in elements, for which copy.c has a kernel.
"""

from array import array
from collections.abc import Iterator
from itertools import accumulate, chain
from math import gcd, prod
from operator import attrgetter
from typing import NamedTuple

from dmlsplit.geometry import ONE_TRIP, SplitGeometry, ceil_div

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
# The patterns of packed rows that a kernel copies in one pass, in the order of copy.c.
PATTERNS = [(1, 1), (1, 2), (2, 1), (1, 3), (3, 1), *((1,) * count for count in (3, 4, 8, 16))]

_Loops = tuple[tuple[int, int, int], ...]  # size, bytes between iterations of input and output
_Nest = tuple[int, int, int, int, _Loops]  # output, where it begins in both, bytes of a run, loops


class Plan(NamedTuple):
    """A plan, in memory that does not move."""

    words: "array[int]"
    address: int
    tasks: int
    cost: int  # bytes, and RUN_BYTES for each run that no kernel copies


def plan_of(geometry: SplitGeometry, kind: int, non_temporal: bool) -> Plan:
    """The plan of a geometry; `non_temporal` asks for such stores where they are possible."""
    nests = list(_nests(geometry))
    kernel = _kernel(geometry, nests, kind, non_temporal)
    groups = [nests] if kernel != NO_KERNEL else _groups(nests)
    words, tasks, cost = array("q", (len(groups), len(nests), non_temporal, kind)), 0, 0
    run_cost = RUN_BYTES if kernel == NO_KERNEL else 0
    task_bytes = TASK_BYTES
    if kernel == EQUAL:
        task_bytes = UNCACHED_EQUAL_TASK_BYTES if non_temporal else EQUAL_TASK_BYTES
    first_nests = accumulate(map(len, groups), initial=0)
    for group, first_nest in zip(groups, first_nests, strict=False):
        *_, last_run, loops = group[-1]  # all nests of a group have loops of these sizes
        items = prod(size for size, _, _ in loops)
        item_cost = sum(run + run_cost for _, _, _, run, _ in group)
        piece_step = min(PIECE_BYTES // last_run, MAX_TASK_BYTES // item_cost)
        step = max(1, task_bytes // item_cost, piece_step)
        words.extend((tasks, items, step, first_nest, len(group), kernel))
        tasks += ceil_div(items, step)
        cost += items * item_cost
    first_loops = accumulate((len(loops) for _, _, _, _, loops in nests), initial=0)
    for (output, offset, start, run, loops), first_loop in zip(nests, first_loops, strict=False):
        words.extend((output, offset, start, run, first_loop, len(loops)))
    words.extend(chain.from_iterable(chain.from_iterable(loops for _, _, _, _, loops in nests)))
    address, _ = words.buffer_info()
    return Plan(words, address, tasks, cost)


def _nests(geometry: SplitGeometry) -> Iterator[_Nest]:
    """The nests of all outputs that have elements. A run of several tasks is one more loop."""
    copies: list[tuple[int, int, _Loops]]
    if rows := geometry.row_split:  # not from `pieces`, which would take longer than the plan
        packed = zip(rows.offsets, rows.widths, strict=True)
        copies = [(offset, run, ((rows.rows, rows.pitch, run),)) for offset, run in packed]
    else:
        copies = list(map(attrgetter("input_offset", "run_bytes", "loops"), geometry.strided))
    for output, (offset, run, nest) in enumerate(copies):
        loops = nest or (ONE_TRIP,)
        whole, rest = divmod(run, TASK_BYTES)
        if whole:
            yield output, offset, 0, TASK_BYTES, (*loops, (whole, TASK_BYTES, TASK_BYTES))
        if rest:
            yield output, offset + whole * TASK_BYTES, whole * TASK_BYTES, rest, loops


def _groups(nests: list[_Nest]) -> list[list[_Nest]]:
    """Neighbours with loops of equal sizes and short runs, as many as fit a task."""
    groups: list[list[_Nest]] = []
    group_sizes, room = [0], 0
    for nest in nests:
        _, _, _, run, loops = nest
        sizes = [size for size, _, _ in loops]
        if sizes != group_sizes or run > room or run >= LONG_RUN:
            groups.append([])
            group_sizes, room = sizes, TASK_BYTES
        groups[-1].append(nest)
        room = room - run if run < LONG_RUN else 0
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
