"""Logic, shifts, bytes and bits of registers."""

from collections.abc import Callable

import numpy as np

from tests.sass.arithmetic import BITS_32, U64, Run, calculated
from tests.sass.listing import Instruction
from tests.sass.operands import Operands
from tests.sass.threads import Array, Threads

U32 = np.uint32


def lop3(i: Instruction, t: Threads) -> Run:
    """``LOP3.LUT [P,] Rd, Ra, Rb, Rc, table, !PT``: any function of three bits, from its table."""
    if "LUT" not in i.allow("LUT"):
        raise i.unknown("LOP3 without a table")
    o = Operands(i, t)
    with_predicate = i.operands[0].lstrip("U").startswith("P")
    p, d, a, b, c, table, last_predicate = i.take(7) if with_predicate else ("PT", *i.take(6))
    if last_predicate not in ("!PT", "!UPT"):
        raise i.unknown(f"the predicate {last_predicate}")
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
    """The function of a table: bit 4a + 2b + c of it is the result for bits a, b and c."""

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
    """``PLOP3.LUT P, Q, a, b, c, table, table``: the same for predicates, with two results."""
    i.allow("LUT")
    o = Operands(i, t)
    p, q, a, b, c, first, second = i.take(7)
    values = [o.predicate(text) for text in (a, b, c)]
    outputs = [
        (o.write_predicate(target), _table(int(table, 0)))
        for target, table in ((p, first), (q, second))
    ]

    def run(mask: Array) -> None:
        read = [value() for value in values]
        results = [function(*read) for _, function in outputs]
        for (write, _), result in zip(outputs, results, strict=True):
            write(result, mask)

    return run


def shf(i: Instruction, t: Threads) -> Run:
    """``SHF.{L|R} Rd, low, n, high``: the low word of the shifted pair; with .HI the high word.

    The count is clamped to the width of the type, or with .W reduced modulo the width.
    """
    modifiers = i.allow("L", "R", "W", "HI", "U32", "S32", "U64", "S64")
    o = Operands(i, t)
    d, low, count, *high = i.take(3, 4)
    write, low_of, high_of = o.write(d), o.value(low), o.value(high[0] if high else "RZ")
    width = 64 if modifiers & {"U64", "S64"} else 32
    count_of = o.value(count)
    is_signed = bool(modifiers & {"S32", "S64"})

    def run(mask: Array) -> None:
        pair = low_of().astype(U64) | (high_of().astype(U64) << BITS_32)
        shift_count = count_of()
        shift_count = (
            shift_count.astype(U64) % U64(width)
            if "W" in modifiers
            else _clamped(shift_count, width)
        )
        if "L" in modifiers:
            pair = pair << shift_count
        elif is_signed:
            pair = (pair.view(np.int64) >> shift_count.view(np.int64)).view(U64)
        else:
            pair = pair >> shift_count
        write(pair >> BITS_32 if "HI" in modifiers else pair, mask)

    return run


def prmt(i: Instruction, t: Threads) -> Run:
    """``PRMT Rd, Ra, selector, Rb``: four bytes of b:a, each chosen by 4 bits of the selector.

    Bit 3 of these repeats the byte's sign eight times instead.
    """
    i.allow()

    def permuted(a: Array, selector: Array, b: Array) -> Array:
        pair = a.astype(U64) | (b.astype(U64) << BITS_32)
        result = np.zeros((1, 1), U32)
        for place in range(0, 16, 4):
            nibble = selector >> U32(place)
            byte = (pair >> ((nibble & U32(7)) << U32(3)).astype(U64)).astype(np.uint8)
            sign = np.where(byte > 127, np.uint8(255), np.uint8(0))
            byte = np.where(nibble & U32(8), sign, byte)
            result = result | (byte.astype(U32) << U32(2 * place))
        return result

    return calculated(i, t, 3, permuted)


def _clamped(count: Array, width: int = 32) -> Array:
    return np.minimum(count.astype(U64), U64(width))
