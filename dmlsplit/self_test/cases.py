"""The splits of the self-test: together they take every path that the planner can choose.

The table of layouts reaches all code. Loops of every depth, numbers of rows from one to the next
multiple of 64, and numbers of rows for which a launch takes another path, are derived from it.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import cycle, product

from dmlsplit.backends.cuda.launch import DeviceLimits
from dmlsplit.messages import counted
from dmlsplit.self_test.case import Case, Mode
from dmlsplit.self_test.kernels import planned
from dmlsplit.self_test.paths import Pair, pairs_of, row_step

_ODD = (1, 3)
_ALTERNATING_STRIDES = (1200, -30, 1), (-1600, 40, 1)
LAYOUTS = (
    # `rows`: wide outputs.
    Case("experts", (12, 4096), (3, 8, 1), axis=0),
    Case("experts at odd addresses", (10, 1021), (3, 5, 2), axis=0, phases=_ODD),
    Case("equal columns of one row", (1, 17408), (1024,) * 17),
    Case("two long rows", (2, 40001), (15002, 24999), phases=(3, 5)),
    Case("the same at odd addresses", (1, 17408), (1024,) * 17, phases=_ODD),
    # Their last 1 to 3 bytes begin a tile of 4096 bytes.
    Case("tiles of one row and a few bytes", (1, 16413), (4108, 8203, 4102), phases=(0, 5)),
    Case("query, key, value", (12, 1280), (1024, 128, 128), 2),
    Case("seventeen columns", (9, 8704), (512,) * 17),
    Case("wide columns of odd length", (9, 4111), (1507, 2604), phases=(0, 5)),
    Case("seventeen columns of odd length", (3, 8721), (513,) * 17, phases=(7, 7)),
    Case("short columns", (300, 800), (100, 398, 17, 285), phases=(0, 3)),
    Case("equal short columns", (67, 986), (493,) * 2, phases=(1, 1)),
    # `tile`: narrow outputs, through shared memory.
    Case("a byte each", (301, 64), (1,) * 64),
    Case("eight and sixteen bytes", (131, 24), (8, 16)),
    Case("columns wider than a vector", (131, 51), (20, 31), phases=(1, 3)),
    Case("columns of whole banks", (131, 128), (32, 32, 64), phases=_ODD),
    Case("halves at odd elements", (301, 12), (5, 7), 2, (2, 6)),
    # More than the 4,096 bytes of parameters that CUDA allowed before 12.1.
    Case("a thousand pieces", (5, 3000), (3,) * 1000),
    Case("forty columns of odd length", (5, 1880), (47,) * 40, phases=_ODD),
    Case("boxes", (131, 336), (48,) * 7),
    Case("columns of five vectors", (11, 720), (20,) * 36, 4),
    Case("narrow columns of few rows", (3, 600), (1, 2, 500, 97)),
    Case("narrow columns beside wide ones", (70, 3200), (5, 1400, 90, 1500, 205), phases=(3, 1)),
    Case("columns of a padded input", (67, 60), (3, 57), 4, (4, 4), strides=(64, 1)),
    # `transpose`: planes.
    Case("an element each", (127, 24), (1,) * 24, 8),
    Case("transposed", (70, 90), (30, 60), 4, (4, 4), strides=(1, 70)),
    Case("transposed bytes", (40, 492), tuple(range(9, 33)), 1, (4, 4), strides=(1, 40)),
    Case("transposed vectors", (2, 8, 128), (8,), 16, axis=1, strides=(2048, 1, 16)),
    Case("to and fro", (3, 40, 70), (30, 40), 2, (4, 4), -1, (-2800, 1, -40), _ALTERNATING_STRIDES),
    # `strided`: every other layout.
    Case("colours", (1, 31, 67, 3), (1, 1, 1)),
    Case("complex numbers", (1023, 2), (1, 1), 8),
    Case("complex numbers at words", (1023, 2), (1, 1), 8, (4, 4)),
    Case("colours of padded rows", (2, 5, 640, 3), (1, 1, 1), strides=(9605, 1921, 3, 1)),
    Case("colours of odd rows", (2, 5, 301, 3), (1, 1, 1), strides=(4525, 905, 3, 1)),
    Case("two of four", (3, 5, 264, 3), (1, 2), 2, (4, 4), strides=(6000, 1100, 4, 1)),
    Case("padded outputs", (19, 60), (20, 40), 4, (3, 0), output_strides=((24, 1), (48, 1))),
    Case("padded, aligned outputs", (19, 60), (20, 40), 4, output_strides=((24, 1), (48, 1))),
    Case("every ninth byte", (6, 600), (288, 312), 1, (4, 4), strides=(5407, 9)),
    Case("backwards", (2, 514), (257, 257), 4, (4, 0), -1, (600, -1), ((320, 1),) * 2),
    Case("every 17th word", (2, 514), (257, 257), 4, (4, 0), -1, (8800, 17), ((320, 1),) * 2),
)
# The loops around the rows or planes of a split: as many as eight dimensions leave. Their sizes
# differ, so that no loop can stand for another one.
_LOOP_SIZES = (2, 3, 2, 2, 3, 2, 2)
# Numbers of rows that are tried until the path of a launch changes, with those around multiples of
# its tile or chunk. A split with such a number has at most MAX_BYTES.
_ROWS = tuple(3 << power for power in range(15))
MAX_BYTES = 1 << 20
# A GPU of so few SMs, for which these splits are planned, needs few bytes for several rounds.
_SM_COUNTS = 1, 8


def cases(limits: DeviceLimits) -> Iterator[Case]:
    """The splits for a device."""
    # Each layout is first captured, or run on a second stream, and then launched. A kernel is thus
    # captured before its first launch, where lazy loading would make the capture fail.
    for case, mode in zip(LAYOUTS, cycle((Mode.GRAPH, Mode.STREAM)), strict=False):
        yield from (replace(case, mode=mode), case)
    loops = list(_loop_cases())
    yield from loops
    yield from _remainder_cases()
    yield from _path_cases((*LAYOUTS, *loops), limits)


def _loop_cases() -> Iterator[Case]:
    """Rows of `strided` and planes of `transpose`, in loops that cannot be merged."""
    for depth in range(len(_LOOP_SIZES) + 1):
        loops = _LOOP_SIZES[:depth]
        rows = (*loops, 24)
        outer = _spread_strides(loops, 80)
        for sizes in ((10, 14), (12, 12)):
            name = f"rows of {sizes[0]} in {depth} loops"
            yield Case(name, rows, sizes, phases=(0, 2), strides=(*outer, 3))
        if depth < len(_LOOP_SIZES):
            planes = (*loops, 9, 24)
            outer = _spread_strides(loops, 24 * 11)
            strides = (*outer, 1, 11)
            phases = (0, 0) if depth % 2 else (2, 6)
            yield Case(f"planes in {depth} loops", planes, (8, 16), 2, phases, -1, strides)


def _spread_strides(loops: tuple[int, ...], inner: int) -> tuple[int, ...]:
    """Strides of loops around `inner` elements, with gaps."""
    strides: list[int] = []
    for size in reversed(loops):
        strides.insert(0, inner + 5)
        inner = size * strides[0]
    return tuple(strides)


def _remainder_cases() -> Iterator[Case]:
    """All numbers of rows modulo 64, for each kernel."""
    for rows in range(64, 128):
        yield Case(f"{rows} rows of wide columns", (rows, 1100), (512, 588), phases=(0, 3))
        yield Case(f"{rows} rows of narrow columns", (rows, 51), (20, 31), phases=(1, 3))
        yield Case(f"{rows} odd pixels", (rows, 3), (1,) * 3, phases=_ODD)
        yield Case(f"{rows} transposed rows", (rows, 48), (16, 32), 2, (2, 6), strides=(1, rows))


def _path_cases(layouts: Iterable[Case], limits: DeviceLimits) -> Iterator[Case]:
    """Layouts with enough rows that a launch makes two choices which no earlier launch made."""
    known_pairs: set[Pair] = set()
    for layout, sm_count in product(filter(_can_grow, layouts), _SM_COUNTS):
        for rows in _row_counts(layout, limits._replace(sm_count=sm_count)):
            case = _case_of_rows(layout, rows, sm_count)
            pairs = pairs_of(planned(case, limits))
            if not pairs <= known_pairs:
                yield case
            known_pairs |= pairs


def _row_counts(layout: Case, limits: DeviceLimits) -> Iterator[int]:
    """Numbers of rows: some that double, and those around multiples of a tile or chunk."""
    row_bytes = layout.source.size // layout.shape[0]
    for rows in _ROWS[: bisect_right(_ROWS, MAX_BYTES // row_bytes)]:
        launches = planned(_case_of_rows(layout, rows, limits.sm_count), limits)
        edges = {rows // step * step for step in map(row_step, launches)} - {0}
        yield from sorted({rows, *(edge + more for edge in edges for more in (-1, 0, 1))} - {0})


def _can_grow(layout: Case) -> bool:
    """Whether more rows of a layout are more rows of the same launches, further in memory."""
    tensors = layout.source, *layout.output_tensors
    apart = [
        tensor.strides[0] >= tensor._replace(shape=(1, *tensor.shape[1:])).size
        for tensor in tensors
    ]
    return layout.axis % len(layout.shape) != 0 and all(apart)


def _case_of_rows(layout: Case, rows: int, sm_count: int) -> Case:
    """A layout with another number of rows, planned for a GPU of so many SMs."""
    name = f"{layout.name}, {rows} rows for {counted(sm_count, 'SM')}"
    return replace(layout, name=name, shape=(rows, *layout.shape[1:]), sm_count=sm_count)
