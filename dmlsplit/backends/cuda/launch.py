"""A kernel launch as a value, and what a planner must know of a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import gcd

VECTOR = 16
THREADS = 256
LOADS = 4

WIDE = "unsigned long long"
SIGNED = "long long"

# Constant memory that the tables of one kernel may take. Source: CUDA C++ Programming Guide,
# "Technical specifications per compute capability".
CONSTANT_BYTES = 64 << 10
_WIDTHS = {"unsigned char": 1, "int": 4, "unsigned": 4, WIDE: 8, SIGNED: 8}

# Loads that an SM must have under way to keep the memory of an H200 busy, and the most blocks
# that may have to carry them. Source: the tuning of DeviceTransform in NVIDIA's CUB.
IN_FLIGHT_BYTES = 48 << 10
RESIDENT_BLOCKS = 6
# Where even those do not suffice, threads get the registers of this many.
SLOW_RESIDENT_BLOCKS = 3


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """What the planner must know of a CUDA device.

    Attributes
    ----------
    sm_count, threads_per_sm : int
        Streaming multiprocessors, and resident threads of each.
    shared_per_sm, shared_per_block : int
        Shared memory, in bytes; per block without opting in.
    l2_bytes : int
        Size of the L2 cache.
    parameter_bytes : int
        Kernel parameters that the driver takes: 32764 since CUDA 12.1, 4096 before.
    """

    sm_count: int
    threads_per_sm: int
    shared_per_sm: int
    shared_per_block: int
    l2_bytes: int
    parameter_bytes: int


@dataclass(frozen=True, slots=True)
class Constant:
    """One baked constant: C++ type, name, and a number, a table, or a type for ``using``."""

    type: str
    name: str
    value: int | tuple[int, ...] | str


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """One launch of one kernel.

    The kernel's only parameter is a struct by value of 64-bit pointers: the first element of
    the input, then the first element of each output in `outputs`, in that order.

    Attributes
    ----------
    kernel : str
        Its name, and that of its file in ``cuda/``.
    constants : tuple of Constant
        Baked into the source by `codegen`.
    outputs : tuple of int
        The outputs it writes, as indices into the geometry's pieces.
    grid, block : int
        Blocks (one dimension) and threads per block.
    resident : int
        Blocks that an SM must be able to hold; bounds the registers of a thread.
    shared_bytes : int
        Static shared memory of a block.
    bytes_in_flight : int
        Bytes that one thread has requested before it waits for the first.
    total_bytes : int
        Bytes read, which is also the number of bytes written.
    reason : str
        Why this kernel, in one line.
    """

    kernel: str
    constants: tuple[Constant, ...]
    outputs: tuple[int, ...]
    grid: int
    block: int
    resident: int
    shared_bytes: int
    bytes_in_flight: int
    total_bytes: int
    reason: str

    @property
    def constant_bytes(self) -> int:
        """Bytes of constant memory that its tables take."""
        names = {c.name: str(c.value) for c in self.constants if c.type == "using"}
        return sum(
            len(c.value) * _WIDTHS[names.get(c.type, c.type)]
            for c in self.constants
            if isinstance(c.value, tuple)
        )


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The launches that carry out a geometry; their order does not matter."""

    launches: tuple[KernelLaunch, ...]


def kernel_launch(
    kernel: str,
    outputs: Sequence[int],
    constants: Sequence[Constant],
    grid: int,
    *,
    in_flight: int,
    total_bytes: int,
    reason: str,
    shared_bytes: int = 0,
) -> KernelLaunch:
    """Return a launch with the constants that every kernel has."""
    resident = max(2, blocks(IN_FLIGHT_BYTES, THREADS * in_flight))
    if resident > RESIDENT_BLOCKS:
        resident = SLOW_RESIDENT_BLOCKS
    common = (
        Constant("int", "kOutputs", len(outputs)),
        Constant("int", "kThreads", THREADS),
        Constant("int", "kResident", resident),
    )
    return KernelLaunch(
        kernel,
        (*common, *constants),
        tuple(outputs),
        grid,
        THREADS,
        resident,
        shared_bytes,
        in_flight,
        total_bytes,
        reason,
    )


def power_of_two(limit: int, *values: int) -> int:
    """Return the largest power of two up to `limit` that divides every value."""
    return reduce(gcd, values, limit)


def index_type(largest: int) -> str:
    """Return the narrowest C++ type that indices up to `largest` fit."""
    return "unsigned" if largest < 2**32 else WIDE


def blocks(total: int, each: int) -> int:
    """Return how many parts of `each` cover `total`."""
    return -(-total // each)
