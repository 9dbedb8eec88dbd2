"""The forms of a launch that the planner can choose, and a small scope that reaches all of them.

A form is what selects a specialization: the constants of a kernel, and the types of its parameters.
(What arguments select is a path: paths.py.) A sweep of small splits, below, on and above the
planner's thresholds, is planned for all alignments of input and outputs. `chosen` selects splits
that execute each form at each address modulo 16 that its constants allow, and on each side of each
threshold.
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
from dmlsplit.backends.cuda.launch import VECTOR, KernelLaunch
from dmlsplit.backends.cuda.planner import forms, strided, transpose
from dmlsplit.backends.cuda.planner import rows as rows_planner
from dmlsplit.backends.cuda.specialization import COUNT_64
from dmlsplit.geometry import ceil_div
from tests.support.kernel_cases import Case, with_launches

ALIGNMENTS = (1, 2, 4, 8, 16)
MAX_BYTES = 1 << 15
THRESHOLDS = {
    "rows": (forms.MIN_EDGED_UNITS,),
    "width": (VECTOR, planner.WIDE_BYTES),
    "outputs": (rows_planner.FEW_OUTPUTS,),
}


class Numbers(NamedTuple):
    """Which numbers need 64 bits. Small splits are planned as if they did."""

    are_large: bool = False  # of items: 2^30 and more
    are_far: bool = False  # strides and places: beyond 2^31


SMALL_NUMBERS = Numbers()
LARGE_NUMBERS = Numbers(True, False), Numbers(False, True), Numbers(True, True)


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
    **dict.fromkeys("kAligned kOneRow kEqual kPartBytes kPadded kWide kPointers".split(), int),
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
    values: dict[str, Any] = {
        constant.name: constant.value for constant in launch.code.own_constants
    }
    values |= {f"type of {member.name}": member.type for member in launch.code.members}
    constants = ((name, classes[name](values[name])) for name in values if name in classes)
    return Form(launch.code.kernel, tuple(constants))


def alignments_of(launch: KernelLaunch) -> tuple[int, int]:
    """What divides the addresses of the input and of each output, as the constants promise."""
    values = {constant.name: constant.value for constant in launch.code.own_constants}
    match launch.code.kernel:
        case "rows":
            return (VECTOR, VECTOR) if values["kAligned"] else (1, 1)
        case "tile":
            return values["kPartBytes"], values["kPartBytes"]
        case "transpose":
            output = VECTOR if values["kOutputAligned"] else values["kUnit"]
            return max(values["kUnit"], values["kInputAlign"]), output
    if values["kStagedAlign"]:
        return 1, values["kStagedAlign"]
    # Several channels and rows without leads begin at multiples of an item.
    is_item = values["kChannels"] > 1 or not values["kLeads"]
    return values["kUnit"], values["kItemBytes"] if is_item else values["kUnit"]


def allowed(launch: KernelLaunch) -> set[str]:
    """The addresses modulo 16 at which a launch with such constants may run."""
    alignments = zip(("input", "output"), alignments_of(launch), strict=True)
    return {f"{name} {n}" for name, step in alignments for n in range(0, VECTOR, step)}


@contextmanager
def planned_as_for(numbers: Numbers) -> Iterator[None]:
    """Plans as if a split had these numbers."""
    with ExitStack() as stack:
        if numbers.are_large:
            stack.enter_context(patch.object(strided, "SMALL", 1))
        if numbers.are_far:
            stack.enter_context(patch.object(strided, "FAR", 0))
            stack.enter_context(patch.object(rows_planner, "index_type", lambda largest: COUNT_64))
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


def uneven(_: bool) -> Iterator[Case]:
    """Strides that are less aligned than addresses: of lines, and of rows with and without gaps."""
    for unit, gap, across in product(ALIGNMENTS[:4], (0, 2, 3, 4), (9, 16)):
        yield Case((16, across), (16,), 0, unit, (1, 16 + gap))
    for unit, pitch in product(ALIGNMENTS[:3], (67, 80)):
        strides = ((pitch, 1),) * 2
        yield Case((3, 128), (64, 64), -1, unit, (131, 1), strides)
    for unit in ALIGNMENTS[:3]:
        yield Case((257, 2), (1, 1), -1, unit)
        yield Case((257, 63), (1, 20, 42), -1, unit)


SCOPE = packed, nested, transposed, uneven


class Run(NamedTuple):
    """A split, planned for alignments of its addresses."""

    case: Case
    alignments: tuple[int, int]
    sides: frozenset[str]  # of thresholds

    def at_addresses(self) -> Iterator[Case]:
        """The split at every address of its alignments.

        The first output has no other alignment; others may be more aligned.
        """
        sources, first = map(residues, self.alignments)
        other_phases = range(0, VECTOR, self.alignments[1])
        count = len(self.case.sizes) - 1
        turns = max(len(sources), len(first), ceil_div(len(other_phases), count) if count else 0)
        for turn in range(turns):
            phases = (other_phases[(turn * count + n) % len(other_phases)] for n in range(count))
            addresses = sources[turn % len(sources)], first[turn % len(first)], *phases
            yield with_launches(replace(self.case, misaligned=addresses), self.case.launches)

    @property
    def reached(self) -> set[str]:
        """What it reaches at all of them."""
        step = self.alignments[1]
        other_phases = range(0, VECTOR, step) if len(self.case.sizes) > 1 else ()
        return {*self.sides, *_PLACES[self.alignments], *(f"output {n}" for n in other_phases)}

    def reached_at(self, case: Case, launch: KernelLaunch) -> set[str]:
        """What a launch reaches at the addresses of `case`."""
        outputs = {f"output {case.output_phases[n]}" for n in launch.outputs}
        return {*self.sides, f"input {case.misaligned[0]}", *outputs}


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
    written_pieces = [piece for piece in case.geometry.pieces if piece.run_bytes]
    sizes = {
        "rows": {loop.size for piece in written_pieces for loop in piece.loops},
        "width": {piece.run_bytes for piece in written_pieces},
        "outputs": {len(written_pieces)},
    }
    limits = {name: around(*values) for name, values in THRESHOLDS.items()}
    near = {f"{name} {size}" for name in sizes for size in sizes[name].intersection(limits[name])}
    return frozenset({*near, f"whole {written_pieces[0].total_bytes % VECTOR == 0}"})


def sweep(
    is_fine: bool,
    scope: Iterable[Callable[[bool], Iterable[Case]]] = SCOPE,
    numbers: Numbers = SMALL_NUMBERS,
    most_bytes: int = MAX_BYTES,
) -> Iterator[Run]:
    """Every split of the scope, planned for all alignments, the smallest ones first."""
    scope_cases = (case for cases in scope for case in cases(is_fine))
    cases = sorted(scope_cases, key=lambda case: case.geometry.total_bytes)
    with planned_as_for(numbers):
        for case in cases:
            if not 0 < case.geometry.total_bytes <= most_bytes:
                continue
            case_sides = sides(case)
            for pair in product(ALIGNMENTS, repeat=2):
                planned_case = replace(case)
                launches = planner.plan(case.geometry, *pair, H200.limits)
                planned_case.__dict__.update(geometry=case.geometry, launches=launches)
                is_pair = frozenset({f"aligned {pair}"} if is_fine else ())
                yield Run(planned_case, pair, case_sides | is_pair)


Sides = dict[Form, set[str]]


class Scope(NamedTuple):
    """Splits that reach what each form must."""

    required_sides: Sides  # of thresholds, and addresses
    cases: list[Case]
    covered_sides: Sides


def chosen(runs: Iterable[Run], classes: Classes = COARSE) -> Scope:
    """Splits of as few specializations as reach what every form of these runs must."""
    specializations: dict[Form, dict[str, dict[tuple[Any, Any], Run]]] = {}
    required_sides: Sides = {}
    for run in runs:
        for launch in run.case.launches:
            form = form_of(launch, classes)
            alike = specializations.setdefault(form, {}).setdefault(launch.code.source, {})
            if alike.setdefault((run.alignments, run.sides), run) is run:
                # Some of the finer forms are planned for some alignments only: units of one byte in
                # items of two, for example, for odd addresses.
                places = allowed(launch) if classes is COARSE else allowed(launch) & run.reached
                required_sides.setdefault(form, set()).update(run.sides, places)
    covered_sides: Sides = {form: set() for form in required_sides}
    cases = []
    for form, sources in specializations.items():
        for alike in sorted(sources.values(), key=len, reverse=True):
            for run in alike.values():
                if run.reached & required_sides[form] <= covered_sides[form]:
                    continue
                for case in run.at_addresses():
                    reached = [
                        (form_of(launch, classes), run.reached_at(case, launch))
                        for launch in case.launches
                    ]
                    if any(
                        launch_form == form and not new <= covered_sides[form]
                        for launch_form, new in reached
                    ):
                        cases.append(case)
                        for launch_form, new in reached:
                            covered_sides[launch_form] |= new
    return Scope(required_sides, cases, covered_sides)


def distinct(cases: Mapping[str, Case]) -> list[str]:
    """The names of cases that have a form which none before them has."""
    known_forms: set[Form] = set()
    names = []
    for name, case in cases.items():
        case_forms = {form_of(launch) for launch in case.launches}
        if not case_forms <= known_forms:
            names.append(name)
        known_forms |= case_forms
    return names
