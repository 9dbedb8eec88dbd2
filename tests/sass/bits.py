"""Logic, shifts, bytes and bits of registers."""

from collections.abc import Callable

import numpy as np

from tests.sass.arithmetic import BITS_32, U64, Run
from tests.sass.listing import Instruction
from tests.sass.operands import Operands, Reader, immediate
from tests.sass.threads import Array, Threads

U32 = np.uint32


def lop3(i: Instruction, t: Threads) -> Run:
    """``LOP3.LUT [P,] Rd, Ra, Rb, Rc, table, !PT``: any function of three bits, by its table."""
    if "LUT" not in i.allow("LUT"):
        raise i.unknown("LOP3 without a table")
    o = Operands(i, t)
    with_predicate = i.operands[0].lstrip("U").startswith("P")
    p, d, a, b, c, table, unused = i.take(7) if with_predicate else ("PT", *i.take(6))
    if unused not in ("!PT", "!UPT"):
        raise i.unknown(f"the predicate {unused}")
    function = _table(int(table, 0))
    write, write_predicate = o.write(d), o.write_predicate(p)
    values = [o.value(text) for text in (a, b, c)]

    def run(mask: Array) -> None:
        result = function(*(value() for value in values))
        write(result, mask)
        write_predicate(result != 0, mask)

    return run


_COMMON = {
    0xC0: lambda a, b, c: a & b,
    0xFC: lambda a, b, c: a | b,
    0x3C: lambda a, b, c: a ^ b,
    0x30: lambda a, b, c: a & ~b,
    0x0C: lambda a, b, c: ~a & b,
    0xF8: lambda a, b, c: a | (b & c),
    0xFE: lambda a, b, c: a | b | c,
    0x80: lambda a, b, c: a & b & c,
    0x96: lambda a, b, c: a ^ b ^ c,
    0xCA: lambda a, b, c: (a & b) | (~a & c),
    0xE8: lambda a, b, c: (a & b) | (a & c) | (b & c),
    0x33: lambda a, b, c: ~b,
}


def _table(table: int) -> Callable[[Array, Array, Array], Array]:
    """Return the function of a table: bit 4a + 2b + c of it is the result for bits a, b and c."""

    def function(a: Array, b: Array, c: Array) -> Array:
        result = np.zeros((1, 1), a.dtype)
        for index in range(8):
            if table >> index & 1:
                term = a if index & 4 else ~a
                term = term & (b if index & 2 else ~b)
                result = result | (term & (c if index & 1 else ~c))
        return result

    return _COMMON.get(table, function)


def plop3(i: Instruction, t: Threads) -> Run:
    """``PLOP3.LUT P, Q, a, b, c, table, table``: the same for predicates, two results."""
    i.allow("LUT")
    o = Operands(i, t)
    p, q, a, b, c, first, second = i.take(7)
    values = [o.predicate(text) for text in (a, b, c)]
    outputs = [
        (o.write_predicate(to), _table(int(table, 0))) for to, table in ((p, first), (q, second))
    ]

    def run(mask: Array) -> None:
        read = [value() for value in values]
        results = [function(*read) for _, function in outputs]
        for (write, _), result in zip(outputs, results, strict=True):
            write(result, mask)

    return run


def shf(i: Instruction, t: Threads) -> Run:
    """``SHF.{L|R} Rd, low, n, high``: the low word of the pair, shifted; with .HI the high one.

    The count is clamped to the width of the type, or with .W taken modulo that.
    """
    modifiers = i.allow("L", "R", "W", "HI", "U32", "S32", "U64", "S64")
    o = Operands(i, t)
    d, low, count, *high = i.take(3, 4)
    write, low_of, high_of = o.write(d), o.value(low), o.value(high[0] if high else "RZ")
    width = 64 if modifiers & {"U64", "S64"} else 32
    count_of = _shift_count(o, count, width, "W" in modifiers)
    is_signed = bool(modifiers & {"S32", "S64"})

    def run(mask: Array) -> None:
        pair = low_of().astype(U64) | (high_of().astype(U64) << BITS_32)
        if "L" in modifiers:
            pair = pair << count_of()
        elif is_signed:
            pair = (pair.view(np.int64) >> count_of().view(np.int64)).view(U64)
        else:
            pair = pair >> count_of()
        write(pair >> BITS_32 if "HI" in modifiers else pair, mask)

    return run


def _shift_count(o: Operands, text: str, width: int, wraps: bool) -> Reader:
    value = o.value(text)
    if immediate(text) is not None:
        fixed = value().astype(U64)
        fixed = fixed % U64(width) if wraps else np.minimum(fixed, U64(width))
        return lambda: fixed
    if wraps:
        return lambda: value().astype(U64) & U64(width - 1)
    return lambda: np.minimum(value().astype(U64), U64(width))


def prmt(i: Instruction, t: Threads) -> Run:
    """``PRMT Rd, Ra, selector, Rb``: four bytes of the pair b:a, each by 4 bits of the selector.

    Bit 3 of them takes the sign of the byte, eight times.
    """
    i.allow()
    o = Operands(i, t)
    d, a, selector, b = i.take(4)
    write, a_of, b_of, selector_of = o.write(d), o.value(a), o.value(b), o.value(selector)

    def run(mask: Array) -> None:
        pair = a_of().astype(U64) | (b_of().astype(U64) << BITS_32)
        chosen = selector_of()
        result = np.zeros((1, 1), U32)
        for place in range(0, 16, 4):
            nibble = chosen >> U32(place)
            byte = (pair >> ((nibble & U32(7)) << U32(3)).astype(U64)).astype(np.uint8)
            sign = np.where(byte > 127, np.uint8(255), np.uint8(0))
            byte = np.where(nibble & U32(8), sign, byte)
            result = result | (byte.astype(U32) << U32(2 * place))
        write(result, mask)

    return run


def bmsk(i: Instruction, t: Threads) -> Run:
    """``BMSK Rd, Ra, Rb``: b ones, the lowest at place a."""
    i.allow()
    o = Operands(i, t)
    d, a, b = i.take(3)
    write, first_of, count_of = (
        o.write(d),
        _shift_count(o, a, 32, False),
        _shift_count(o, b, 32, False),
    )
    one = U64(1)
    return lambda mask: write(((one << count_of()) - one) << first_of(), mask)


def sgxt(i: Instruction, t: Threads) -> Run:
    """``SGXT Rd, Ra, n``: the low n bits of a, filled with their sign, or with .U32 with zeros."""
    is_signed = "U32" not in i.allow("U32")
    o = Operands(i, t)
    d, a, n = i.take(3)
    write, a_of, count_of = o.write(d), o.value(a), _shift_count(o, n, 32, False)

    def run(mask: Array) -> None:
        left = U64(64) - count_of()
        top = a_of().astype(U64) << left  # NumPy shifts by 64 to 0
        write(top.view(np.int64) >> left.view(np.int64) if is_signed else top >> left, mask)

    return run


def brev(i: Instruction, t: Threads) -> Run:
    i.allow()
    return _unary(i, t, _reversed)


def _reversed(value: Array) -> Array:
    for shift, bits in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F)):
        value = ((value >> U32(shift)) & U32(bits)) | ((value & U32(bits)) << U32(shift))
    return np.ascontiguousarray(value).byteswap()


def popc(i: Instruction, t: Threads) -> Run:
    i.allow()
    return _unary(i, t, np.bitwise_count)


def flo(i: Instruction, t: Threads) -> Run:
    """``FLO.U32``: place of the highest set bit, with .SH its distance from bit 31; -1 if none."""
    modifiers = i.allow("U32", "SH")
    if "U32" not in modifiers:
        raise i.unknown("FLO of a signed number")

    def place(value: Array) -> Array:
        _, exponent = np.frexp(value.astype(np.float64))  # exact: 2**32 fits a float64
        found = 32 - exponent if "SH" in modifiers else exponent - 1
        return np.where(value == 0, np.int64(-1), found)

    return _unary(i, t, place)


def _unary(i: Instruction, t: Threads, function: Callable[[Array], Array]) -> Run:
    o = Operands(i, t)
    d, a = i.take(2)
    write, a_of = o.write(d), o.value(a)
    return lambda mask: write(function(a_of()), mask)
