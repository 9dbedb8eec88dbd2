"""Passes of a warp's access through the 32 banks of shared memory and of the L1 cache, and sectors.

A bank delivers one 4-byte word per pass, to all lanes that need it. A pass moves at most 128 bytes:
accesses of 8 bytes go by half warps, those of 16 bytes by quarters (host_cuda/counts.hpp).
Source of the banks: CUDA C++ Programming Guide, "Compute capability 5.x", "Shared memory".
"""

import numpy as np

from tests.sass.threads import LANES, Array

BANKS = 32
WORD, SECTOR = 4, 32


def wavefronts(addresses: Array, mask: Array, size: int) -> int:
    """The passes of all warps together; arrays are of shape (warps, 32)."""
    active = mask.any(axis=1)
    if not active.any():
        return 0
    words = max(1, size // WORD)
    lanes = LANES // max(1, words)
    first = (addresses[active] // WORD).astype(np.int64)
    first = np.where(mask[active], first, -BANKS).reshape(
        -1, lanes
    )  # inactive lanes: below all others
    word_numbers = (first[:, :, None] + np.arange(words)).reshape(len(first), -1)
    word_numbers.sort(axis=1)
    is_new = np.diff(word_numbers, axis=1, prepend=-1) != 0
    row, column = np.nonzero(is_new & (word_numbers >= 0))
    bank = word_numbers[row, column] % BANKS
    passes = np.bincount(row * BANKS + bank, minlength=len(word_numbers) * BANKS)
    return int(passes.reshape(-1, BANKS).max(axis=1).sum())


def sectors(addresses: Array, mask: Array) -> int:
    """The sectors of 32 bytes that accesses of all warps touch; each is inside one."""
    sector_numbers = np.where(mask, (addresses // SECTOR).astype(np.int64), -1)
    sector_numbers.sort(axis=1)
    return int(((np.diff(sector_numbers, axis=1, prepend=-1) != 0) & (sector_numbers >= 0)).sum())
