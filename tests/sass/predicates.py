"""Comparisons, choices, votes, and predicates as numbers."""

import operator

import numpy as np

from tests.sass.arithmetic import Run
from tests.sass.listing import Instruction
from tests.sass.operands import Operands
from tests.sass.threads import PREDICATES, Array, Threads

_COMPARISONS = {
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "EQ": operator.eq,
    "NE": operator.ne,
}
_STRICT = {"LE": operator.lt, "GE": operator.gt}
_COMBINED = {"AND": operator.and_, "OR": operator.or_, "XOR": operator.xor}


def isetp(i: Instruction, t: Threads) -> Run:
    """``ISETP.cmp.combine P, Q, Ra, Rb, Pc``: P is (a cmp b) combined with Pc, Q its opposite.

    With .EX the operands are high words, and the last predicate is the comparison of the low ones.
    """
    modifiers = i.allow("U32", "EX", *_COMPARISONS, *_COMBINED)
    (name,) = modifiers & set(_COMPARISONS)
    (combination,) = modifiers & set(_COMBINED)
    combine = _COMBINED[combination]
    o = Operands(i, t)
    p, q, a, b, accumulated, *low = i.take(6 if "EX" in modifiers else 5)
    reads = o.value if "U32" in modifiers else o.signed
    a_of, b_of, accumulated_of = reads(a), reads(b), o.predicate(accumulated)
    low_of = o.predicate(low[0]) if low else None
    write_p, write_q = o.write_predicate(p), o.write_predicate(q)

    def holds() -> Array:
        x, y = a_of(), b_of()
        if low_of is None:
            return _COMPARISONS[name](x, y)
        if name == "NE":
            return (x != y) | low_of()
        decided = x != x if name == "EQ" else _STRICT.get(name, _COMPARISONS[name])(x, y)
        return decided | ((x == y) & low_of())

    def run(mask: Array) -> None:
        condition, combined_with = holds(), accumulated_of()
        result, opposite = combine(condition, combined_with), combine(~condition, combined_with)
        write_p(result, mask)
        write_q(opposite, mask)

    return run


def sel(i: Instruction, t: Threads) -> Run:
    """``SEL Rd, Ra, Rb, P``: a if P holds, else b."""
    i.allow()
    o = Operands(i, t)
    d, a, b, p = i.take(4)
    write, a_of, b_of, predicate_of = o.write(d), o.value(a), o.value(b), o.predicate(p)
    return lambda mask: write(np.where(predicate_of(), a_of(), b_of()), mask)


def p2r(i: Instruction, t: Threads) -> Run:
    """``P2R Rd, PR, Ra, bits``: Ra with these bits replaced by the predicates of their numbers."""
    i.allow()
    o = Operands(i, t)
    d, source, a, bits = i.take(4)
    if source != "PR":
        raise i.unknown(f"the operand {source}")
    write, a_of, mask_bits = o.write(d), o.value(a), int(bits, 0)

    def run(mask: Array) -> None:
        value = a_of() & np.uint32(~mask_bits & 0xFFFFFFFF)
        for number in range(PREDICATES):
            if mask_bits >> number & 1:
                value = value | (t.predicates[number].astype(np.uint32) << np.uint32(number))
        write(value, mask)

    return run


def r2p(i: Instruction, t: Threads) -> Run:
    """``R2P PR, Ra, bits``: sets these predicates to the bits of the same number."""
    i.allow()
    o = Operands(i, t)
    target, a, bits = i.take(3)
    if target != "PR":
        raise i.unknown(f"the operand {target}")
    a_of, mask_bits = o.value(a), int(bits, 0)

    def run(mask: Array) -> None:
        value = a_of()
        for number in range(PREDICATES):
            if mask_bits >> number & 1:
                bit = (value >> np.uint32(number)) & np.uint32(1)
                np.copyto(t.predicates[number], bit != 0, where=mask)

    return run


def vote(i: Instruction, t: Threads) -> Run:
    """``VOTEU.{ANY|ALL} UP, Pa``: whether Pa holds in some lane, or in all."""
    (mode,) = i.allow("ANY", "ALL")
    o = Operands(i, t)
    target, source = i.take(2)
    source_of, write = o.predicate(source), o.write_predicate(target)

    def run(mask: Array) -> None:
        holds = np.broadcast_to(source_of(), mask.shape)
        holds_somewhere, fails_somewhere = (
            part.any(axis=1, keepdims=True) for part in (holds & mask, ~holds & mask)
        )
        write(
            holds_somewhere if mode == "ANY" else ~fails_somewhere, mask.any(axis=1, keepdims=True)
        )

    return run
