"""How many blocks of a kernel an SM holds at the same time."""

from functools import lru_cache

from dmlsplit.backends.cuda.launch import WARP, DeviceLimits, KernelLaunch
from dmlsplit.geometry import ceil_div

# Source of these four: CUDA C++ Programming Guide, "Compute Capabilities", and cuda_occupancy.h of
# the toolkit.

# Each sub-partition of an SM has its share of the registers.
SUBPARTITIONS = 4
# Registers per thread are given to warps in this unit.
REGISTER_UNIT = 8
# Bytes of shared memory that a block takes in addition to its own. Before compute capability 8.0
# nothing is reserved, so one more block may fit than is counted here.
RESERVED = 1024
# Bytes of shared memory are given to blocks in this unit.
SHARED_UNIT = 128


@lru_cache
def resident_blocks(
    limits: DeviceLimits, threads: int, registers: int, shared_bytes: int = 0
) -> int:
    """The blocks of `threads` threads that fit an SM.

    `registers` are those of a thread, `shared_bytes` those of a block.
    """
    warps = ceil_div(threads, WARP)
    warp_registers = ceil_div(registers, REGISTER_UNIT) * REGISTER_UNIT * WARP
    resident_warps = limits.registers_per_sm // SUBPARTITIONS // warp_registers * SUBPARTITIONS
    block_shared = ceil_div(shared_bytes + RESERVED, SHARED_UNIT) * SHARED_UNIT
    by_threads = limits.threads_per_sm // (warps * WARP)
    by_shared = limits.shared_per_sm // block_shared
    return min(limits.blocks_per_sm, by_threads, resident_warps // warps, by_shared)


def blocks_of(launch: KernelLaunch, limits: DeviceLimits) -> int:
    """The blocks of a launch that fit an SM, if threads have the most registers that they may.

    The compiler limits registers so that `Code.resident` blocks of `Code.max_threads` threads fit.
    """
    registers = limits.registers_per_sm // (launch.code.max_threads * launch.code.resident)
    registers = registers // REGISTER_UNIT * REGISTER_UNIT
    return resident_blocks(limits, launch.threads, registers, launch.shared_bytes)


def in_flight_per_sm(launch: KernelLaunch, limits: DeviceLimits) -> int:
    """The bytes in flight on an SM when a launch begins, on average over all SMs.

    A lower bound, because `blocks_of` is one.
    """
    blocks = min(launch.grid, blocks_of(launch, limits) * limits.sm_count)
    block_bytes = min(launch.threads * launch.bytes_in_flight, launch.total_bytes // launch.grid)
    return blocks * block_bytes // limits.sm_count
