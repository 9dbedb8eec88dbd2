"""The forms of a launch that the planner can choose, and a small scope that reaches all of them.

A form is what selects a specialization: the constants of a kernel, and the types of its parameters.
A sweep of small splits, below, on and above the planner's thresholds, is planned for all alignments
of input and outputs. `chosen` selects splits that execute each form at each address modulo 16 for
which the planner chooses it, and on each side of each threshold.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import product
from math import gcd, lcm
from typing import Any, NamedTuple
from unittest.mock import patch

from dmlsplit.backends.cuda import planner
from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.launch import COUNT_64, VECTOR, KernelLaunch
from dmlsplit.backends.cuda.planner import forms, strided, transpose
from dmlsplit.backends.cuda.planner import rows as rows_planner
from dmlsplit.geometry import ceil_div
from tests.support.kernel_cases import Case

ALIGNMENTS = (1, 2, 4, 8, 16)
MAX_BYTES = 1 << 15
THRESHOLDS = {
    "rows": (forms.MIN_EDGED_UNITS,),
    "width": (rows_planner.MIN_WIDTH, planner.WIDE_BYTES),
    "outputs": (rows_planner.FEW_OUTPUTS,),
}
# Whether numbers of items need 64 bits, and whether strides and places do: small splits are planned
# as if they did.
SMALL, *LARGE = tuple(product((False, True), repeat=2))


class Form(NamedTuple):
    """A kernel, and what selects its code."""

    kernel: str
    constants: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        return " ".join((self.kernel, *(f"{name}={value}" for name, value in self.constants)))


def _many(entries: int) -> int:
    return min(entries, 2)


# What a form has of each constant. The rest are sizes of tables; kAlign and the values of
# kStagedAlign follow from addresses, which are covered one by one.
Classes = dict[str, Callable[[Any], Any]]
COARSE: Classes = {
    **dict.fromkeys(
        "kAligned kOneRow kEqual kPartBytes kPadded kWide kNarrow kPointers".split(), int
    ),
    **dict.fromkeys("kWindow kEdges kLeads kInputAlign kOutputAligned".split(), int),
    "kStagedAlign": bool,
    "kUnit": lambda unit: unit & -unit,
    "kItemBytes": lambda item: (item >= VECTOR) + (item > VECTOR),
    "kChannels": _many,
    "kStep": lambda step: min(max(step, -1), 2),
}
FINE: Classes = COARSE | {
    "kItemBytes": lambda item: min(item, VECTOR + 1),
    **dict.fromkeys(("kLoads", "kDownVectors", "kLoops"), int),
    **dict.fromkeys(("kNests", "kPlanes", "kEntries", "kItems"), _many),
    **dict.fromkeys(("Index", "type of input_strides", "type of pitch", "type of widths"), str),
    "kDimensions": lambda depth: min(depth, strided.MAX_CHEAP_DEPTH + 1),
}


def form_of(launch: KernelLaunch, classes: Classes = COARSE) -> Form:
    """The form of a launch."""
    known: dict[str, Any] = {one.name: one.value for one in launch.code.own_constants}
    known |= {f"type of {member.name}": member.type for member in launch.code.members}
    constants = ((name, classes[name](known[name])) for name in known if name in classes)
    return Form(launch.code.kernel, tuple(constants))


@contextmanager
def numbers(are_large: bool, are_far: bool) -> Iterator[None]:
    """Plans as for 2^30 items and more, and as for strides and places beyond 2^31."""
    with ExitStack() as stack:
        if are_large:
            stack.enter_context(patch.object(strided, "SMALL", 1))
        if are_far:
            stack.enter_context(
                patch.object(strided, "_has_64_bit_strides", lambda nests, item_loops: True)
            )
            for module in (rows_planner,):
                stack.enter_context(patch.object(module, "index_type", lambda largest: COUNT_64))
        yield


def around(*thresholds: int) -> list[int]:
    return [threshold + step for threshold in thresholds for step in (-1, 0, 1)]


def packed(is_fine: bool) -> Iterator[Case]:
    """Rows of equal outputs, of uneven ones, and with gaps."""
    few = (1, 2, forms.MIN_EDGED_UNITS + 1)
    rows = (1, 2, *around(*THRESHOLDS["rows"]), forms.MIN_EDGED_UNITS + VECTOR)
    more = (5, 7, 9, 20, 32, 33, 48, 63, 64) if is_fine else ()
    widths = (1, 2, 3, 4, 6, 8, 12, 24, *more, *around(*THRESHOLDS["width"]), 1024)
    counts = (
        (1, 5, 8, 40, *around(rows_planner.FEW_OUTPUTS))
        if is_fine
        else (rows_planner.FEW_OUTPUTS + 1,)
    )
    for count, width, number in product((2, 3, *counts), widths, rows):
        equal = Case((number, count * width), (width,) * count)
        yield equal
        if is_fine or number in few:
            yield Case((number, count * width + count - 1), (width, *(width + 1,) * (count - 1)))
            yield Case((number, width + 1030), (width, 1030))
            yield replace(equal, strides=(count * width + VECTOR, 1))
    yield from (Case((number, 256), (32,) * 8) for number in rows)
    for sizes, number in product(((1, 2, 5, 40), (3, 17, 45)), rows):  # narrow ones and wide ones
        yield Case((number, sum(sizes)), sizes)
    most = strided.MAX_STAGED * VECTOR
    for width, count in product(range(1, most // 2), range(2, strided.MAX_STAGED)):
        if is_fine and width % VECTOR and lcm(width, VECTOR) * count <= most:
            yield from (Case((rows, count * width), (width,) * count) for rows in (256, 257))


def nested(is_fine: bool) -> Iterator[Case]:
    """Elements some steps apart, in loops: equal outputs, different ones, with gaps, channels."""
    steps = (*range(-6, 10), 17) if is_fine else (-1, 0, 1, 2, 17)
    lengths = (1, 2, 3, 4, 8, 12, *around(forms.MIN_EDGED_UNITS), 272)
    depths = (0, 1, 2, 3, 7) if is_fine else (0, 1)
    for unit, step, length, depth in product(ALIGNMENTS, steps, lengths, depths):
        pitch = 2 * VECTOR * (1 + length * max(1, abs(step)))
        loops = [2**n for n in reversed(range(depth))]
        strides = *(3 * n * pitch for n in loops), step
        twice = Case((*(2,) * depth, 2 * length), (length,) * 2, -1, unit, strides)
        yield twice
        for count in range(2, 1 + (step if is_fine else 2)) if depth and 1 < step < 10 else ():
            shape = *(2,) * depth, length, count
            yield Case(shape, (1,) * count, -1, unit, (*strides, 1))
        if is_fine or (depth and length > 12):
            gaps = (*(2 * VECTOR * n * length for n in loops), 1)
            yield replace(twice, output_strides=(gaps, gaps))
            longer = length + 1 + 15 * (length >= forms.MIN_EDGED_UNITS)
            shape = *(2,) * depth, length + longer
            yield Case(shape, (length, longer), -1, unit, strides)


def transposed(is_fine: bool) -> Iterator[Case]:
    """Two dimensions that are swapped, in loops, and rows of elements."""
    sides = (*around(transpose.MIN_SIDE), 33, 64, 130) if is_fine else (8, 128)
    for unit, down, across, loops in product(ALIGNMENTS, sides, sides, range(4 if is_fine else 2)):
        for sizes, gap in product(((down,), (down, down + 1)), (0, 3) if is_fine else (0,)):
            pitch = ceil_div(sum(sizes), VECTOR) * VECTOR + gap
            outer = (2**n * pitch * across for n in reversed(range(loops)))
            yield Case((*(2,) * loops, sum(sizes), across), sizes, loops, unit, (*outer, 1, pitch))
    for unit, count, rows in product(ALIGNMENTS[:4], (32, 61), (128, 500)):
        yield Case((rows, count), (1,) * count, -1, unit)


SCOPE = packed, nested, transposed


class Run(NamedTuple):
    """A split, planned for alignments of its addresses."""

    case: Case
    alignments: tuple[int, int]
    sides: frozenset[str]  # of thresholds

    def at_addresses(self) -> Iterator[tuple[Case, set[str]]]:
        """The split at every address of its alignments, and what it reaches there."""
        sources, targets = map(residues, self.alignments)
        count = len(self.case.sizes)
        for turn in range(max(len(sources), ceil_div(len(targets), count))):
            source = sources[turn % len(sources)]
            phases = [targets[(turn * count + n) % len(targets)] for n in range(count)]
            case = replace(self.case, misaligned=(source, *phases))
            case.__dict__["launches"] = self.case.launches
            yield case, {*self.sides, f"input {source}", *(f"output {phase}" for phase in phases)}

    @property
    def reached(self) -> set[str]:
        """What it reaches at all of them."""
        return self.sides | _PLACES[self.alignments]


def residues(alignment: int) -> tuple[int, ...]:
    """The addresses modulo 16 of which this is the alignment."""
    return tuple(n for n in range(VECTOR) if gcd(VECTOR, n) == alignment)


_PLACES = {
    pair: frozenset(
        f"{name} {residue}"
        for name, alignment in zip(("input", "output"), pair, strict=True)
        for residue in residues(alignment)
    )
    for pair in product(ALIGNMENTS, repeat=2)
}


def sides(case: Case) -> frozenset[str]:
    """The sides of thresholds on which a split is, and whether its outputs are whole vectors."""
    written = [piece for piece in case.geometry.pieces if piece.run_bytes]
    sizes = {
        "rows": {loop.size for piece in written for loop in piece.loops},
        "width": {piece.run_bytes for piece in written},
        "outputs": {len(written)},
    }
    limits = {name: around(*numbers) for name, numbers in THRESHOLDS.items()}
    near = {f"{name} {size}" for name in sizes for size in sizes[name].intersection(limits[name])}
    return frozenset({*near, f"whole {written[0].total_bytes % VECTOR == 0}"})


def sweep(
    is_fine: bool,
    scope: Iterable[Callable[[bool], Iterable[Case]]] = SCOPE,
    are: tuple[bool, bool] = SMALL,
    most_bytes: int = MAX_BYTES,
) -> Iterator[Run]:
    """Every split of the scope, planned for all alignments, the smallest ones first."""
    drawn = (case for cases in scope for case in cases(is_fine))
    cases = sorted(drawn, key=lambda case: case.geometry.total_bytes)
    with numbers(*are):
        for case in cases:
            if not 0 < case.geometry.total_bytes <= most_bytes:
                continue
            known = sides(case)
            for pair in product(ALIGNMENTS, repeat=2):
                planned = replace(case)
                launches = planner.plan(case.geometry, *pair, H200.limits)
                planned.__dict__.update(geometry=case.geometry, launches=launches)
                is_pair = frozenset({f"aligned {pair}"} if is_fine else ())
                yield Run(planned, pair, known | is_pair)


Reached = dict[Form, set[str]]


def chosen(runs: Iterable[Run], classes: Classes = COARSE) -> tuple[Reached, list[Case], Reached]:
    """What each form must reach, splits of as few specializations as do so, and what they reach."""
    specializations: dict[Form, dict[str, dict[tuple[Any, Any], Run]]] = {}
    required: Reached = {}
    for run in runs:
        for launch in run.case.launches:
            form = form_of(launch, classes)
            alike = specializations.setdefault(form, {}).setdefault(launch.code.source, {})
            if alike.setdefault((run.alignments, run.sides), run) is run:
                required.setdefault(form, set()).update(run.reached)
    covered: Reached = {form: set() for form in required}
    cases = []
    for form, sources in specializations.items():
        for alike in sorted(sources.values(), key=len, reverse=True):
            for run in alike.values():
                if run.reached <= covered[form]:
                    continue
                for case, reached in run.at_addresses():
                    if not reached <= covered[form]:
                        cases.append(case)
                        for launch in case.launches:
                            covered[form_of(launch, classes)] |= reached
    return required, cases, covered


def distinct(cases: Mapping[str, Case]) -> list[str]:
    """The names of cases that have a form which none before them has."""
    known: set[Form] = set()
    names = []
    for name, case in cases.items():
        own = {form_of(launch) for launch in case.launches}
        if not own <= known:
            names.append(name)
        known |= own
    return names
