"""Ten families of splits over sizes from 1 MiB to 1 GiB, at aligned and at odd addresses.

A user's size is never that of a workload: blocks that suit the workloads may leave a tail, or
too few bytes in flight, at sizes between them. `tests.counts.model --sweep` predicts all of
them for some GPUs, and `benchmarks gpu --sweep` measures them on one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from operator import gt

from benchmarks.cases import SWEEP, Case
from dmlsplit.backends.cuda.launch import VECTOR

# Every power of two, and three sizes between each and the next.
SIZES = tuple(round(2 ** (20 + quarter / 4)) for quarter in range(41))
PLACEMENTS = ("aligned", "odd")
LARGE = 64 << 20
# The least predicted fractions, below which a cell is an exception, in all sizes and in large ones.
LEAST, MIN_LARGE = 0.85, 0.9


@dataclass(frozen=True, slots=True)
class Family:
    """Splits of any size: rows that are cut at the same columns, as many as fit the size.

    Attributes
    ----------
    name : str
    element_bytes : int
    sizes : tuple of int
        Elements of each output in a row. If it is empty, two halves of a single row.
    inner : int
        Elements of the dimension after the axis.
    is_transposed : bool
        Whether the axis is the outer dimension in memory.
    """

    name: str
    element_bytes: int
    sizes: tuple[int, ...]
    inner: int = 1
    is_transposed: bool = False

    def case(self, total_bytes: int, placement: str) -> Case:
        """The split of about this number of bytes."""
        width, sizes = self.element_bytes, self.sizes
        if not sizes:
            sizes = (total_bytes // width // 2 // VECTOR * VECTOR,) * 2
        columns = sum(sizes)
        rows = max(1, total_bytes // (columns * self.inner * width))
        if self.is_transposed:
            rows = rows // VECTOR * VECTOR  # columns of the input begin at aligned addresses
        shape = (rows, columns) if self.inner == 1 else (rows, columns, self.inner)
        strides = (width, rows * width) if self.is_transposed else None
        misaligned = (width, 3 * width) if placement == "odd" else (0, 0)
        name = f"{self.name}, {placement}, {total_bytes / 2**20:.4g} MiB"
        kind = f"u{width}"
        return Case(name, SWEEP, shape, kind, 1, sizes, total_bytes, strides, misaligned)


FAMILIES = (
    Family("2 halves, axis 0", 2, ()),
    Family("QKV", 2, (8192, 1024, 1024)),
    Family("channels 58 + 58", 2, (58, 58), 28 * 28),
    Family("8 x 301 bytes", 1, (301,) * 8),
    Family("YOLO head 85", 2, (2, 2, 1, 80)),
    Family("1000 x 8 floats", 4, (8,) * 1000),
    Family("RGB bytes", 1, (1, 1, 1)),
    Family("7 x 3 bytes", 1, (3,) * 7),
    Family("32 x 1 float", 4, (1,) * 32),
    Family("transposed floats", 4, (1024, 1024), is_transposed=True),
)


def cases() -> Iterator[Case]:
    """All splits of the sweep."""
    for family in FAMILIES:
        for placement in PLACEMENTS:
            for size in SIZES:
                yield family.case(size, placement)


@dataclass(frozen=True, slots=True)
class Predicted:
    """The predictions for a family of splits and a placement on a GPU, by size.

    Attributes
    ----------
    family, placement, gpu : str
    fractions : tuple of float
        Of a copy's speed.
    causes : tuple of str
        What costs most besides the copy itself.
    """

    family: str
    placement: str
    gpu: str
    fractions: tuple[float, ...]
    causes: tuple[str, ...]


def least(size: int) -> float:
    """The least predicted fraction that a split of this size should reach."""
    return MIN_LARGE if size >= LARGE else LEAST


def line(row: Predicted) -> str:
    """One line of the table: the worst cell below and from `LARGE`, and how many are exceptions."""
    small, large = (
        min(
            (fraction, size)
            for size, fraction in zip(SIZES, row.fractions, strict=True)
            if which(size)
        )
        for which in (LARGE.__gt__, LARGE.__le__)
    )
    missed = sum(map(gt, map(least, SIZES), row.fractions))
    return (
        f"{row.family:<18} {row.placement:<8}{row.gpu:<9}"
        f"{small[0]:>6.2f} at{mebibytes(small[1]):>9}{large[0]:>6.2f} at{mebibytes(large[1]):>9}"
        f"{missed or '':>4}"
    )


def mebibytes(size: int) -> str:
    """A size in MiB, to three digits."""
    return f"{size / 2**20:.3g} MiB" if size < 2**30 else "1 GiB"
