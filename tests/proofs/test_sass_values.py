"""CUDA's expressions, one by one, in the interpreter of machine code, compared with Python."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.sass import kernels
from tests.support import nvrtc

THREADS = 256
EDGES = [0, 1, 2, 31, 32, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]
Numbers = np.ndarray


pytestmark = pytest.mark.skipif(bool(nvrtc.missing()), reason=str(nvrtc.missing()))


def u64(value: int) -> int:
    return value & (1 << 64) - 1


def s64(value: int) -> int:
    return (value & (1 << 64) - 1 ^ 1 << 63) - (1 << 63)


def u32(value: int) -> int:
    return value & 0xFFFF_FFFF


def s32(value: int) -> int:
    return (value & 0xFFFF_FFFF ^ 1 << 31) - (1 << 31)


def s8(value: int) -> int:
    return (value & 0xFF ^ 0x80) - 0x80


def signed_field(of: int, at: int, bits: int) -> int:
    """PTX's bfe.s32: bits beyond bit 31 are copies of the sign."""
    if not bits:
        return 0
    found = s32(of) >> at & (1 << bits) - 1
    return found - (1 << bits) if found >> bits - 1 else found


def inserted(source: int, to: int, at: int, bits: int) -> int:
    mask = u32((1 << bits) - 1 << at)
    return to & ~mask | source << at & mask


def quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def permuted(a: int, b: int, selector: int) -> int:
    pair = (u32(b) << 32 | u32(a)).to_bytes(8, "little")
    return int.from_bytes(bytes(pair[selector >> 4 * i & 7] for i in range(4)), "little")


# CUDA's expression of 64-bit a and b, and its value; d is b, or 7 if b is 0.
VALUES: dict[str, Callable[[int, int], int]] = {
    "a + b": lambda a, b: a + b,
    "a - b": lambda a, b: a - b,
    "a * b": lambda a, b: a * b,
    "a * b + (a - b)": lambda a, b: a * b + a - b,
    "(a << 3) + b": lambda a, b: (a << 3) + b,
    "b - (a << 2)": lambda a, b: b - (a << 2),
    "a / d": lambda a, b: a // (b or 7),
    "a % d": lambda a, b: a % (b or 7),
    "a / 85": lambda a, b: a // 85,
    "(long long)a / (long long)d": lambda a, b: quotient(s64(a), s64(b or 7)),
    "a << (b & 63)": lambda a, b: a << (b & 63),
    "a >> (b & 63)": lambda a, b: a >> (b & 63),
    "(long long)a >> (b & 63)": lambda a, b: s64(a) >> (b & 63),
    "a < b": lambda a, b: a < b,
    "(long long)a <= (long long)b": lambda a, b: s64(a) <= s64(b),
    "a == b": lambda a, b: a == b,
    "min(a, b)": min,
    "max((long long)a, (long long)b)": lambda a, b: max(s64(a), s64(b)),
    "__umul64hi(a, b)": lambda a, b: a * b >> 64,
    "__mul64hi(a, b)": lambda a, b: s64(a) * s64(b) >> 64,
    "__popcll(a)": lambda a, b: a.bit_count(),
    "__clzll(a)": lambda a, b: 64 - a.bit_length(),
    "__ffsll(a)": lambda a, b: (a & -a).bit_length(),
    "__brevll(a)": lambda a, b: int(f"{a:064b}"[::-1], 2),
    "(u32)a + (u32)b": lambda a, b: u32(a + b),
    "(u32)a / (u32)(b | 1)": lambda a, b: u32(a) // u32(b | 1),
    "(u32)a % (u32)(b | 1)": lambda a, b: u32(a) % u32(b | 1),
    "(int)a / (int)(b | 1)": lambda a, b: s32(quotient(s32(a), s32(b | 1))),
    "(u32)a / 3099": lambda a, b: u32(a) // 3099,
    "__umulhi((u32)a, (u32)b)": lambda a, b: u32(a) * u32(b) >> 32,
    "(u32)__mulhi((int)a, (int)b)": lambda a, b: u32(s32(a) * s32(b) >> 32),
    "(long long)(int)a * (int)b": lambda a, b: s32(a) * s32(b),
    "(u64)(u32)a * (u32)b + a": lambda a, b: u32(a) * u32(b) + a,
    "(u32)a << (b & 31)": lambda a, b: u32(a << (b & 31)),
    "(int)a >> (b & 31)": lambda a, b: s32(a) >> (b & 31),
    "__funnelshift_l((u32)a, (u32)b, (u32)(a >> 32))": lambda a, b: u32(
        (u32(b) << 32 | u32(a)) << (a >> 32 & 31) >> 32
    ),
    "__funnelshift_r((u32)a, (u32)b, (u32)(a >> 32))": lambda a, b: u32(
        (u32(b) << 32 | u32(a)) >> (a >> 32 & 31)
    ),
    "__funnelshift_lc((u32)a, (u32)b, (u32)(a >> 32))": lambda a, b: u32(
        (u32(b) << 32 | u32(a)) << min(a >> 32, 32) >> 32
    ),
    "__funnelshift_rc((u32)a, (u32)b, (u32)(a >> 32))": lambda a, b: u32(
        (u32(b) << 32 | u32(a)) >> min(a >> 32, 32)
    ),
    "__byte_perm((u32)a, (u32)b, (u32)(a >> 32))": lambda a, b: permuted(a, b, a >> 32),
    "__byte_perm((u32)a, (u32)b, 0x2705)": lambda a, b: permuted(a, b, 0x2705),
    "(long long)(char)a": lambda a, b: s8(a),
    "(long long)(short)(a >> 16)": lambda a, b: (a >> 16 & 0xFFFF ^ 0x8000) - 0x8000,
    "__clz((int)a)": lambda a, b: 32 - u32(a).bit_length(),
    "__popc((u32)a)": lambda a, b: u32(a).bit_count(),
    "31 - __clz((int)a)": lambda a, b: u32(a).bit_length() - 1,
    "__brev((u32)a)": lambda a, b: int(f"{u32(a):032b}"[::-1], 2),
    "(u32)abs((int)a)": lambda a, b: u32(abs(s32(a))),
    "min((int)a, (int)b)": lambda a, b: min(s32(a), s32(b)),
    "max((u32)a, (u32)b)": lambda a, b: max(u32(a), u32(b)),
    "min(min((int)a, 100), (int)b)": lambda a, b: min(s32(a), 100, s32(b)),
    "max(min((int)a, 100), 0)": lambda a, b: max(min(s32(a), 100), 0),
    "max(min((int)a - (int)b, 77), 0)": lambda a, b: max(min(s32(a - b), 77), 0),
    "max(max((u32)a, (u32)b), (u32)(a >> 32))": lambda a, b: max(u32(a), u32(b), a >> 32),
    "max((int)a - 5, (int)b)": lambda a, b: max(s32(a - 5), s32(b)),
    "min((u32)a + 77u, (u32)b)": lambda a, b: min(u32(a + 77), u32(b)),
    "__dp4a((u32)a, (u32)b, 3u)": lambda a, b: u32(
        3 + sum((a >> 8 * n & 255) * (b >> 8 * n & 255) for n in range(4))
    ),
    "__dp4a((int)a, (int)b, -3)": lambda a, b: s32(
        -3 + sum(s8(a >> 8 * n) * s8(b >> 8 * n) for n in range(4))
    ),
    "__dp2a_lo((u32)a, (u32)b, 3u)": lambda a, b: u32(
        3 + (a & 0xFFFF) * (b & 255) + (a >> 16 & 0xFFFF) * (b >> 8 & 255)
    ),
    "__dp2a_hi((u32)a, (u32)b, 3u)": lambda a, b: u32(
        3 + (a & 0xFFFF) * (b >> 16 & 255) + (a >> 16 & 0xFFFF) * (b >> 24 & 255)
    ),
    "field(a, b & 31, b >> 32 & 63)": lambda a, b: u32(a) >> (b & 31) & (1 << (b >> 32 & 63)) - 1,
    "signed_field(a, b & 31, b >> 32 & 31)": lambda a, b: signed_field(
        u32(a), b & 31, b >> 32 & 31
    ),
    "inserted(a, b, b >> 8 & 31, b >> 32 & 31)": lambda a, b: inserted(
        u32(a), u32(b), b >> 8 & 31, b >> 32 & 31
    ),
    "(int)a < (int)b ? a : b": lambda a, b: a if s32(a) < s32(b) else b,
    "(a & b) ^ (a | ~b)": lambda a, b: (a & b) ^ (a | ~b),
    "((u32)a & 0xff00u) | ((u32)b ^ 0x1234u)": lambda a, b: u32(a) & 0xFF00 | u32(b) ^ 0x1234,
    "(a > b) != ((a & 1) && (b & 2) || (a & 4))": lambda a, b: (
        (a > b) != bool((a & 1 and b & 2) or a & 4)
    ),
    "a + blockIdx.x * 1000003ull / 7": lambda a, b: a,
}
FIELDS = """
typedef unsigned u32; typedef unsigned long long u64;
__device__ u32 field(u32 of, u32 at, u32 bits) {
    u32 found;
    asm("bfe.u32 %0, %1, %2, %3;" : "=r"(found) : "r"(of), "r"(at), "r"(bits));
    return found;
}
__device__ int signed_field(u32 of, u32 at, u32 bits) {
    int found;
    asm("bfe.s32 %0, %1, %2, %3;" : "=r"(found) : "r"(of), "r"(at), "r"(bits));
    return found;
}
__device__ u32 inserted(u32 from, u32 to, u32 at, u32 bits) {
    u32 all;
    asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(all) : "r"(from), "r"(to), "r"(at), "r"(bits));
    return all;
}
"""
EXPRESSIONS = FIELDS + (
    'extern "C" __global__ void kernel(const u64* x, const u64* y, u64* out) {\n'
    "    const int i = threadIdx.x;\n"
    "    const u64 a = x[i], b = y[i], d = b ? b : 7;\n"
    + "".join(f"    out[{n} * {THREADS} + i] = (u64)({text});\n" for n, text in enumerate(VALUES))
    + "}\n"
)


@pytest.fixture(scope="module")
def inputs() -> tuple[Numbers, Numbers]:
    """Pairs of edge values, then random numbers of any length."""
    draw = np.random.default_rng(3)
    pairs = [(a, b) for a in EDGES for b in EDGES]
    lengths = draw.integers(0, 64, (2, THREADS - len(pairs)), np.uint64)
    random = draw.integers(0, 2**64 - 1, lengths.shape, np.uint64, endpoint=True) >> lengths
    a, b = np.array(pairs, np.uint64).T
    return np.concatenate([a, random[0]]), np.concatenate([b, random[1]])


@pytest.fixture(scope="module")
def values(inputs: tuple[Numbers, Numbers], builds: Path) -> Numbers:
    out = np.zeros((len(VALUES), THREADS), np.uint64)
    kernels.run(EXPRESSIONS, [*inputs, out], builds, block=THREADS)
    return out


@pytest.mark.parametrize("text", VALUES)
def test_values_are_right(text: str, values: Numbers, inputs: tuple[Numbers, Numbers]) -> None:
    found = values[list(VALUES).index(text)]
    pairs = [(int(a), int(b)) for a, b in zip(*inputs, strict=True)]
    wanted = np.array([u64(int(VALUES[text](a, b))) for a, b in pairs], np.uint64)
    assert np.array_equal(found, wanted)
