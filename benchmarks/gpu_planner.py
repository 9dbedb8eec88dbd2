"""`python -m benchmarks gpu --planner`: what the planner could not know without a GPU.

Each threshold of dmlsplit/backends/cuda/planner/estimates.py decides between two forms of a kernel.
Splits on both sides of it are planned in both forms, checked byte by byte, and timed alternately
with a copy. The table has the fraction of the copy's speed that each form reaches, by the quantity
that the threshold is about, so the threshold belongs where the faster form changes.

Below it is a second table, of L2 policies (l2_policies.py).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import gcd, lcm
from types import ModuleType
from typing import Any
from unittest.mock import patch

from benchmarks.cases import CASES, Case
from dmlsplit.backends.cuda import planner
from dmlsplit.backends.cuda.launch import VECTOR
from dmlsplit.backends.cuda.planner import forms, rows, strided, transpose

TOTAL_BYTES = 256 << 20
MANY = 1 << 30
# The least units of a row with edges, which must be longer than two items of 16 bytes.
LEAST_EDGED = 33


@dataclass(frozen=True, slots=True)
class Threshold:
    """An estimate, the module that reads it, and two values that choose either form everywhere.

    `cells` are splits by the quantity that is compared with the threshold.
    """

    name: str
    module: ModuleType
    forms: Mapping[str, float]
    cells: Callable[[], Iterator[tuple[float, Case]]]

    def choosing(self, form: str) -> AbstractContextManager[Any]:
        """Plans in this form, while the context lasts."""
        return patch.object(self.module, self.name, self.forms[form])


@dataclass(frozen=True, slots=True)
class Cell:
    """How fast each form copies a split, as fractions of a copy's speed, or why it does not."""

    threshold: str
    at: float
    case: str
    fractions: dict[str, float | str]

    def __str__(self) -> str:
        columns = "".join(
            f"{form:>12} {value:.3f}" if isinstance(value, float) else f"{form:>12} {value}"
            for form, value in self.fractions.items()
        )
        return f"{self.threshold:<16}{self.at:>8.3g}  {self.case:<34}{columns}"


def packed(name: str, unit: int, sizes: tuple[int, ...], is_odd: bool = False) -> Case:
    """Rows of outputs; `sizes` are in units."""
    shape = TOTAL_BYTES // (sum(sizes) * unit), sum(sizes)
    place = (unit, 3 * unit) if is_odd else (0, 0)
    full = f"{name}{', odd' if is_odd else ''}"
    return Case(full, CASES, shape, f"u{unit}", 1, sizes, misaligned=place)


def strided_bytes(units: int) -> Case:
    """Every second byte of odd rows."""
    shape, strides = (TOTAL_BYTES // units, units), (2 * units + 1, 2)
    name = f"rows of {units} bytes, two apart"
    return Case(name, CASES, shape, "u1", 1, (units,), strides=strides)


def wide_cells() -> Iterator[tuple[float, Case]]:
    """Eight outputs each, around the width at which `rows` should take over from `tile`."""
    for unit in (1, 2, 4):
        for bytes_ in (48, 72, 96, 120, 160):
            width = bytes_ // unit + 1
            for is_odd in (False, True):
                yield width * unit, packed(f"8 x {width * unit} bytes", unit, (width,) * 8, is_odd)


def filled_cells() -> Iterator[tuple[float, Case]]:
    """Rows of elements, and the share of a tile that they fill."""
    for count in (20, 36, 44, 52, 76):
        allowed = [tile for tile in transpose.tiles(4) if tile.down >= count]
        plane = transpose.Plane(count, TOTAL_BYTES // 4 // count, 0, 4 * count)
        fill = transpose.best_tile(allowed, [plane]).fill([plane])
        yield round(fill, 2), packed(f"{count} x 1 float", 4, (1,) * count)


def window_cells(widths: tuple[tuple[int, int], ...], is_odd: bool) -> Iterator[tuple[float, Case]]:
    """Outputs of equal elements, and the vectors of the window that fills them."""
    for unit, count in widths:
        element = gcd(unit, VECTOR)
        sizes = (unit // element,) * count
        vectors = lcm(unit, VECTOR) * count // VECTOR
        yield vectors, packed(f"{count} x {unit} bytes", element, sizes, is_odd)


THRESHOLDS = (
    Threshold("WIDE_BYTES", planner, {"rows": 0, "tile": MANY}, wide_cells),
    Threshold(
        "FEW_OUTPUTS",
        rows,
        {"division": 0, "search": MANY},
        lambda: ((n, packed(f"{n} x 4 KiB", 2, (2048,) * n)) for n in (4, 8, 16, 32)),
    ),
    Threshold(
        "MIN_EDGED_UNITS",
        forms,
        {"vectors": LEAST_EDGED, "units": MANY},
        lambda: ((n, strided_bytes(n)) for n in (35, 49, 67, 131)),
    ),
    Threshold(
        "MAX_DIRECT",
        strided,
        {"window": MANY, "other": 0},
        lambda: window_cells(((4, 3), (4, 5), (4, 8)), is_odd=False),
    ),
    Threshold(
        "MAX_STAGED",
        strided,
        {"window": MANY, "other": 0},
        lambda: window_cells(((3, 3), (3, 5), (3, 7)), is_odd=True),
    ),
    Threshold("MIN_FILL", transpose, {"transpose": 0, "tile": 2}, filled_cells),
)


def cells(speed: Callable[[Case], float], only: str = "") -> Iterator[Cell]:
    """Every cell in both forms; `speed` checks and times a split, as a fraction of a copy's."""
    for threshold in THRESHOLDS:
        for at, case in threshold.cells():
            if only in case.name:
                fractions = {form: _speed(threshold, form, case, speed) for form in threshold.forms}
                yield Cell(threshold.name, at, case.name, fractions)


def _speed(
    threshold: Threshold, form: str, case: Case, speed: Callable[[Case], float]
) -> float | str:
    with threshold.choosing(form):
        try:
            return speed(case)
        except Exception as error:
            return f"failed: {error}"
