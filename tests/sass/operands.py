"""Operands, decoded once: readers that return arrays, and writers that take a mask.

A reader of 32 bits returns unsigned arrays that broadcast to (warps, 32); constants and
immediates are arrays of shape (1, 1), which wrap silently where NumPy's scalars would warn.
"""

import re
from collections.abc import Callable
from functools import cache, reduce

import numpy as np

from tests.sass.listing import Instruction, UnknownCodeError
from tests.sass.threads import Array, Threads

Reader = Callable[[], Array]
Writer = Callable[[Array, Array], None]  # values, mask

_CONSTANT = re.compile(r"c\[0x([0-9a-f]+)\]\[(-?0x[0-9a-f]+)\]")
_NUMBER = re.compile(r"-?0x[0-9a-f]+|-?\d+")
CONSTANT_BYTES = 1 << 16  # of a bank; nvdisasm prints offsets in its upper half as negative
ONE_33 = np.uint64(1 << 32)


@cache
def immediate(text: str) -> int | None:
    """A literal as 32 bits; None if `text` is not a literal."""
    return int(text, 0) & 0xFFFFFFFF if _NUMBER.fullmatch(text) else None


@cache
def register(text: str) -> tuple[bool, int] | None:
    """Whether a register is uniform, and its number; None if `text` is not a register."""
    match = re.fullmatch(r"(U?)R(\d+)", text)
    return (bool(match[1]), int(match[2])) if match else None


def is_negated(text: str) -> bool:
    """Whether an operand is a register or constant with a minus before it."""
    return text.startswith("-") and immediate(text) is None


class Operands:
    """Readers and writers of one instruction's operands."""

    def __init__(self, instruction: Instruction, threads: Threads) -> None:
        self.instruction = instruction
        self.threads = threads

    def value(self, text: str) -> Reader:
        """A reader of 32 bits; ``-`` negates and ``~`` inverts them."""
        if is_negated(text) or text.startswith("~"):
            plain = self.value(text[1:])
            change = np.negative if text[0] == "-" else np.invert
            return lambda: change(plain())
        view = self._view(text)
        return lambda: view

    def signed(self, text: str) -> Reader:
        """A reader of the same 32 bits as signed numbers, in 64 bits."""
        value = self.value(text)
        return lambda: value().view(np.int32).astype(np.int64)

    def addend(self, text: str) -> Reader:
        """A reader of a term of a sum with carry: ``-x`` is 2**32 - x, in 64 bits."""
        if is_negated(text):
            plain = self.value(text[1:])
            return lambda: ONE_33 - plain().astype(np.uint64)
        value = self.value(text)
        return lambda: value().astype(np.uint64)

    def wide(self, text: str) -> Reader:
        """A reader of 64 bits from a pair of registers."""
        if text.startswith("-"):
            plain = self.wide(text[1:])
            return lambda: np.negative(plain())
        low, high = self._view(text), self._view(following(text))
        return lambda: low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32))

    def sum_of(self, text: str) -> Reader:
        """A reader of a sum of 32 bits, such as the offset ``R4+UR2+0x210``."""
        parts = [self.value(part) for part in text.split("+")]
        return lambda: reduce(np.add, (part() for part in parts))

    def predicate(self, text: str) -> Reader:
        """A reader of a predicate; ``!`` inverts it."""
        if text.startswith("!"):
            plain = self.predicate(text[1:])
            return lambda: ~plain()
        view = self._predicate_view(text)
        return lambda: view

    def write(self, text: str) -> Writer:
        """A writer of the low 32 bits of its values."""
        if text in ("RZ", "URZ"):
            return lambda values, mask: None
        target = self._register(text)
        return lambda values, mask: np.copyto(target, values, where=mask, casting="unsafe")

    def write_wide(self, text: str) -> Writer:
        """A writer of 64 bits to a pair of registers."""
        low, high = self.write(text), self.write(following(text))

        def write(values: Array, mask: Array) -> None:
            low(values, mask)
            high(values >> np.uint64(32), mask)

        return write

    def write_predicate(self, text: str) -> Writer:
        """A writer of a predicate."""
        if text in ("PT", "UPT"):
            return lambda values, mask: None
        target = self._predicate_view(text)
        return lambda values, mask: np.copyto(target, values, where=mask)

    def _view(self, text: str) -> Array:
        """The array of an operand without a sign."""
        number = immediate(text)
        if number is not None or text in ("RZ", "URZ"):
            return np.full((1, 1), number or 0, np.uint32)
        constant = _CONSTANT.fullmatch(text)
        if constant:
            offset = int(constant[2], 16) % CONSTANT_BYTES
            return (
                self.bank(int(constant[1], 16))[offset : offset + 4].view(np.uint32).reshape(1, 1)
            )
        return self._register(text)

    def bank(self, number: int) -> Array:
        """A constant bank as bytes."""
        if number not in self.threads.banks:
            raise self.instruction.unknown(f"constant bank {number}")
        return self.threads.banks[number]

    def _register(self, text: str) -> Array:
        register_number = register(text)
        if not register_number:
            raise self.instruction.unknown(f"the operand {text}")
        threads = self.threads
        return (threads.uniform_registers if register_number[0] else threads.registers)[
            register_number[1]
        ]

    def _predicate_view(self, text: str) -> Array:
        if text in ("PT", "UPT"):
            return np.ones((1, 1), bool)
        match = re.fullmatch(r"(U?)P([0-6])", text)
        if not match:
            raise self.instruction.unknown(f"the predicate {text}")
        threads = self.threads
        return (threads.uniform_predicates if match[1] else threads.predicates)[int(match[2])]


@cache
def following(text: str, step: int = 1) -> str:
    """The operand that is `step` times 32 bits after another; RZ is followed by RZ."""
    if text in ("RZ", "URZ"):
        return text
    constant = _CONSTANT.fullmatch(text)
    if constant:
        return f"c[0x{constant[1]}][{int(constant[2], 16) + 4 * step:#x}]"
    register = re.fullmatch(r"(U?R)(\d+)", text)
    if not register:
        raise UnknownCodeError(f"{text}: no operand of 64 bits is known that begins so")
    return f"{register[1]}{int(register[2]) + step}"
