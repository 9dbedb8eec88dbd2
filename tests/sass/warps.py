"""Communication between the threads of a warp."""

import re

import numpy as np

from tests.sass.arithmetic import Run
from tests.sass.listing import Instruction
from tests.sass.operands import Operands
from tests.sass.threads import Array, SassError, Threads, lane_bits


def shfl(i: Instruction, t: Threads) -> Run:
    """``SHFL.mode P, Rd, Ra, b, c``: Ra of another lane; P says whether the lane exists.

    Bits 0 to 4 of c hold the last lane, and bits 8 to 12 a mask of the bits of a lane's number that
    name its segment. Source: PTX ISA, shfl.sync.
    """
    (mode,) = i.allow("IDX", "UP", "DOWN", "BFLY")
    o = Operands(i, t)
    p, d, a, b, c = i.take(5)
    write_p, write = o.write_predicate(p), o.write(d)
    a_of, b_of, c_of = o.value(a), o.value(b), o.value(c)

    def run(mask: Array) -> None:
        lane = t.lane.astype(np.int64)
        by, bounds = b_of().astype(np.int64) & 31, c_of().astype(np.int64)
        segment, clamp = (bounds >> 8) & 31, bounds & 31
        last = (lane & segment) | (clamp & ~segment & 31)
        source = {
            "UP": lane - by,
            "DOWN": lane + by,
            "BFLY": lane ^ by,
            "IDX": (lane & segment) | (by & ~segment),
        }[mode]
        is_there = source >= last if mode == "UP" else source <= last
        source = np.where(is_there, source, lane)
        if (mask & ~np.take_along_axis(mask, source, axis=1)).any():
            raise SassError(f"{i}: a lane reads one that does not take part")
        values = np.take_along_axis(np.broadcast_to(a_of(), mask.shape), source, axis=1)
        write(values, mask)
        write_p(is_there, mask)

    return run


def vote(i: Instruction, t: Threads) -> Run:
    """``VOTE.{ANY|ALL|EQ} [Rd,] [P,] Pa``: Rd has a bit for each lane where Pa holds."""
    (mode,) = i.allow("ANY", "ALL", "EQ")
    o = Operands(i, t)
    *targets, source = i.take(2, 3)
    source_of = o.predicate(source)
    numbers = [o.write(text) for text in targets if re.match(r"U?R", text)]
    predicates = [o.write_predicate(text) for text in targets if re.match(r"U?P", text)]
    is_uniform = i.opcode == "VOTEU"

    def run(mask: Array) -> None:
        holds = np.broadcast_to(source_of(), mask.shape)
        some = (holds & mask).any(axis=1, keepdims=True)
        every = ~(~holds & mask).any(axis=1, keepdims=True)
        to = mask.any(axis=1, keepdims=True) if is_uniform else mask
        bits = lane_bits(holds & mask)
        for write in numbers:
            write(bits, to)
        for write in predicates:
            none = ~some
            write({"ANY": some, "ALL": every, "EQ": every | none}[mode], to)

    return run


def match(i: Instruction, t: Threads) -> Run:
    """``MATCH.ANY Rd, Ra``: the lanes with the same value; ``MATCH.ALL P, Rd, Ra``: all or none."""
    modifiers = i.allow("ANY", "ALL", "U64")
    o = Operands(i, t)
    *predicate, d, a = i.take(2, 3)
    a_of = o.wide(a) if "U64" in modifiers else o.value(a)
    write = o.write(d)
    write_p = o.write_predicate(predicate[0]) if predicate else None

    def run(mask: Array) -> None:
        values = np.broadcast_to(a_of(), mask.shape)
        same = (values[:, :, None] == values[:, None, :]) & mask[:, None, :]
        bits = lane_bits(same)[..., 0]
        if "ALL" in modifiers:
            agree = bits == lane_bits(mask)
            bits = np.where(agree, bits, np.uint32(0))
            if write_p:
                write_p(agree, mask)
        write(bits, mask)

    return run


_REDUCTIONS = {
    "": (np.bitwise_and, 0xFFFFFFFF),
    "OR": (np.bitwise_or, 0),
    "XOR": (np.bitwise_xor, 0),
    "SUM": (np.add, 0),
    "MIN": (np.minimum, 0xFFFFFFFF),
    "MAX": (np.maximum, 0),
}


def redux(i: Instruction, t: Threads) -> Run:
    """``REDUX.op URd, Ra``: reduces the values of a warp; without an operation, with "and"."""
    modifiers = i.allow("OR", "XOR", "SUM", "MIN", "MAX", "S32")
    if modifiers > {"S32"} and not modifiers & {"SUM"}:
        raise i.unknown("a signed minimum or maximum of a warp")
    function, neutral = _REDUCTIONS["".join(modifiers - {"S32"})]
    o = Operands(i, t)
    d, a = i.take(2)
    write, a_of = o.write(d), o.value(a)

    def run(mask: Array) -> None:
        values = np.where(mask, a_of(), np.uint32(neutral))
        result = function.reduce(values, axis=1, keepdims=True)
        write(result, mask.any(axis=1, keepdims=True))

    return run
