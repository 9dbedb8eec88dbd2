"""Specializations: the source of a kernel for its constants, and the struct of its arguments.

A plan names constants and arguments; splits whose constants are equal share compiled code.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain, starmap
from sys import intern
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from dmlsplit.forks import cached_property
from dmlsplit.geometry import ceil_div
from dmlsplit.resources import kernel_source

_Entry = TypeVar("_Entry")
# Adds the numbers of an argument's value to a list.
_Add: TypeAlias = Callable[[list[int], Any], None]

# Threads of a block, unless a plan has a number of its own. The plain copy that predictions compare
# with has as many (benchmarks/prediction.py).
THREADS = 256

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
) -> tuple[Code, list[tuple[int, _Add]]]:
    """The code of a kernel, and for each member the argument's index and what adds its numbers.

    Cached: other sizes of a split get the same `Code`.
    """
    members = enumerate(map(Member, types, names, sizes))
    ordered = sorted(members, key=lambda pair: -struct.calcsize(_FORMATS[pair[1].type][0]))
    own_constants = tuple(starmap(Constant, constants))
    own_members = tuple(member for _, member in ordered)
    adds = [(index, _add_of(member)) for index, member in ordered]
    return Code(kernel, slots, resident, own_constants, own_members, max_threads), adds


def _add_of(member: Member) -> _Add:
    """What adds the numbers of a member's value to a list."""
    if member.type == DIVISOR and member.entries:
        return lambda numbers, divisors: numbers.extend(chain.from_iterable(divisors))
    return list.extend if member.type == DIVISOR or member.entries else list.append


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
    code, adds = _code(kernel, slots, resident, constants, types, names, sizes, max_threads)
    numbers: list[int] = []
    for index, add in adds:
        add(numbers, values[index])
    return code, code.pack(*numbers)


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
