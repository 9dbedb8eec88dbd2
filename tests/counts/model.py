"""`python -m tests.counts.model`: exact figures of every kernel, without a GPU.

The generated sources run on the CPU (tests/host_cuda), over blocks drawn at random from the
full-size launch, and NVRTC compiles them for one architecture. The columns count:

- *sectors*: 32-byte sectors that a block touches, over the fewest that hold its bytes.
  We assume that a block hits the L1 cache for sectors it has read before, but misses for sectors
  that other blocks have read.
- *lines*: the same for the 128-byte lines that a block writes.
- *16 B*: the share of stored bytes that 16-byte stores write.
- *instr*: a thread's loads and stores of global memory, per 16 bytes copied.
- *banks*: wavefronts of shared memory per 128 bytes copied. An SM of an H200 has about 15 cycles
  for 128 bytes, and a wavefront takes one.
- *outs*: outputs that one store of a warp writes to. Constant memory serves their addresses one by
  one.
- *KiB*: bytes in flight: those that one SM has requested from memory when as many blocks are
  resident as threads, registers and shared memory allow.

The machine code then runs in an interpreter (tests/sass), again over blocks drawn at random, and
every byte that it stores is compared. These columns count what it executes for the 512 bytes that
a warp copies, 16 per thread:

- *issue*: instructions; of them *ALU* (sums, logic, shifts, comparisons) and *IMAD*.
- *L1*, *shared*: wavefronts of global and of shared memory.
- *served*: bytes of the 32-byte sectors that the L1 cache serves to loads, for each byte copied.
- *const*: wavefronts of the constant cache, for indexed loads.
- *rows*: DRAM rows that a block writes to, for each row's worth of bytes that it writes. We assume
  rows of 2 KiB. Activating a row takes time, and so does a TLB miss for a distant one. The L2
  cache first collects what blocks write, though, so the prediction ignores both.
- *turns*: how often a block switches to another DRAM row, if its warps are interleaved.
- *H100*, *H200*, *B200*: the predicted fraction of a plain copy's speed (benchmarks/prediction.py).

All of these limit what a GPU can reach; none is a time. `--before FILE` adds what today's formula
predicts from the figures of an earlier run, whose kernels may have been others.
"""

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks import prediction, sweep
from benchmarks.cases import SWEEP, Case
from benchmarks.environment import environment
from benchmarks.results import FORMAT
from benchmarks.workloads import WORKLOADS
from dmlsplit.backends.cuda import planner
from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.occupancy import RESERVED, resident_blocks
from dmlsplit.geometry import SplitGeometry, StridedCopy
from tests.counts.predictions import executed, predict
from tests.host_cuda import harness
from tests.sass import launch as sass
from tests.sass.split_memory import ALIGNMENT
from tests.support import nvrtc

SECTOR, LINE = 32, 128
SAMPLED_BLOCKS = 64

# Bytes in flight per SM that keep the memory of an H200 busy. Source: NVIDIA's tuning of CUB.
IN_FLIGHT_BYTES = 48 << 10


@dataclass(frozen=True, slots=True)
class LaunchFigures:
    """Figures of one launch; ratios are relative to the minimum.

    Attributes
    ----------
    kernel : str
    total_bytes : int
        Bytes read, which is also the number of bytes written.
    read_ratio, write_ratio : float
        Sectors touched by blocks, over the fewest that hold the bytes they copy.
    read_line_ratio, write_line_ratio : float
        The same for lines of 128 bytes: above 1 if blocks write parts of lines.
    vector_share : float
        Share of stored bytes in 16-byte stores.
    instructions : float
        Loads and stores of a thread per 16 bytes.
    wavefronts : float
        Wavefronts of shared memory per 128 bytes copied.
    warp_outputs : float
        Outputs that one store of a warp writes to.
    registers : int
        Of one thread, as compiled.
    shared_bytes : int
        Of a block.
    grid, threads : int
        Blocks, and threads of a block.
    resident : int
        Blocks per SM.
    in_flight : int
        Bytes per SM.
    executed : sass.Counts
        What the machine code executes.
    """

    kernel: str
    total_bytes: int
    read_ratio: float
    write_ratio: float
    read_line_ratio: float
    write_line_ratio: float
    vector_share: float
    instructions: float
    wavefronts: float
    warp_outputs: float
    registers: int
    shared_bytes: int
    grid: int
    threads: int
    resident: int
    in_flight: int
    executed: sass.Counts

    def blocks_on(self, gpu: prediction.Gpu) -> prediction.Blocks:
        """The blocks of the launch on a GPU, with the registers that sm_90 needs."""
        resident = resident_blocks(gpu.limits, self.threads, self.registers, self.shared_bytes)
        own_bytes = self.in_flight // self.resident
        return prediction.Blocks(self.grid, resident, own_bytes, self.total_bytes)


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one workload: its launches, and their sum weighted by bytes.

    `predicted` has the fraction of a plain copy's speed for each GPU by name.
    """

    number: int
    name: str
    total_bytes: int
    moved_bytes: int
    launches: tuple[LaunchFigures, ...]
    predicted: dict[str, float]

    def mean(self, field: str) -> float:
        """A ratio or share for all launches together."""
        return _mean(self.launches, lambda launch: getattr(launch, field))

    def executed(self, field: str) -> float:
        """The instructions of all launches together, per warp and 512 bytes."""
        return _mean(self.launches, lambda launch: getattr(launch.executed, field))

    def steady(self, gpu: prediction.Gpu) -> float:
        """The predicted fraction of a copy's speed while memory is busy."""
        work = self.moved_bytes / self.total_bytes
        return 1 / _mean(
            self.launches,
            lambda launch: 1 / prediction.steady(gpu, executed(launch.executed), work),
        )

    @property
    def largest(self) -> LaunchFigures:
        """The launch that copies the most bytes."""
        return max(self.launches, key=lambda launch: launch.total_bytes)


def _mean(launches: Sequence[LaunchFigures], figure: Callable[[LaunchFigures], float]) -> float:
    parts = sum(figure(launch) * launch.total_bytes for launch in launches)
    return parts / sum(launch.total_bytes for launch in launches)


def rows(workloads: Sequence[Case], folder: Path) -> Iterator[Figures]:
    """The figures of each workload in order; `folder` keeps the compiled programs."""
    geometries = [workload.geometry for workload in workloads]
    plans = [
        planner.plan(geometry, *workload.alignments, H200.limits)
        for workload, geometry in zip(workloads, geometries, strict=True)
    ]
    sources = [launch.code.source for launches in plans for launch in launches]
    programs = harness.build(sources, folder, harness.COUNTING)

    def figures(index: int) -> Figures:
        workload = workloads[index]
        launches = tuple(
            launch_figures(workload, geometries[index], launch, programs[launch.code.source])
            for launch in plans[index]
        )
        total = geometries[index].total_bytes
        fractions = predicted(launches, workload.moved_bytes, total)
        number, _, name = workload.name.partition(" ")
        return Figures(int(number), name, total, workload.moved_bytes, launches, fractions)

    with ThreadPoolExecutor(harness.COMPILERS) as pool:
        yield from pool.map(figures, range(len(workloads)))


def launch_figures(
    case: Case, geometry: SplitGeometry, launch: planner.KernelLaunch, program: harness.Program
) -> LaunchFigures:
    """Run a sample of a launch's blocks on the CPU, compile it, and work out its figures."""
    src, dst = case.misaligned
    starts = case.output_starts
    phases = [(dst + starts[output]) % ALIGNMENT for output in launch.outputs]
    buffers = [harness.Buffer(case.span_bytes, misalignment=src)]
    buffers += [
        harness.Buffer(written_span(geometry.pieces[output]), misalignment=phase)
        for output, phase in zip(launch.outputs, phases, strict=True)
    ]
    blocks = sampled(launch.grid)
    counts = program.run(
        launch.grid, launch.threads, buffers, blocks, True, launch.argument_bytes
    ).counts
    code = sass.compiled(launch.code.source, program.path.parent)
    resources = code.resources
    shared = max(0, resources.shared_bytes - RESERVED)
    resident = resident_blocks(H200.limits, launch.threads, resources.registers, shared)
    in_flight = min(launch.bytes_in_flight, code.listing.bytes_in_flight())
    copied_bytes = counts.store_bytes
    read_bytes = copied_bytes * case.read_bytes / case.total_bytes
    return LaunchFigures(
        kernel=launch.code.kernel,
        total_bytes=launch.total_bytes,
        read_ratio=counts.load_block_sectors * SECTOR / read_bytes,
        write_ratio=counts.store_block_sectors * SECTOR / copied_bytes,
        read_line_ratio=counts.load_block_lines * LINE / read_bytes,
        write_line_ratio=counts.store_block_lines * LINE / copied_bytes,
        vector_share=counts.store_bytes_16 / copied_bytes,
        instructions=(counts.load_instructions + counts.store_instructions) * 16 / copied_bytes,
        wavefronts=counts.shared_wavefronts * LINE / copied_bytes,
        warp_outputs=counts.store_request_targets / counts.store_requests,
        registers=resources.registers,
        shared_bytes=shared,
        grid=launch.grid,
        threads=launch.threads,
        resident=resident,
        in_flight=in_flight * launch.threads * resident,
        executed=sass.run(geometry, launch, code, sass.sampled(launch.grid), src, phases),
    )


def written_span(piece: StridedCopy) -> int:
    """The bytes of an output from its first element to its end, gaps included."""
    return piece.run_bytes + sum((loop.size - 1) * loop.output_stride for loop in piece.loops)


def predicted(
    launches: Sequence[LaunchFigures], moved_bytes: float, total_bytes: int
) -> dict[str, float]:
    """The fraction of a copy's speed that the formula predicts for each GPU.

    `moved_bytes` are those of the copy, `total_bytes` those of all launches.
    """
    return {
        gpu.name: prediction.fraction(
            gpu,
            [(executed(launch.executed), launch.blocks_on(gpu)) for launch in launches],
            moved_bytes,
            moved_bytes / total_bytes,
        )
        for gpu in prediction.GPUS
    }


def earlier(path: Path) -> dict[str, dict[str, float]]:
    """The fractions that the formula predicts from a file of figures, by workload and GPU."""

    def launch(figures: dict[str, Any]) -> LaunchFigures:
        return LaunchFigures(**{**figures, "executed": sass.Counts(**figures["executed"])})

    return {
        row["name"]: predicted(
            [*map(launch, row["launches"])], row["moved_bytes"], row["total_bytes"]
        )
        for row in json.loads(path.read_text())["workloads"]
    }


def sampled(grid: int) -> list[int]:
    """The first, the last and some blocks between, the same ones every time."""
    if grid <= SAMPLED_BLOCKS:
        return list(range(grid))
    draw = random.Random(grid).sample(range(1, grid - 1), SAMPLED_BLOCKS - 2)
    return [0, *sorted(draw), grid - 1]


HEADER = (
    f"{'#':>2} {'workload':<24}{'MB':>6} {'kernels':<16}{'read':>6}{'written':>8}{'lines':>6}"
    f"{'16 B':>7}{'instr':>6}{'banks':>6}{'outs':>5}{'regs':>5}{'KiB':>5}"
    f"{'issue':>7}{'ALU':>6}{'IMAD':>6}{'L1':>6}{'shared':>7}{'const':>6}{'served':>7}"
    f"{'rows':>6}{'turns':>6}"
) + "".join(f"{gpu.name:>6}" for gpu in prediction.GPUS)


def line(figures: Figures, before: Iterable[float] = ()) -> str:
    """One line of the table; registers and bytes in flight are the largest launch's.

    `before` are the fractions of an earlier run.
    """
    kernels = sorted({launch.kernel for launch in figures.launches})
    names = f"{'+'.join(kernels)} x{len(figures.launches)}"
    mean, executed_of = figures.mean, figures.executed
    return (
        f"{figures.number:>2} {figures.name:<24}{figures.total_bytes / 1e6:>6.0f} {names:<16}"
        f"{mean('read_ratio'):>6.3f}{mean('write_ratio'):>8.3f}{mean('write_line_ratio'):>6.2f}"
        f"{mean('vector_share'):>7.1%}{mean('instructions'):>6.2f}{mean('wavefronts'):>6.2f}"
        f"{mean('warp_outputs'):>5.2f}{figures.largest.registers:>5}"
        f"{figures.largest.in_flight / 1024:>5.0f}"
        f"{executed_of('issue'):>7.1f}{executed_of('alu'):>6.1f}{executed_of('imad'):>6.1f}"
        f"{executed_of('global_wavefronts'):>6.1f}{executed_of('shared_wavefronts'):>7.1f}"
        f"{executed_of('constant_wavefronts'):>6.1f}{executed_of('served'):>7.2f}"
        f"{executed_of('stored_rows'):>6.1f}{executed_of('row_turns'):>6.1f}"
    ) + "".join(f"{fraction:>6.2f}" for fraction in (*figures.predicted.values(), *before))


def main(argv: Sequence[str]) -> int:
    """Print the table; with ``--json FILE``, write the figures as well."""
    parser = argparse.ArgumentParser(prog="python -m tests.counts.model", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    parser.add_argument("--only", default="", help="only cases whose name contains this text")
    parser.add_argument(
        "--sweep",
        action="store_true",
        help="instead, ten families of splits, 1 MiB to 1 GiB, on six GPUs",
    )
    parser.add_argument(
        "--before", type=Path, metavar="FILE", help="compare with the figures of an earlier run"
    )
    options = parser.parse_args(argv)
    lacking = harness.missing() or nvrtc.missing()
    if lacking:
        parser.error(lacking)
    with tempfile.TemporaryDirectory() as folder:
        builds = Path(folder)
        report = (
            _sweep(options.only, builds)
            if options.sweep
            else _workloads(options.only, builds, earlier(options.before) if options.before else {})
        )
    if not report:
        parser.error(f"no case's name contains {options.only!r}")
    if options.json:
        head = {
            "environment": environment(list(argv), with_gpu=False, module="tests.counts.model"),
            "arch": sass.ARCH,
        }
        options.json.write_text(json_text({**head, **report}))
    return 0


def _workloads(
    only: str, folder: Path, before: Mapping[str, Mapping[str, float]]
) -> dict[str, Any]:
    """Print the table of workloads; return their figures."""
    workloads = [workload for workload in WORKLOADS if only in workload.name]
    figures = []
    print(HEADER + "".join(f"{gpu.name:>6}" for gpu in prediction.GPUS) * bool(before))
    for row_figures in tqdm(
        rows(workloads, folder), total=len(workloads), leave=False, disable=None
    ):
        tqdm.write(line(row_figures, before.get(row_figures.name, {}).values()))
        figures.append(asdict(row_figures))
    return {"workloads": figures} if figures else {}


def _sweep(only: str, folder: Path) -> dict[str, Any]:
    """Print the worst cells of the sweep; return all of them."""
    families = [family for family in sweep.FAMILIES if only in family.name]
    cells = []
    for row in predict(folder, families):
        tqdm.write(sweep.line(row))
        cells.append(asdict(row))
    head = {"format": FORMAT, "kind": SWEEP, "resumed": [], "after": None, "sizes": sweep.SIZES}
    return {**head, "rows": cells} if cells else {}


def json_text(document: dict[str, Any]) -> str:
    """A document as JSON, with one line per row of a sweep."""
    rows = document.get("rows")
    if rows is None:
        return json.dumps(document, indent=1) + "\n"
    lines = ",\n  ".join(map(json.dumps, rows))
    return json.dumps({**document, "rows": []}, indent=1)[:-3] + f"\n  {lines}\n ]\n}}\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
