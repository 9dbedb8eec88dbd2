"""Compile and run any kernel with one-dimensional blocks on arrays, to test opcodes."""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from tests.sass import launch
from tests.sass.machine import Machine
from tests.sass.threads import Access, Array, Memory, Threads

FIRST_ADDRESS = 1 << 40
GAP = 1 << 20  # between two arrays


class Arrays:
    """Arrays in global memory, which kernels load from and store to.

    Attributes
    ----------
    addresses : list of int
        Where each array begins.
    """

    def __init__(self, arrays: Sequence[Array]) -> None:
        self.bytes = [array.reshape(-1).view(np.uint8) for array in arrays]
        self.addresses = [FIRST_ADDRESS + GAP * i for i in range(len(arrays))]

    def load(self, access: Access) -> list[Array]:
        """The words that threads get."""
        loaded_bytes = np.zeros((*access.mask.shape, max(4, access.size)), np.uint8)
        for memory, mask, offsets in self._places(access):
            loaded_bytes[mask, : access.size] = memory[offsets[:, None] + np.arange(access.size)]
        words = loaded_bytes.view(np.uint32)
        return [words[..., n] for n in range(words.shape[-1])]

    def store(self, access: Access, words: list[Array]) -> None:
        """Write the words of the threads that store."""
        data = np.stack(words, axis=-1).astype(np.uint32).view(np.uint8)
        for memory, mask, offsets in self._places(access):
            memory[offsets[:, None] + np.arange(access.size)] = data[mask, : access.size]

    def _places(self, access: Access) -> Iterator[tuple[Array, Array, Array]]:
        """Each array that is accessed, the threads that access it, and where."""
        unplaced = access.mask
        for start, memory in zip(self.addresses, self.bytes, strict=True):
            offsets = access.addresses.astype(np.int64) - start
            mask = access.mask & (offsets >= 0) & (offsets + access.size <= len(memory))
            unplaced = unplaced & ~mask
            if mask.any():
                yield memory, mask, offsets[mask]
        access.refuse_if(unplaced, "outside all arrays")


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
    code = launch.compiled(source, folder)
    banks = code.banks_for(struct.pack(f"<{len(addresses)}Q", *addresses), grid, block)
    threads = Threads(range(grid), block, banks, code.resources.shared_bytes, memory)
    machine = Machine(code.listing, threads)
    machine.run()
    return machine
