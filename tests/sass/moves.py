"""Moves between registers, and from special registers and constant memory."""

import re

import numpy as np

from tests.sass.arithmetic import U64, Run, calculated
from tests.sass.listing import Instruction
from tests.sass.operands import CONSTANT_BYTES, Operands, following
from tests.sass.threads import Array, SassError, Threads

_INDEXED = re.compile(r"c\[0x([0-9a-f]+)\]\[(.*)\]")


def mov(i: Instruction, t: Threads) -> Run:
    i.allow()
    return calculated(i, t, 1, lambda a: a)


def hfma2(i: Instruction, t: Threads) -> Run:
    """``HFMA2 Rd, -RZ, RZ, x, y``: two 16-bit halves; compilers load constants this way."""
    i.allow("MMA")
    o = Operands(i, t)
    d, a, b, high, low = i.take(5)
    if {a.lstrip("-"), b.lstrip("-")} != {"RZ"} or "N" in high + low:  # NAN, INF
        raise i.unknown("HFMA2 that calculates")
    halves = np.array([[float(low), float(high)]], np.float16).view(np.uint32)
    write = o.write(d)
    return lambda mask: write(halves, mask)


def special(i: Instruction, t: Threads) -> Run:
    """``S2R``, ``S2UR``, ``CS2R``: a special register; CS2R fills a pair."""
    i.allow()
    o = Operands(i, t)
    d, name = i.take(2)
    value = _special(i, t, name)
    is_pair = i.opcode == "CS2R"
    write = o.write_wide(d) if is_pair else o.write(d)
    return lambda mask: write(value.astype(U64) if is_pair else value, mask)


def _special(i: Instruction, t: Threads, name: str) -> Array:
    registers = {"SR_TID.X": t.tid, "SR_CTAID.X": t.ctaid, "SR_LANEID": t.lane}
    # One-dimensional launches without clusters.
    zeros = ("SRZ", "SR_TID.Y", "SR_TID.Z", "SR_CTAID.Y", "SR_CTAID.Z", "SR_CgaCtaId")
    registers |= dict.fromkeys(zeros, np.zeros((1, 1), np.uint32))
    if name not in registers:
        raise i.unknown(f"the special register {name}")
    return registers[name]


def ldc(i: Instruction, t: Threads) -> Run:
    """``LDC`` and ``ULDC``: constant memory, whose cache serves a warp one address at a time."""
    modifiers = i.allow("U8", "U16", "S8", "S16", "64", "128")
    o = Operands(i, t)
    d, source = i.take(2)
    match = _INDEXED.fullmatch(source)
    if not match:
        raise i.unknown(f"the operand {source}")
    bank = o.bank(int(match[1], 16))
    kind = _kind(modifiers)
    at_of = o.sum_of(match[2])
    writers = [o.write(following(d, n)) for n in range(max(1, kind.itemsize // 4))]
    is_indexed = "R" in match[2] and i.opcode == "LDC"

    def run(mask: Array) -> None:
        offset = np.broadcast_to(at_of(), mask.shape).view(np.int32)
        offset = np.where(offset < 0, offset + CONSTANT_BYTES, offset)
        last = len(bank) - kind.itemsize
        if (((offset < 0) | (offset > last)) & mask).any() or (
            (offset % kind.itemsize != 0) & mask
        ).any():
            raise SassError(f"{i}: outside constant bank {match[1]}, or not aligned")
        if is_indexed and t.counted.any():
            t.counts["constant_wavefronts"] += _distinct(offset, mask & t.counted)
        first = np.clip(offset, 0, last) // kind.itemsize * max(1, kind.itemsize // 4)
        words = bank[: len(bank) // 16 * 16].view(kind if kind.itemsize < 4 else np.uint32)
        for order, write in enumerate(writers):
            write(words[first + order], mask)

    return run


def _kind(modifiers: frozenset[str]) -> np.dtype:
    names = {"U8": "u1", "S8": "i1", "U16": "u2", "S16": "i2", "64": "u8", "128": "V16"}
    return np.dtype(names[next(iter(modifiers))] if modifiers else "u4")


def _distinct(values: Array, mask: Array) -> int:
    """The number of different values in each warp, summed over all warps."""
    ordered = np.sort(np.where(mask, values.astype(np.int64), -1), axis=1)
    return int((ordered[:, 0] >= 0).sum() + (np.diff(ordered, axis=1) > 0).sum())
