"""Compile and run any kernel of one block dimension on arrays, to test what opcodes do."""

import struct
from collections.abc import Sequence
from pathlib import Path

from tests.sass import launch
from tests.sass.machine import Machine
from tests.sass.memory import Arrays
from tests.sass.threads import Array, Memory, Threads
from tests.support import nvrtc

ARCH = "sm_90"


def run(
    source: str, arrays: Sequence[Array], folder: Path, *, grid: int = 1, block: int = 64
) -> Machine:
    """Run a kernel whose parameters are pointers to these arrays, which it may change."""
    memory = Arrays(arrays)
    return run_in(source, memory, memory.addresses, folder, grid=grid, block=block)


def run_in(
    source: str,
    memory: Memory,
    addresses: Sequence[int],
    folder: Path,
    *,
    grid: int = 1,
    block: int = 64,
) -> Machine:
    """Run all blocks of a kernel whose parameters are these addresses."""
    cubin = nvrtc.compile_cubin(source, ARCH, folder)
    shared_bytes = nvrtc.resources(cubin, folder).shared_bytes
    code = launch.code(nvrtc.disassembly(cubin, folder), cubin, shared_bytes)
    parameters = struct.pack(f"<{len(addresses)}Q", *addresses)
    threads = Threads(
        range(grid), block, code.banks_for(parameters, grid, block), shared_bytes, memory
    )
    machine = Machine(code.listing, threads)
    machine.run()
    return machine
