"""A kernel launch as a value, and the properties of a device on which plans depend."""

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

from dmlsplit.backends.cuda.specialization import NORMAL, POINTER_BYTES, STREAMING, THREADS, Code
from dmlsplit.geometry import ceil_div

_Part = TypeVar("_Part")

VECTOR = 16  # bytes: the widest load and store that every supported GPU has
WARP = 32  # threads
WORD = 4  # bytes of a register, and of a word in a bank of shared memory
LINE_BYTES = 128  # of a cache line
# Loads of a thread before its first store. If they are vectors, three blocks have IN_FLIGHT_BYTES
# in flight.
LOADS = 4

LARGE_PARAMETERS = 32764  # bytes of a kernel's parameters since CUDA 12.1
# The most bytes of parameters that are the same for any number of outputs: the input's address,
# pitches, divisors, numbers of rows and tiles. Those of `tile` are more.
NUMBERS_BYTES = 96

# Bytes that an SM must have in flight to saturate the memory of an H200. Source: the tuning of
# DeviceTransform in NVIDIA's CUB. Older GPUs, for which CUB has smaller numbers, count as an H200.
IN_FLIGHT_BYTES = 48 << 10
# Bytes that an SM must have in flight from compute capability 10.0 on. Source: as IN_FLIGHT_BYTES.
IN_FLIGHT_BYTES_10 = 64 << 10
# The most blocks that a kernel's code must let an SM hold, so as to have IN_FLIGHT_BYTES in flight.
# With as many, a thread gets at most 40 of an SM's 64 K registers.
MAX_RESIDENT_BLOCKS = 6
# If MAX_RESIDENT_BLOCKS would not have IN_FLIGHT_BYTES in flight, a kernel's code must let an SM
# hold only this many blocks, with which a thread may have up to 80 registers.
FALLBACK_RESIDENT_BLOCKS = 3


class DeviceLimits(NamedTuple):
    """The properties of a CUDA device that plans depend on. A tuple, for its fast hash."""

    sm_count: int  # streaming multiprocessors
    threads_per_sm: int  # resident at the same time
    l2_bytes: int
    parameter_bytes: int  # of a kernel: LARGE_PARAMETERS, or 4096 before
    # Every SM since compute capability 7.0 has at least the defaults.
    registers_per_sm: int = 64 << 10  # of 32 bits
    blocks_per_sm: int = 16  # resident at the same time
    shared_per_sm: int = 64 << 10  # bytes of shared memory
    in_flight_bytes: int = IN_FLIGHT_BYTES  # that keep memory busy, on each SM


class Assumptions(NamedTuple):
    """The assumptions that all launches of a plan share."""

    # The largest power of two, 1 to 16, that divides the input's address, and all outputs'.
    input_alignment: int
    output_alignment: int
    limits: DeviceLimits
    output_count: int  # of the split, the empty ones included
    # Whether input and outputs do not fit the L2 cache; lines of outputs are then evicted first.
    is_streaming: bool


class KernelLaunch(NamedTuple):
    """One launch of one kernel. A tuple, because one is made for every new combination of sizes."""

    code: Code
    packed: bytes  # the values of its members
    outputs: tuple[int, ...]  # that it writes, as indices into the geometry's pieces
    total_bytes: int  # read, which is also the number of bytes written
    is_streaming: bool  # as in `Assumptions`
    grid: int  # blocks, in one dimension
    bytes_in_flight: int  # that one thread requests before it waits for the first
    reason: str  # why this kernel, in one line
    shared_bytes: int = 0  # of a block
    threads: int = THREADS  # of a block
    # Makes launches with the other specializations that the same outputs need with other sizes. All
    # are compiled together, so that no later call waits for the compiler.
    siblings: Callable[[], Sequence["KernelLaunch"]] = tuple

    @property
    def argument_bytes(self) -> bytes:
        """The arguments in memory, the policy of stores first."""
        return (STREAMING if self.is_streaming else NORMAL).to_bytes(8, "little") + self.packed

    def parameters(self, addresses: Sequence[int]) -> bytes:
        """The struct for the addresses of the input and of each output, or without addresses."""
        unused = bytes((1 + self.code.slots - len(addresses)) * POINTER_BYTES)
        return pointers(len(addresses)).pack(*addresses) + unused + self.argument_bytes


def launches_within(
    make: Callable[[Sequence[_Part]], KernelLaunch | None], parts: Sequence[_Part], limit: int
) -> Iterator[KernelLaunch]:
    """The launches that `make` plans for `parts`.

    If the parameters of one launch would exceed `limit` bytes, or `make` returns None because its
    kernel cannot index all parts, the parts are halved, again and again.
    """
    launch = make(parts)
    if launch is not None and len(launch.parameters(())) <= limit:
        yield launch
    else:
        for half in (parts[: len(parts) // 2], parts[len(parts) // 2 :]):
            yield from launches_within(make, half, limit)


def outputs_within(limits: DeviceLimits, output_bytes: int, other_bytes: int = 0) -> int:
    """The outputs of this many bytes each that the parameters of a launch have room for.

    Plans that know the bytes of an output ask this before. `launches_within` would plan too many
    outputs once more for every halving, while a call with new sizes waits.
    """
    return (limits.parameter_bytes - NUMBERS_BYTES - other_bytes) // output_bytes


def even_parts(parts: Sequence[_Part], most: int) -> Iterator[Sequence[_Part]]:
    """The parts in order, in as few runs of at most `most` as possible, about equally long."""
    step = ceil_div(len(parts), ceil_div(len(parts), most))
    return (parts[first : first + step] for first in range(0, len(parts), step))


def in_flight_bytes(major: int) -> int:
    """The bytes that an SM must have in flight, by the first number of its compute capability."""
    return IN_FLIGHT_BYTES_10 if major >= 10 else IN_FLIGHT_BYTES


def resident_for(bytes_in_flight: int) -> int:
    """The blocks that an SM must hold if each thread has this many bytes in flight."""
    resident = max(2, ceil_div(IN_FLIGHT_BYTES, THREADS * bytes_in_flight))
    return resident if resident <= MAX_RESIDENT_BLOCKS else FALLBACK_RESIDENT_BLOCKS


@lru_cache
def pointers(count: int) -> struct.Struct:
    """Packs addresses."""
    return struct.Struct(f"<{count}Q")
