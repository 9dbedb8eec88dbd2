"""The threads of some blocks: their registers, where each one is, and what it waits for.

Values of threads are arrays of shape (warps, 32), and values of warps arrays of shape (warps, 1),
so that both broadcast against each other. The warps of all blocks follow one another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Protocol

import numpy as np

from tests.sass.listing import Instruction

LANES = 32
REGISTERS, UNIFORM_REGISTERS, PREDICATES, BARRIERS = 255, 63, 7, 16

Array = np.ndarray[Any, np.dtype[Any]]


class SassError(Exception):
    """The code did something forbidden; the message names the instruction and the thread."""


class Waits(IntEnum):
    """What a thread waits for."""

    NOTHING = 0
    BLOCK = 1  # the others of its block, at BAR.SYNC
    BRANCH = 2  # those that it diverged from since BSSY, at BSYNC


class Memory(Protocol):
    """Global memory. Arrays are of shape (warps, 32); a word is 32 bits of each thread."""

    def load(self, access: Access) -> list[Array]:
        """The words that threads get."""

    def store(self, access: Access, words: list[Array]) -> None:
        """Write the words of the threads that store."""


class Access:
    """Addresses of `size` bytes each that the threads in `mask` load or store."""

    def __init__(
        self, threads: Threads, instruction: Instruction, addresses: Array, mask: Array, size: int
    ) -> None:
        self.threads = threads
        self.instruction = instruction
        self.addresses = np.broadcast_to(addresses, mask.shape)
        self.mask = mask
        self.size = size
        self.refuse_if(self.addresses % size != 0, f"an address is not a multiple of {size}")

    def refuse_if(self, wrong: Array, problem: str) -> None:
        """Raise if something is wrong with the access of a thread in the mask."""
        if (wrong & self.mask).any():
            thread_index = int(np.flatnonzero(wrong & self.mask)[0])
            address = int(self.addresses.flat[thread_index])
            thread = self.threads.name(thread_index)
            raise SassError(f"{self.instruction}: {thread}: {problem} (address {address:#x})")


class Threads:
    """All threads of some blocks of a launch.

    Parameters
    ----------
    blocks : sequence of int
        Indices of the blocks.
    block : int
        Threads per block.
    banks : dict
        Constant memory; bank 0 holds the parameters.
    shared_bytes : int
        Shared memory of a block.
    memory : Memory
    counted : sequence of bool, optional
        Whether the work of each block goes into `counts`; by default that of all blocks.
    """

    def __init__(
        self,
        blocks: Sequence[int],
        block: int,
        banks: dict[int, bytes],
        shared_bytes: int,
        memory: Memory,
        counted: Sequence[bool] | None = None,
    ) -> None:
        per_block = -(-block // LANES)
        warps = per_block * len(blocks)
        self.blocks, self.memory = blocks, memory
        self.banks = {number: _padded(bank) for number, bank in banks.items()}
        self.shape = (warps, LANES)
        self.lane = np.broadcast_to(np.arange(LANES, dtype=np.uint32), self.shape)
        first = np.tile(np.arange(per_block, dtype=np.uint32) * LANES, len(blocks))[:, None]
        self.tid = first + self.lane
        self.ctaid = np.repeat(np.array(blocks, np.uint32), per_block)[:, None]
        self.of_block = np.repeat(np.arange(len(blocks)), per_block)[:, None]
        counted_blocks = np.ones(len(blocks), bool) if counted is None else np.array(counted)
        self.counted = counted_blocks[self.of_block]

        self.registers = np.zeros((REGISTERS, *self.shape), np.uint32)
        self.predicates = np.zeros((PREDICATES, *self.shape), bool)
        self.uniform_registers = np.zeros((UNIFORM_REGISTERS, warps, 1), np.uint32)
        self.uniform_predicates = np.zeros((PREDICATES, warps, 1), bool)
        # Poison: the contents of shared memory before a launch belong to nobody.
        self.shared_bytes = -(-shared_bytes // 16) * 16
        self.shared = np.full(max(16, len(blocks) * self.shared_bytes), 0xA5, np.uint8)

        self.pc = np.zeros(self.shape, np.int32)
        self.alive = self.tid < block
        self.waits = np.zeros(self.shape, np.int8)
        # Which threads diverged from each other: threads of a warp with the same number in a
        # convergence barrier met the same BSSY together; 0 if a thread does not take part.
        self.parties = np.zeros((BARRIERS, *self.shape), np.int32)
        self.barrier = np.zeros(self.shape, np.int8)  # at which a thread waits
        self.counts: Counter[str] = Counter()

    def name(self, thread_index: int) -> str:
        """The name of a thread, by its index in a flattened array of threads."""
        warp = thread_index // LANES
        return f"block {int(self.ctaid[warp, 0])}, thread {int(self.tid.flat[thread_index])}"


def _padded(bank: bytes) -> Array:
    return np.frombuffer(bank + bytes(-len(bank) % 16), np.uint8)
