"""CUDA's expressions, one by one, in the interpreter of machine code, compared with Python."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.sass import kernels
from tests.support import nvrtc

THREADS = 256
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


def permuted(a: int, b: int, selector: int) -> int:
    pair = (u32(b) << 32 | u32(a)).to_bytes(8, "little")
    return int.from_bytes(bytes(pair[selector >> 4 * i & 7] for i in range(4)), "little")


# CUDA's expression of 64-bit a and b, and its value.
VALUES: dict[str, Callable[[int, int], int]] = {
    "a + b": lambda a, b: a + b,
    "a - b": lambda a, b: a - b,
    "a * b": lambda a, b: a * b,
    "a * b + (a - b)": lambda a, b: a * b + a - b,
    "(a << 3) + b": lambda a, b: (a << 3) + b,
    "b - (a << 2)": lambda a, b: b - (a << 2),
    "a / 85": lambda a, b: a // 85,
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
    "(u32)a + (u32)b": lambda a, b: u32(a + b),
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
    "min((int)a, (int)b)": lambda a, b: min(s32(a), s32(b)),
    "max((u32)a, (u32)b)": lambda a, b: max(u32(a), u32(b)),
    "min(min((int)a, 100), (int)b)": lambda a, b: min(s32(a), 100, s32(b)),
    "max(min((int)a, 100), 0)": lambda a, b: max(min(s32(a), 100), 0),
    "max(min((int)a - (int)b, 77), 0)": lambda a, b: max(min(s32(a - b), 77), 0),
    "max((int)a - 5, (int)b)": lambda a, b: max(s32(a - 5), s32(b)),
    "min((u32)a + 77u, (u32)b)": lambda a, b: min(u32(a + 77), u32(b)),
    "(int)a < (int)b ? a : b": lambda a, b: a if s32(a) < s32(b) else b,
    "(a & b) ^ (a | ~b)": lambda a, b: (a & b) ^ (a | ~b),
    "((u32)a & 0xff00u) | ((u32)b ^ 0x1234u)": lambda a, b: u32(a) & 0xFF00 | u32(b) ^ 0x1234,
    "(a > b) != ((a & 1) && (b & 2) || (a & 4))": lambda a, b: (
        (a > b) != bool((a & 1 and b & 2) or a & 4)
    ),
    "a + blockIdx.x * 1000003ull / 7": lambda a, b: a,
}
EXPRESSIONS = (
    "typedef unsigned u32; typedef unsigned long long u64;\n"
    'extern "C" __global__ void kernel(const u64* x, const u64* y, u64* out) {\n'
    "    const int i = threadIdx.x;\n"
    "    const u64 a = x[i], b = y[i];\n"
    + "".join(f"    out[{n} * {THREADS} + i] = (u64)({text});\n" for n, text in enumerate(VALUES))
    + "}\n"
)


EDGES = [0, 1, 2, 31, 32, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]


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
    """What the interpreter computes: a row for each of `VALUES`, a column for each pair."""
    out = np.zeros((len(VALUES), THREADS), np.uint64)
    kernels.run(EXPRESSIONS, [*inputs, out], builds, block=THREADS)
    return out


@pytest.mark.parametrize("text", VALUES)
def test_the_interpreter_computes_the_values_that_cuda_defines(
    text: str, values: Numbers, inputs: tuple[Numbers, Numbers]
) -> None:
    computed_values = values[list(VALUES).index(text)]
    pairs = [(int(a), int(b)) for a, b in zip(*inputs, strict=True)]
    expected_values = np.array([u64(int(VALUES[text](a, b))) for a, b in pairs], np.uint64)
    assert np.array_equal(computed_values, expected_values)
