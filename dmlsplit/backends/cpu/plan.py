"""The plan of a split as copy.c reads it: groups of loop nests, cut into tasks.

Thresholds change speed only. They were found by varying one at a time, with ``python -m benchmarks
cpu``, on two virtual EPYC processors.
"""

from array import array
from collections.abc import Callable, Iterator
from itertools import accumulate, chain
from math import gcd, prod
from typing import NamedTuple

from dmlsplit.errors import UnsupportedError
from dmlsplit.geometry import ONE_TRIP, SplitGeometry, ceil_div

# A task has about TASK_BYTES: enough that taking it costs nothing, and few enough for the cache and
# for threads that end together. An item counts as ITEM_BYTES more, the cost of its loop.
TASK_BYTES, ITEM_BYTES = 64 << 10, 8
# A task of many outputs is larger: it writes PIECE_BYTES of each, not a line here and there.
PIECE_BYTES, MOST_BYTES = 1 << 10, 512 << 10
# Nests with longer runs share few cache lines of the input, so each is a group of its own.
LONG_RUN = 4 << 10
MOST_OUTS, WIDEST_ELEMENT = 16, 16  # of a kernel, in bytes
NO_KERNEL, NEWEST = -1, 2  # kinds of processors
MOST_LOOPS = 65  # as in copy.c: those of 64 dimensions, and one over the parts of a long run

_Loops = tuple[tuple[int, int, int], ...]  # size, bytes between iterations of input and output
_Nest = tuple[int, int, int, int, _Loops]  # output, where it begins in both, bytes of a run, loops
Kernels = Callable[[bytes, int, int], int]  # dmlsplit_kernel of copy.c


class Plan(NamedTuple):
    """A plan, in memory that does not move."""

    words: "array[int]"
    tasks: int
    cost: int  # bytes, and ITEM_BYTES for each item

    @property
    def address(self) -> int:
        """Where copy.c finds it."""
        return self.words.buffer_info()[0]


def plan_of(geometry: SplitGeometry, kernels: Kernels, streams: bool) -> Plan:
    """The plan of a geometry; `streams` says whether outputs are written with streaming stores."""
    nests = list(_nests(geometry))
    if any(len(nest[4]) > MOST_LOOPS for nest in nests):
        raise UnsupportedError(f"more than {MOST_LOOPS - 1} dimensions cannot be merged")
    kernel = _kernel(geometry, nests, kernels)
    groups = [nests] if kernel != NO_KERNEL else list(_groups(nests))
    loops = list(accumulate((len(nest[4]) for nest in nests), initial=0))
    words, tasks, cost, first = array("q", (len(groups), len(nests), streams)), 0, 0, 0
    for group in groups:
        items = prod(size for size, _, _ in group[0][4])
        extra = ITEM_BYTES if kernel == NO_KERNEL else 0
        item = sum(run + extra for _, _, _, run, _ in group)
        step = max(1, TASK_BYTES // item, min(PIECE_BYTES // group[-1][3], MOST_BYTES // item))
        words.extend((tasks, items, step, first, len(group), kernel))
        tasks += ceil_div(items, step)
        cost += items * item
        first += len(group)
    for nest, begin in zip(nests, loops, strict=False):
        words.extend((*nest[:4], begin, len(nest[4])))
    words.extend(chain.from_iterable(chain.from_iterable(nest[4] for nest in nests)))
    return Plan(words, tasks, cost)


def _nests(geometry: SplitGeometry) -> Iterator[_Nest]:
    """The nests of all outputs that have elements. A run of many tasks is one more loop."""
    copies: list[tuple[int, int, int, _Loops]]
    if rows := geometry.row_split:
        packed = zip(*rows[2:], strict=True)
        copies = [
            (output, offset, run, ((rows.rows, rows.pitch, run),))
            for output, offset, run in packed
            if run
        ]
    else:
        copies = [
            (output, piece.input_offset, piece.run_bytes, tuple(piece.loops) or (ONE_TRIP,))
            for output, piece in enumerate(geometry.strided)
            if piece.run_bytes
        ]
    for output, offset, run, loops in copies:
        whole, rest = divmod(run, TASK_BYTES) if run > TASK_BYTES else (0, run)
        if whole:
            yield output, offset, 0, TASK_BYTES, (*loops, (whole, TASK_BYTES, TASK_BYTES))
        if rest:
            yield output, offset + whole * TASK_BYTES, whole * TASK_BYTES, rest, loops


def _groups(nests: list[_Nest]) -> Iterator[list[_Nest]]:
    """Neighbours with loops of equal sizes and short runs, as many as fit a task."""
    group: list[_Nest] = []
    sizes, room = [0], 0
    for nest in nests:
        run, own = nest[3], [size for size, _, _ in nest[4]]
        if group and (own != sizes or run >= LONG_RUN or run > room):
            yield group
            group = []
        if not group:
            sizes, room = own, TASK_BYTES if run < LONG_RUN else 0
        group.append(nest)
        room -= run
    if group:
        yield group


def _kernel(geometry: SplitGeometry, nests: list[_Nest], kernels: Kernels) -> int:
    """The number of the kernel that copies all outputs in one pass over packed rows."""
    rows = geometry.row_split
    if rows is None or not 2 <= len(nests) <= MOST_OUTS or rows.pitch != rows.row_bytes:
        return NO_KERNEL
    element = gcd(WIDEST_ELEMENT, *rows.widths)
    form = "+".join(str(width // element) for width in rows.widths if width)
    return kernels(form.encode(), element.bit_length() - 1, NEWEST)
