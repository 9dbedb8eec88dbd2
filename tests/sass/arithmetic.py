"""Integer sums, products, minima and maxima."""

from collections.abc import Callable
from functools import reduce

import numpy as np

from tests.sass.listing import Instruction
from tests.sass.operands import ONE_33, Operands, Reader, is_negated
from tests.sass.threads import Array, Threads

Run = Callable[[Array], None]  # executes an instruction for the threads in a mask
U64 = np.uint64
MASK_32 = np.uint64(0xFFFFFFFF)
BITS_32 = np.uint64(32)


def _carries_out(o: Operands, names: tuple[str, ...]) -> Callable[[Array, Array], None]:
    """A function that writes the carries of a sum: one set at 2**32 and above, one at 2**33."""
    writers = [o.write_predicate(name) for name in names]

    def write(total: Array, mask: Array) -> None:
        carry = total >> BITS_32
        for order, writer in enumerate(writers, 1):
            writer(carry >= U64(order), mask)

    return write


def iadd3(i: Instruction, t: Threads) -> Run:
    """``IADD3 Rd, [Pcarry, [Pcarry2,]] Ra, Rb, Rc``; with .X, incoming carries follow Rc."""
    o = Operands(i, t)
    extended = "X" in i.allow("X")
    carries, rest = i.results
    if len(rest) not in ((4, 5) if extended else (3,)) or len(carries) > 2:
        raise i.unknown("this form")
    terms = [o.addend(text) for text in rest[:3] if text not in ("RZ", "URZ")]
    terms += [o.predicate(text) for text in rest[3:] if text not in ("!PT", "!UPT")]
    if extended and any(map(is_negated, rest)):
        raise i.unknown("a negated term of an extended sum")
    write, write_carries = o.write(i.operands[0]), _carries_out(o, carries)

    def run(mask: Array) -> None:
        total = np.zeros((1, 1), U64)
        for term in terms:
            total = total + term()
        write(total, mask)
        write_carries(total, mask)

    return run


def calculated(i: Instruction, t: Threads, count: int, function: Callable[..., Array]) -> Run:
    """An instruction that writes a function of `count` 32-bit operands."""
    o = Operands(i, t)
    d, *sources = i.take(1 + count)
    write, readers = o.write(d), [o.value(source) for source in sources]
    return lambda mask: write(function(*(read() for read in readers)), mask)


def viadd(i: Instruction, t: Threads) -> Run:
    i.allow()
    return calculated(i, t, 2, np.add)


def vimnmx(i: Instruction, t: Threads) -> Run:
    """``VIMNMX Rd, Ra, Rb, P``: the minimum if P holds, else the maximum; VIMNMX3: of three."""
    o = Operands(i, t)
    d, *terms, p = i.take(5 if i.opcode.endswith("3") else 4)
    return _least_or_most(i, o, d, [o.value(term) for term in terms], p)


def viaddmnmx(i: Instruction, t: Threads) -> Run:
    """``VIADDMNMX Rd, Ra, Rb, Rc, P``: the minimum or maximum of Ra + Rb and Rc."""
    o = Operands(i, t)
    d, a, b, c, p = i.take(5)
    a_of, b_of = o.value(a), o.value(b)
    return _least_or_most(i, o, d, [lambda: a_of() + b_of(), o.value(c)], p)


def _least_or_most(i: Instruction, o: Operands, d: str, values: list[Reader], p: str) -> Run:
    """The choice of a minimum or maximum; with .RELU, 0 if it is negative."""
    modifiers = i.allow("U32", "RELU")
    if modifiers == {"U32", "RELU"}:
        raise i.unknown("RELU of unsigned numbers")
    kind = np.uint32 if "U32" in modifiers else np.int32
    write, is_least = o.write(d), o.predicate(p)

    def run(mask: Array) -> None:
        read = [value().view(kind) for value in values]
        extremes = np.where(is_least(), reduce(np.minimum, read), reduce(np.maximum, read))
        write(np.maximum(extremes, 0) if "RELU" in modifiers else extremes, mask)

    return run


def imad(i: Instruction, t: Threads) -> Run:
    """``IMAD``: the low 32 bits of a * b + c; with .HI the high ones of a 64-bit sum, .WIDE all 64.

    .MOV, .SHL and .IADD only show what the compiler meant with a or b.
    """
    modifiers = i.allow("MOV", "SHL", "IADD", "U32", "HI", "WIDE", "X")
    if modifiers & {"HI", "WIDE"}:
        return _imad_64(i, t, modifiers)
    o = Operands(i, t)
    extended = "X" in modifiers
    d, a, b, c, *carry = i.take(5 if extended else 4)
    if extended and is_negated(c):
        raise i.unknown("a negated term of an extended sum")
    write, c_of = o.write(d), o.value(c)
    product = _product_32(o, a, b)
    carry_of = o.predicate(carry[0]) if carry else None

    def run(mask: Array) -> None:
        total = c_of() if product is None else product() + c_of()
        write(total + carry_of() if carry_of else total, mask)

    return run


def _product_32(o: Operands, a: str, b: str) -> Reader | None:
    """A reader of the low half of a product; None if it is 0."""
    if {a, b} & {"RZ", "URZ"}:
        return None
    if b == "0x1":
        return o.value(a)
    a_of, b_of = o.value(a), o.value(b)
    return lambda: a_of() * b_of()


def _imad_64(i: Instruction, t: Threads, modifiers: frozenset[str]) -> Run:
    o = Operands(i, t)
    carries, rest = i.results
    extended = "X" in modifiers
    if len(rest) != 3 + extended or len(carries) > 1 or modifiers & {"MOV", "SHL", "IADD"}:
        raise i.unknown("this form")
    a, b, c, *carry = rest
    a_of, b_of = (o.value(a), o.value(b)) if "U32" in modifiers else (o.signed(a), o.signed(b))
    c_of = o.wide(c)
    carry_of = o.predicate(carry[0]) if carry else None
    write_carry = o.write_predicate(carries[0]) if carries else None
    write = o.write if "HI" in modifiers else o.write_wide
    write_to = write(i.operands[0])

    def run(mask: Array) -> None:
        product = a_of().astype(np.int64).view(U64) * b_of().astype(np.int64).view(U64)
        total = product + c_of()
        carried = total < product
        if carry_of:
            extra = carry_of().astype(U64)
            total = total + extra
            carried = carried | (total < extra)
        write_to(total >> BITS_32 if "HI" in modifiers else total, mask)
        if write_carry:
            write_carry(carried, mask)

    return run


def lea(i: Instruction, t: Threads) -> Run:
    """``LEA Rd, [P,] Ra, Rb, n``: (a << n) + b; .HI adds the high half of a shifted pair."""
    modifiers = i.allow("HI", "X", "SX32")
    o = Operands(i, t)
    carries, rest = i.results
    count = 3 + ("HI" in modifiers and "SX32" not in modifiers) + ("X" in modifiers)
    if len(rest) != count or len(carries) > 1:
        raise i.unknown("this form")
    a, b, *more = rest
    carry_of = o.predicate(more.pop()) if "X" in modifiers else None
    shift = U64(int(more.pop(), 0))
    if is_negated(a) and "HI" in modifiers:
        raise i.unknown("the high half of a negated term")
    shifted = _shifted(o, modifiers, a, more, shift)
    b_of, write = o.addend(b), o.write(i.operands[0])
    if carry_of and is_negated(b):
        raise i.unknown("a negated term of an extended sum")
    write_carries = _carries_out(o, carries)

    def run(mask: Array) -> None:
        total = shifted() + b_of()
        if carry_of:
            total = total + carry_of()
        write(total, mask)
        write_carries(total, mask)

    return run


def _shifted(
    o: Operands, modifiers: frozenset[str], a: str, more: list[str], shift: np.uint64
) -> Reader:
    """A reader of LEA's shifted term, 32 bits of it, negated as `Operands.addend` does."""
    low = o.value(a.removeprefix("-"))
    if is_negated(a):
        return lambda: ONE_33 - ((low().astype(U64) << shift) & MASK_32)
    if "HI" not in modifiers:
        return lambda: (low().astype(U64) << shift) & MASK_32
    if "SX32" in modifiers:
        signed = o.signed(a)
        return lambda: (signed().view(U64) << shift) >> BITS_32
    high = o.value(more[0])
    return lambda: ((low().astype(U64) | (high().astype(U64) << BITS_32)) << shift) >> BITS_32
