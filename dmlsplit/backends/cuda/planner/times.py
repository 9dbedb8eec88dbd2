"""How long a launch takes, by the formula that benchmarks/prediction.py explains.

It has exact counts of what a kernel executes, and this module estimates. All GPUs are taken for an
H200, except that one whose memory needs more bytes in flight copies faster in proportion, so that
units are busier.
"""

from math import ceil
from typing import NamedTuple

from dmlsplit.backends.cuda.launch import IN_FLIGHT_BYTES, DeviceLimits

COPY_CLOCKS = 53  # that an SM of an H200 has for 512 bytes, which a warp copies, at a copy's speed
# Of the norm that joins the times of memory and of the busiest unit (`side_by_side`).
EXPONENT = 3
# In more waves of blocks, all SMs are taken to end at the same time.
EVEN_WAVES = 3
# About what an SM of an H200 copies at 4.3 TB/s, read and written, in the 500 ns that a load is
# assumed to take while memory is busy: 4.3 TB/s / 2 / 132 SMs * 500 ns.
WAIT_BYTES = 8 << 10


class Blocks(NamedTuple):
    """The blocks of a launch."""

    grid: int
    resident: int  # those that fit an SM
    round_bytes: float  # that one requests in a round, before it waits for the first
    rounds: int


def launch_time(
    limits: DeviceLimits, total_bytes: int, blocks: Blocks, unit_clocks: float
) -> float:
    """The time of a launch, as a multiple of the time in which busy memory copies its bytes.

    The busiest unit of an SM takes `unit_clocks` for 512 bytes.
    """
    speed = limits.in_flight_bytes / IN_FLIGHT_BYTES  # that of an H200 is 1
    sm_blocks = blocks.grid / limits.sm_count
    block_bytes = total_bytes / blocks.grid
    # If too few bytes are in flight, the time is inversely proportional to them, by Little's law.
    in_flight = min(blocks.round_bytes, block_bytes) * min(sm_blocks, blocks.resident)
    waits = limits.in_flight_bytes / in_flight
    tail = 0.0
    units = unit_clocks / COPY_CLOCKS * speed
    # In a few waves, the SM with the most blocks is the last to end.
    if sm_blocks <= EVEN_WAVES * blocks.resident:
        units *= ceil(sm_blocks) / sm_blocks
    # Blocks end at different times, so that half of an SM's room is unused while the last ones run:
    # as long as a block waits for its loads in all of its rounds. If the blocks of a full SM have
    # more bytes in flight than enough, that costs less in proportion.
    if sm_blocks > blocks.resident:
        tail = blocks.rounds * WAIT_BYTES / 2 * min(1, waits) / (sm_blocks * block_bytes)
    return side_by_side(max(1, waits), units) + tail


def side_by_side(memory_time: float, unit_time: float) -> float:
    """The time in which memory and the busiest unit do their work."""
    return float((memory_time**EXPONENT + unit_time**EXPONENT) ** (1 / EXPONENT))
