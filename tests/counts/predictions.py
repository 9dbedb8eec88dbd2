"""The predicted speeds of the sweep: launches run in the interpreter, and a formula."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tqdm import tqdm

from benchmarks import prediction
from benchmarks.cases import Case
from benchmarks.sweep import FAMILIES, PLACEMENTS, SIZES, Family, Predicted
from dmlsplit.backends.cuda.occupancy import RESERVED, resident_blocks
from dmlsplit.backends.cuda.planner import KernelLaunch, plan
from tests.sass import launch as sass
from tests.sass.split_memory import ALIGNMENT

SAMPLED = 8  # blocks of a launch that run, besides the first and the last


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


_Counts = tuple[prediction.Executed, int, int, int]
_Counter = Callable[[Case, KernelLaunch], _Counts]


def _counter(folder: Path) -> _Counter:
    """A function that counts what a program's launches execute, and what a thread and block hold.

    Launches of the same program with blocks of about the same size execute about the same.
    """
    counts_by_key: dict[tuple[str, int, int], _Counts] = {}

    def count(case: Case, launch: KernelLaunch) -> _Counts:
        key = launch.code.source, launch.threads, (launch.total_bytes // launch.grid).bit_length()
        if key not in counts_by_key:
            counts_by_key[key] = _counted(case, launch, folder)
        return counts_by_key[key]

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
    work, launch_clocks = case.moved_bytes / case.total_bytes, []
    for launch in plan(case.geometry, *case.alignments, gpu.limits):
        blocks_of_launch, registers, shared_bytes, in_flight = count(case, launch)
        resident = resident_blocks(gpu.limits, launch.threads, registers, shared_bytes)
        blocks = prediction.Blocks(launch.grid, resident, in_flight, launch.total_bytes)
        launch_clocks.append(prediction.launch_clocks(gpu, blocks_of_launch, blocks, work))
    copy = prediction.copy_clocks(gpu, case.moved_bytes)
    longest = max(launch_clocks, key=lambda clocks: clocks.total)
    return min(1.0, copy / sum(clocks.total for clocks in launch_clocks)), longest.cause
