"""A kernel launch as a value, and the properties of a device on which plans depend."""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain, starmap
from sys import intern
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dmlsplit.forks import cached_property
from dmlsplit.geometry import ceil_div
from dmlsplit.resources import kernel_source

_Entry = TypeVar("_Entry")

VECTOR = 16  # bytes: the widest load and store that every supported GPU has
WARP = 32  # threads
WORD = 4  # bytes of a register, and of a word in a bank of shared memory
LINE_BYTES = 128  # of a cache line
# Threads of a block, unless a plan has a number of its own. The plain copy that predictions compare
# with has as many (benchmarks/prediction.py).
THREADS = 256
# Loads of a thread before its first store. If they are vectors, three blocks have IN_FLIGHT_BYTES
# in flight.
LOADS = 4

# The C++ type of counts, sizes and indices that may exceed 2^32.
COUNT_64 = "unsigned long long"
# The C++ type of strides and offsets in bytes, which may be negative.
OFFSET_64 = "long long"
# The C++ type of common.cuh that divides by a number without a division.
DIVISOR = "Divisor"
# The format in `struct` of arguments of each type. A `Divisor` is two numbers.
_FORMATS = {
    "unsigned char": "B",
    "int": "i",
    "unsigned": "I",
    COUNT_64: "Q",
    OFFSET_64: "q",
    DIVISOR: "II",
}
POINTER_BYTES = 8
POWER_OF_FOUR_LIMIT = 256  # the most entries of a table whose size must be a power of four
NUMPY_FROM_DIVISORS = 17  # divisors; for fewer, Python is faster than NumPy
LARGE_PARAMETERS = 32764  # bytes of a kernel's parameters since CUDA 12.1
COMMON = "common.cuh"
# The kernel's only parameter, passed by value: no table of pointers is copied to the device.
PARAMETERS = """struct Parameters {
    const unsigned char* input;
    unsigned char* outputs[kOutputs];
    unsigned long long policy;
"""
_text = cache(kernel_source)
# The L2 policy of most stores, as `cuda::access_property` of NVIDIA's libcu++ encodes `normal`.
NORMAL = 0x10F0 << 48
# The L2 policy of stores whose lines are evicted first, as `cuda::access_property` encodes
# `streaming`.
STREAMING = 0x12F0 << 48
# The first tile in an unused entry of a table of outputs.
UNUSED_TILE = 2**32 - 1

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


class Divisor(NamedTuple):
    """A precomputed divisor, made by `divisor`."""

    magic: int
    shift: int


# The C++ type, the name and the value of an argument of a launch (a number or a table), or of a
# constant of a kernel (a number or a type). A plain tuple, because every plan makes dozens of them.
Argument = tuple[str, str, int | Divisor | tuple[int, ...] | tuple[tuple[int, int], ...] | str]


class Constant(NamedTuple):
    """A constant of a kernel."""

    type: str
    name: str
    value: int | str

    @property
    def definition(self) -> str:
        """A constant in C++."""
        if self.type == "using":
            return f"using {self.name} = {self.value};"
        assert isinstance(self.value, int)
        suffix = "ll" if self.value < 0 else "ull" if self.value >= 2**31 else ""
        return f"constexpr {self.type} {self.name} = {self.value}{suffix};"


class Member(NamedTuple):
    """A member of a kernel's parameters."""

    type: str
    name: str
    entries: int = 0  # of a table; 0: a number

    @property
    def definition(self) -> str:
        """The member in C++."""
        size = f"[{self.entries}]" if self.entries else ""
        return f"    {self.type} {self.name}{size};\n"

    @property
    def format(self) -> str:
        """The member's format for `struct`."""
        return _FORMATS[self.type] * max(1, self.entries)


@dataclass(frozen=True)
class Code:
    """The source of a specialization. Splits with equal `Code` differ only in their arguments.

    The kernel's only parameter is a struct by value: the address of the input's first element,
    those of the outputs, the policy of stores, then `members`, larger types first, so that there is
    no padding.
    """

    kernel: str  # its name, and that of its file in cuda/
    slots: int  # outputs that the parameters have room for
    resident: int  # blocks that an SM must hold, which limits the registers of a thread
    own_constants: tuple[Constant, ...]  # in addition to those that every kernel has
    members: tuple[Member, ...]
    max_threads: int = THREADS  # of a block

    @property
    def constants(self) -> tuple[Constant, ...]:
        """All constants of the source."""
        return (
            Constant("int", "kOutputs", self.slots),
            Constant("int", "kThreads", self.max_threads),
            Constant("int", "kResident", self.resident),
            Constant(COUNT_64, "kStreaming", STREAMING),
            *self.own_constants,
        )

    @cached_property
    def source(self) -> str:
        """The CUDA source: constants, the type of the parameters, then the texts from ``cuda/``.

        A complete translation unit with one entry, named `kernel`. It includes nothing: CuPy's
        cache of compiled kernels would not notice a change of an included file. The text is
        interned, so that cache look-ups compare it by identity.
        """
        constants = "\n".join(constant.definition for constant in self.constants)
        members = "".join(member.definition for member in self.members)
        kernel = f"{self.kernel}.cu"
        return intern(
            f'{constants}\n#line 1 "{COMMON}"\n{_text(COMMON)}'
            f'{PARAMETERS}{members}}};\n#line 1 "{kernel}"\n{_text(kernel)}'
        )

    @cached_property
    def pack(self) -> Callable[..., bytes]:
        """Packs the numbers of all members."""
        formats = "<" + "".join(member.format for member in self.members)
        return struct.Struct(f"{formats}{-struct.calcsize(formats) % POINTER_BYTES}x").pack


@lru_cache(maxsize=1024)
def _code(
    kernel: str,
    slots: int,
    resident: int,
    constants: tuple[Argument, ...],
    types: tuple[str, ...],
    names: tuple[str, ...],
    sizes: tuple[int, ...],
    max_threads: int,
) -> tuple[Code, list[tuple[int, Member]]]:
    """The code of a kernel, and its members, each with its index in the arguments.

    Cached: other sizes of a split get the same `Code`.
    """
    members = enumerate(map(Member, types, names, sizes))
    ordered = sorted(members, key=lambda pair: -struct.calcsize(_FORMATS[pair[1].type][0]))
    own_constants = tuple(starmap(Constant, constants))
    own_members = tuple(member for _, member in ordered)
    return Code(kernel, slots, resident, own_constants, own_members, max_threads), ordered


def specialize(
    kernel: str,
    slots: int,
    resident: int,
    constants: tuple[Argument, ...],
    arguments: Iterable[Argument],
    max_threads: int = THREADS,
) -> tuple[Code, bytes]:
    """The `Code` of a kernel with these constants, and the packed bytes of its arguments."""
    columns: Any = zip(*arguments, strict=True)
    types, names, values = columns
    sizes = tuple([len(value) if type(value) is tuple else 0 for value in values])
    code, ordered = _code(kernel, slots, resident, constants, types, names, sizes, max_threads)
    numbers: list[int] = []
    for index, (type_, _, entries) in ordered:
        value = values[index]
        if type_ == DIVISOR and entries:
            numbers += chain.from_iterable(value)
        elif entries or type_ == DIVISOR:
            numbers += value
        else:
            numbers.append(value)
    return code, code.pack(*numbers)


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
    make: Callable[[Sequence[_Entry]], KernelLaunch | None], parts: Sequence[_Entry], limit: int
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


@lru_cache(maxsize=4096)
def divisor(number: int, bits: int = 32) -> Divisor:
    """The `Divisor` of common.cuh, by which kernels divide integers below 2^(bits - 1).

    With n = bits - 1 and 2^shift >= number, 2^(n + shift) <= magic * number < 2^(n + shift) +
    2^shift. For dividends below 2^n, the quotient is therefore dividend * magic >> n + shift
    (Granlund and Montgomery, "Division by Invariant Integers using Multiplication", PLDI 1994,
    theorem 4.2). Kernels double the dividend: the upper half of the product is then shifted by
    `shift` only. Both fields are below 2^bits for numbers up to 2^n.
    """
    shift = (number - 1).bit_length()
    return Divisor(ceil_div(1 << (bits - 1 + shift), number), shift)


def divisors(numbers: Sequence[int]) -> Iterable[tuple[int, int]]:
    """The `Divisor` of each number, up to 2^31, in less time than one by one if they are many."""
    if len(numbers) < NUMPY_FROM_DIVISORS:
        return map(divisor, numbers)
    array = np.array(numbers, np.int64)
    # The exponent is the bit length of the integer, which a float holds exactly below 2^53.
    shifts = np.frexp(array - 1)[1]
    magics = -(-(1 << 31 + shifts.astype(np.int64)) // array)
    return zip(magics.tolist(), shifts.tolist(), strict=True)


def capacity(count: int, least: int = 4) -> int:
    """The size of a table for `count` entries: a power of four, as each size is a specialization.

    Tables of more than POWER_OF_FOUR_LIMIT entries may have any power of two, to save parameters.
    """
    bits = (max(count, least) - 1).bit_length()
    return 1 << (bits + (bits % 2 if count <= POWER_OF_FOUR_LIMIT else 0))


def padded_table(values: Iterable[_Entry], slots: int, fill: _Entry) -> tuple[_Entry, ...]:
    """`values`, padded with `fill` to `slots` entries."""
    entries = tuple(values)
    return entries + (fill,) * (slots - len(entries))


def index_type(largest: int) -> str:
    """The narrowest C++ type for indices up to `largest`."""
    return "unsigned" if largest < 2**32 else COUNT_64
