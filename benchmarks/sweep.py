"""Ten families of splits over sizes from 1 MiB to 1 GiB, at aligned and at odd addresses.

A user's size is never that of a workload: blocks that suit the workloads may leave a tail, or
too few bytes in flight, at sizes between them. `benchmarks model --sweep` predicts all of them
for some GPUs (prediction.py), and `benchmarks gpu --sweep` measures them on one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import gt
from pathlib import Path

from tqdm import tqdm

from benchmarks import prediction
from benchmarks.cases import SWEEP, Case
from dmlsplit.backends.cuda.launch import VECTOR
from dmlsplit.backends.cuda.occupancy import RESERVED, resident_blocks
from dmlsplit.backends.cuda.planner import KernelLaunch, plan
from tests.sass import launch as sass
from tests.sass.split_memory import ALIGNMENT

# Every power of two, and three sizes between each and the next.
SIZES = tuple(round(2 ** (20 + quarter / 4)) for quarter in range(41))
PLACEMENTS = ("aligned", "odd")
LARGE = 64 << 20
# The least predicted fractions, below which a cell is an exception, in all sizes and in large ones.
LEAST, MIN_LARGE = 0.85, 0.9
SAMPLED = 8  # blocks of a launch that run, besides the first and the last


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


def predict(folder: Path, families: Sequence[Family] = FAMILIES) -> Iterator[Predicted]:
    """All rows of the sweep; `folder` keeps compiled programs."""
    combined = [(family, placement) for family in families for placement in PLACEMENTS]
    for family, placement in tqdm(combined, leave=False, disable=None):
        count = _counter(folder)
        # The largest come first, because their blocks are typical of those of their program.
        splits = [family.case(size, placement) for size in reversed(SIZES)]
        for gpu in prediction.GPUS:
            cells = [_cell(case, gpu, count) for case in splits][::-1]
            fractions = tuple(round(fraction, 3) for fraction, _ in cells)
            causes = tuple(cause for _, cause in cells)
            yield Predicted(family.name, placement, gpu.name, fractions, causes)


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


_Counts = tuple[prediction.Executed, int, int, int]
_Counter = Callable[[Case, KernelLaunch], _Counts]


def _counter(folder: Path) -> _Counter:
    """A function that counts what a program's launches execute, and what a thread and block hold.

    Launches of the same program with blocks of about the same size execute about the same.
    """
    known: dict[tuple[str, int, int], _Counts] = {}

    def count(case: Case, launch: KernelLaunch) -> _Counts:
        key = launch.code.source, launch.threads, (launch.total_bytes // launch.grid).bit_length()
        if key not in known:
            known[key] = _counted(case, launch, folder)
        return known[key]

    return count


def _counted(case: Case, launch: KernelLaunch, folder: Path) -> _Counts:
    code = sass.compiled(launch.code.source, folder)
    src, dst = case.misaligned
    blocks = sass.sampled(launch.grid, SAMPLED)
    counts = sass.run(case.geometry, launch, code, blocks, src % ALIGNMENT, dst % ALIGNMENT)
    in_flight = min(launch.bytes_in_flight, code.listing.bytes_in_flight()) * launch.threads
    shared_bytes = max(0, code.resources.shared_bytes - RESERVED)
    return executed(counts), code.resources.registers, shared_bytes, in_flight


def executed(counts: sass.Counts) -> prediction.Executed:
    """What the formula uses of the counts."""
    return prediction.Executed(
        issue=counts.issue,
        sectors=counts.load_sectors,
        alu=counts.alu,
        imad=counts.imad,
        wavefronts=counts.global_wavefronts + counts.shared_wavefronts,
    )


def _cell(case: Case, gpu: prediction.Gpu, count: _Counter) -> tuple[float, str]:
    """The fraction of a copy's speed, and what costs most."""
    work, taken = case.moved_bytes / case.total_bytes, []
    for launch in plan(case.geometry, *case.alignments, gpu.limits):
        one, registers, shared_bytes, in_flight = count(case, launch)
        resident = resident_blocks(gpu.limits, launch.threads, registers, shared_bytes)
        blocks = prediction.Blocks(launch.grid, resident, in_flight, launch.total_bytes)
        taken.append(prediction.launch_clocks(gpu, one, blocks, work))
    copy = prediction.copy_clocks(gpu, case.moved_bytes)
    longest = max(taken, key=lambda clocks: clocks.total)
    return min(1.0, copy / sum(clocks.total for clocks in taken)), longest.cause
