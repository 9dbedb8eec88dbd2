"""Run a launch of a split, or some of its blocks, and count its work."""

import random
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from dmlsplit.backends.cuda.launch import KernelLaunch
from dmlsplit.geometry import SplitGeometry
from tests.sass import listing, opcodes
from tests.sass.listing import Listing
from tests.sass.machine import Machine
from tests.sass.opcodes import Pipe
from tests.sass.split_memory import ROW_BYTES, SplitMemory
from tests.sass.threads import SassError, Threads
from tests.support import nvrtc

ARCH = "sm_90"
PARAMETERS_AT = 0x210  # in constant bank 0, since sm_90
WARPS_AT_ONCE = 64  # as many as fit a CPU's cache
SAMPLED = 30


@dataclass(frozen=True)
class Code:
    """Compiled code: its instructions, its constants, and the resources of a thread or block."""

    listing: Listing
    banks: dict[int, bytes]
    resources: nvrtc.Resources

    def banks_for(self, parameters: bytes, grid: int, block: int) -> dict[int, bytes]:
        """The constant banks: bank 0 has the launch's shape and parameters."""
        filled = bytearray(self.banks.get(0, b"").ljust(PARAMETERS_AT + len(parameters), b"\0"))
        struct.pack_into("<6I", filled, 0, block, 1, 1, grid, 1, 1)
        filled[PARAMETERS_AT : PARAMETERS_AT + len(parameters)] = parameters
        return self.banks | {0: bytes(filled)}


@dataclass(frozen=True)
class Counts:
    """The work of counted blocks, per warp and 512 stored bytes, which are 16 per thread.

    Attributes
    ----------
    issue : float
        Instructions issued.
    alu, imad, lsu, uniform, other : float
        The same, by the pipe that executes them.
    loads, stores : float
        Of global memory.
    load_bytes : float
        Loaded for each byte stored.
    load_sectors : float
        Of 32 bytes, that the L1 cache serves to loads: those that each load of a warp touches.
    global_wavefronts, shared_wavefronts, constant_wavefronts : float
        Passes through the L1 cache's data, shared memory, and the constant cache.
    stored_rows, row_turns : float
        DRAM rows (`ROW_BYTES`) that a block stores to, and how often it switches to another one,
        for as many stored bytes as a row has.
    stored_bytes : int
    """

    issue: float
    alu: float
    imad: float
    lsu: float
    uniform: float
    other: float
    loads: float
    stores: float
    load_bytes: float
    load_sectors: float
    global_wavefronts: float
    shared_wavefronts: float
    constant_wavefronts: float
    stored_rows: float
    row_turns: float
    stored_bytes: int

    @property
    def served(self) -> float:
        """Bytes of sectors that the L1 cache serves to loads, for each byte stored."""
        return self.load_sectors * 32 / 512


@lru_cache(maxsize=64)
def compiled(source: str, folder: Path) -> Code:
    """The machine code of a source, kept in a folder of `builds`."""
    (text,) = disassemble([source], folder)
    cubin = nvrtc.compile_cubin(source, ARCH, folder)
    return Code(listing.parse(text), listing.constant_banks(cubin), nvrtc.resources(cubin, folder))


def disassemble(sources: Iterable[str], folder: Path) -> list[str]:
    """The listings of sources. Later calls of `compiled` with one of these take less time."""
    cubins = (nvrtc.compile_cubin(source, ARCH, folder) for source in sources)
    return nvrtc.disassemble(map(listing.code, cubins), ARCH, folder)


def sampled(grid: int, between: int = SAMPLED) -> list[int]:
    """The first block, the last, and some in between, the same ones every time."""
    if grid <= between + 2:
        return list(range(grid))
    draw = random.Random(grid).sample(range(1, grid - 1), between)
    return [0, *sorted(draw), grid - 1]


def run(
    geometry: SplitGeometry,
    launch: KernelLaunch,
    code: Code,
    blocks: Sequence[int],
    input_phase: int = 0,
    output_phases: int | Sequence[int] = 0,
    counting: bool = True,
) -> Counts:
    """Run blocks of a launch, check every byte that they store, and return their counts.

    The first and the last block may be partial: they run, but are not counted if there are others.
    Without `counting` no block is, which takes less time.
    If `blocks` are all blocks, every byte of the outputs must have been stored.

    Raises
    ------
    UnknownCodeError
        The code has an instruction that is not known.
    SassError
        A byte is wrong, stored twice, or outside its output; or a load is outside the input.
    """
    memory = SplitMemory(geometry, launch.outputs, input_phase, output_phases)
    banks = code.banks_for(launch.parameters(memory.addresses), launch.grid, launch.threads)
    totals: Counter[str] = Counter()
    issued = np.zeros(len(code.listing.instructions), np.int64)
    edges = {0, launch.grid - 1} if len(blocks) > 2 else set()
    at_once = max(1, WARPS_AT_ONCE * 32 // launch.threads)
    for start in range(0, len(blocks), at_once):
        part = blocks[start : start + at_once]
        is_counted = [counting and block not in edges for block in part]
        shared_bytes = code.resources.shared_bytes
        threads = Threads(part, launch.threads, banks, shared_bytes, memory, is_counted)
        machine = Machine(code.listing, threads)
        before = len(memory.stored)
        machine.run()
        totals += memory.count_rows(before)
        totals += threads.counts
        issued += machine.issued
    stored_bytes = memory.check()
    if len(blocks) == launch.grid and stored_bytes != memory.total_bytes:
        raise SassError(f"stored {stored_bytes} of {memory.total_bytes} bytes")
    return _counts(code.listing, issued, totals)


def _counts(listing: Listing, issued: np.ndarray, totals: Counter[str]) -> Counts:
    by_pipe: Counter[Pipe] = Counter()
    for instruction, times in zip(listing.instructions, issued, strict=True):
        by_pipe[opcodes.pipe(instruction.opcode)] += int(times)
    unit = max(totals["global_store_bytes"], 1) / 512  # a sampled block may store nothing
    return Counts(
        issue=by_pipe.total() / unit,
        **{pipe.value: by_pipe[pipe] / unit for pipe in Pipe},
        loads=totals["global_loads"] / unit,
        stores=totals["global_stores"] / unit,
        load_bytes=totals["global_load_bytes"] / (512 * unit),
        load_sectors=totals["global_load_sectors"] / unit,
        global_wavefronts=(totals["global_load_wavefronts"] + totals["global_store_wavefronts"])
        / unit,
        shared_wavefronts=(totals["shared_load_wavefronts"] + totals["shared_store_wavefronts"])
        / unit,
        constant_wavefronts=totals["constant_wavefronts"] / unit,
        stored_rows=totals["stored_rows"] / (512 * unit) * ROW_BYTES,
        row_turns=totals["row_turns"] / (512 * unit) * ROW_BYTES,
        stored_bytes=totals["global_store_bytes"],
    )
