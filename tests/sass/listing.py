"""Instructions, read from nvdisasm's listing of a cubin, and the constants of the cubin."""

import re
import struct
from dataclasses import dataclass

BYTES = 16  # of an instruction

_LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)(?:\s+(.*?))?\s*;")
_LABEL = re.compile(r"^([.$\w]+):$")
_TARGET = re.compile(r"^`\((\S+)\)$")
_REGISTER = re.compile(r"\bR(\d+)\b")
SIZES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}  # of accesses, in bytes
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

    def unknown(self, what: str) -> UnknownCodeError:
        """The error that refuses this instruction."""
        return UnknownCodeError(
            f"{self}: {what} is not known. Add it to tests/sass, with a test that runs it."
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
    """The code of a kernel and of the functions it calls, and the index of each label."""

    instructions: tuple[Instruction, ...]
    labels: dict[str, int]

    def target(self, instruction: Instruction) -> int:
        """The index that a jump goes to."""
        found = _TARGET.match(instruction.operands[-1])
        if not found or found[1] not in self.labels:
            raise instruction.unknown(f"the target {instruction.operands[-1]}")
        return self.labels[found[1]]

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
    """The listing that nvdisasm would print of this code; lines that end in a colon are labels."""
    text, address = "", 0
    for line in lines:
        text += f"{line}\n" if line.endswith(":") else f"        /*{address:04x}*/    {line} ;\n"
        address += 0 if line.endswith(":") else BYTES
    return text


def parse(text: str) -> Listing:
    """The instructions of a cubin with one kernel."""
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        label = _LABEL.match(line.strip())
        if label:
            labels[label[1]] = len(instructions)
        found = _LINE.search(line)
        if found:
            address, predicate, name, operands = found.groups()
            if int(address, 16) != len(instructions) * BYTES:
                raise UnknownCodeError(f"{line.strip()}: code of more than one kernel")
            opcode, *modifiers = name.split(".")
            instructions.append(
                Instruction(
                    len(instructions), predicate or "", opcode, tuple(modifiers), _split(operands)
                )
            )
    return Listing(tuple(instructions), labels)


def _split(operands: str | None) -> tuple[str, ...]:
    """The operands, cut at commas, which sm_90 never has inside brackets; RET has no operands."""
    text = re.sub(r"(?<=\w) `", ", `", (operands or "").replace(".reuse", ""))
    return tuple(part.strip() for part in text.split(",")) if text else ()


def constant_banks(cubin: bytes) -> dict[int, bytes]:
    """The constant banks of a cubin with one kernel, by number, from its ELF sections."""
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    entry, count, names_at = struct.unpack_from("<HHH", cubin, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", cubin, table + i * entry) for i in range(count)]
    names = sections[names_at][4]
    banks = {}
    for name, _, _, _, at, size in sections:
        start = names + name
        found = _CONSTANT.match(cubin[start : cubin.index(b"\0", start)].decode())
        if found:
            banks[int(found[1])] = cubin[at : at + size]
    return banks
