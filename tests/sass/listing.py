"""Instructions, read from what nvdisasm prints of code, and the code and constants of a cubin."""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.nvrtc import INSTRUCTION_BYTES as BYTES

_LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)(?:\s+(.*?))?\s*;")
_REGISTER = re.compile(r"\bR(\d+)\b")
SIZES = {"U8": 1, "U16": 2, "64": 8, "128": 16}  # of accesses, in bytes
_ADDRESS = re.compile(r"0x[0-9a-f]+")
_CONSTANT = re.compile(r"\.nv\.constant(\d+)")


class UnknownCodeError(Exception):
    """An opcode, modifier or operand that the interpreter does not know."""


@dataclass(frozen=True)
class Instruction:
    """One instruction: `index` counts from the first; `predicate` is like "!P0" or empty."""

    index: int
    predicate: str
    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[str, ...]

    def __str__(self) -> str:
        guard = f"@{self.predicate} " if self.predicate else ""
        text = f"/*{self.index * BYTES:04x}*/ {guard}{self.name} {', '.join(self.operands)}"
        return text.rstrip()

    @property
    def name(self) -> str:
        """The opcode with its modifiers."""
        return ".".join((self.opcode, *self.modifiers))

    @property
    def size(self) -> int:
        """The bytes of a load or store."""
        return next((SIZES[part] for part in self.modifiers if part in SIZES), 4)

    def unknown(self, unknown_part: str) -> UnknownCodeError:
        """The error that refuses this instruction."""
        return UnknownCodeError(
            f"{self}: {unknown_part} is not known. Add it to tests/sass, with a test that runs it."
        )

    def allow(self, *modifiers: str) -> frozenset[str]:
        """Its modifiers, if all are among these."""
        for modifier in self.modifiers:
            if modifier not in modifiers:
                raise self.unknown(f"the modifier .{modifier}")
        return frozenset(self.modifiers)

    def take(self, least: int, most: int | None = None) -> tuple[str, ...]:
        """Its operands, if their number is between `least` and `most`."""
        if not least <= len(self.operands) <= (most or least):
            raise self.unknown(f"a form with {len(self.operands)} operands")
        return self.operands

    @property
    def results(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The predicates after the first operand, which it also writes, and the other operands.

        ``IADD3 R0, P1, R2, R3, R4`` and ``LEA R0, P1, R2, R3, 0x4`` write P1, the carry.
        """
        count = 1
        while count < len(self.operands) and re.fullmatch(r"U?P[0-6T]", self.operands[count]):
            count += 1
        return self.operands[1:count], self.operands[count:]


@dataclass(frozen=True)
class Listing:
    """The code of a kernel, and the address where it starts."""

    instructions: tuple[Instruction, ...]
    start: int

    def target(self, instruction: Instruction) -> int:
        """The index that a jump goes to."""
        target = instruction.operands[-1]
        index = (int(target, 16) - self.start) // BYTES if _ADDRESS.fullmatch(target) else -1
        if not 0 <= index < len(self.instructions):
            raise instruction.unknown(f"the target {target}")
        return index

    def bytes_in_flight(self) -> int:
        """The most bytes of global loads that are in flight at once in one thread.

        The code is read in a straight line, and loads are assumed to arrive in order: an
        instruction that reads a register waits for the load that fills it and for all loads before.
        After an unconditional jump another path begins, which has only its own loads.
        """
        most = 0
        waiting: list[tuple[set[int], int]] = []
        for instruction in self.instructions:
            is_load = instruction.opcode == "LDG"
            sources = ",".join(instruction.operands[1 if is_load else 0 :])
            read = set(map(int, _REGISTER.findall(sources)))
            arrived = [i for i, (registers, _) in enumerate(waiting) if registers & read]
            if instruction.opcode in ("BRA", "EXIT") and not instruction.predicate:
                waiting.clear()
            if arrived:
                del waiting[: arrived[-1] + 1]
            if is_load:
                first = int(_REGISTER.findall(instruction.operands[0])[0])
                registers = set(range(first, first + max(1, instruction.size // 4)))
                waiting.append((registers, instruction.size))
                most = max(most, sum(size for _, size in waiting))
        return most


def printed(*lines: str) -> str:
    """The listing that nvdisasm would print of this code."""
    return "".join(f"/*{n * BYTES:04x}*/ {line} ;\n" for n, line in enumerate(lines))


def parse(text: str) -> Listing:
    """The instructions of one kernel, from any address."""
    instructions: list[Instruction] = []
    instruction_lines = _LINE.findall(text)
    start = int(instruction_lines[0][0], 16)
    for index, (address, predicate, name, operands) in enumerate(instruction_lines):
        if int(address, 16) != start + index * BYTES:
            raise UnknownCodeError(f"{address}: the instruction before it cannot be read")
        opcode, *modifiers = name.split(".")
        instructions.append(
            Instruction(index, predicate, opcode, tuple(modifiers), _split(operands))
        )
    return Listing(tuple(instructions), start)


def _split(operands: str) -> tuple[str, ...]:
    """The operands, cut at commas, which sm_90 never has inside brackets."""
    text = operands.replace(".reuse", "")
    return tuple(part.strip() for part in text.split(",")) if text else ()


def code(cubin: bytes) -> bytes:
    """The instructions of a cubin with one kernel."""
    (text_section,) = (data for name, data in _sections(cubin) if name.startswith(".text."))
    return text_section


def constant_banks(cubin: bytes) -> dict[int, bytes]:
    """The constant banks of a cubin with one kernel, by number."""
    bank_sections = ((_CONSTANT.match(name), data) for name, data in _sections(cubin))
    return {int(bank[1]): data for bank, data in bank_sections if bank}


def _sections(cubin: bytes) -> Iterator[tuple[str, bytes]]:
    """The ELF sections, by name."""
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    entry, count, names_at = struct.unpack_from("<HHH", cubin, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", cubin, table + i * entry) for i in range(count)]
    names = sections[names_at][4]
    for name, _, _, _, offset, size in sections:
        start = names + name
        yield cubin[start : cubin.index(b"\0", start)].decode(), cubin[offset : offset + size]
