"""Loads and stores of global and shared memory."""

import re
from dataclasses import dataclass

import numpy as np

from tests.sass.arithmetic import U64, Run
from tests.sass.listing import SIZES, Instruction
from tests.sass.operands import Operands, Reader, following
from tests.sass.threads import Access, Array, Memory, Threads
from tests.sass.wavefronts import sectors, wavefronts

# Cache policies and memory orders do not change the bytes that an access moves.
_CACHING = ("E", "CONSTANT", "EF", "EL", "LU", "NA", "STRONG", "SM", "GPU", "SYS", "WEAK")
_PREFETCH = ("LTC64B", "LTC128B", "LTC256B")
_GLOBAL = re.compile(r"(?:desc\[UR\d+\])?\[(U?R\w+)\.64(?:\+(-?0x[0-9a-f]+))?\]")


@dataclass(frozen=True)
class Shared:
    """The shared memory of all blocks; the addresses of each begin at 0."""

    threads: Threads

    def load(self, access: Access) -> list[Array]:
        """The words that threads get."""
        memory, first = self._placed(access)
        return [memory[first + n] for n in range(max(1, access.size // 4))]

    def store(self, access: Access, words: list[Array]) -> None:
        """Write the words of the threads that store."""
        memory, first = self._placed(access)
        for n, word in enumerate(words):
            memory[first[access.mask] + n] = word[access.mask].astype(memory.dtype)

    def _placed(self, access: Access) -> tuple[Array, Array]:
        """The memory as words of this size, and the index of each thread's first word."""
        t, size = self.threads, access.size
        address = np.where(access.mask, access.addresses.astype(np.int64), 0)
        access.refuse_if(
            address + size > t.shared_bytes, f"outside the {t.shared_bytes} bytes of shared memory"
        )
        kind = {1: np.uint8, 2: np.uint16}.get(size, np.uint32)
        return t.shared.view(kind), (t.of_block * t.shared_bytes + address) // min(size, 4)


def _space(o: Operands, place: str) -> tuple[str, Memory, Reader]:
    """The name of the memory that an instruction accesses, the memory, and the addresses."""
    i, t = o.instruction, o.threads
    if i.opcode.endswith("S"):
        i.allow(*SIZES)
        return "shared", Shared(t), o.sum_of(place.strip("[]"))
    i.allow(*SIZES, *_CACHING, *(_PREFETCH if i.opcode == "LDG" else ()))
    return "global", t.memory, _global(o, place)


def load(i: Instruction, t: Threads) -> Run:
    """``LDG`` and ``LDS``."""
    o = Operands(i, t)
    d, place = i.take(2)
    space, memory, address_of = _space(o, place)
    writers = [o.write(following(d, n)) for n in range(max(1, i.size // 4))]

    def run(mask: Array) -> None:
        access = Access(t, i, address_of(), mask, i.size)
        _count(access, f"{space}_load")
        for write, word in zip(writers, memory.load(access), strict=True):
            write(word, mask)

    return run


def store(i: Instruction, t: Threads) -> Run:
    """``STG`` and ``STS``."""
    o = Operands(i, t)
    place, source = i.take(2)
    space, memory, address_of = _space(o, place)
    words = [o.value(following(source, n)) for n in range(max(1, i.size // 4))]

    def run(mask: Array) -> None:
        access = Access(t, i, address_of(), mask, i.size)
        _count(access, f"{space}_store")
        memory.store(access, [np.broadcast_to(word(), mask.shape) for word in words])

    return run


def _global(o: Operands, text: str) -> Reader:
    match = _GLOBAL.fullmatch(text)
    if not match:
        raise o.instruction.unknown(f"the address {text}")
    base = o.wide(match[1])
    offset = U64(int(match[2] or "0", 16) % (1 << 64))
    return lambda: base() + offset


def _count(access: Access, kind: str) -> None:
    t = access.threads
    mask = access.mask & t.counted
    if not mask.any():
        return
    counts = t.counts
    counts[f"{kind}s"] += int(mask.any(axis=1).sum())
    counts[f"{kind}_bytes"] += int(mask.sum()) * access.size
    counts[f"{kind}_wavefronts"] += wavefronts(access.addresses, mask, access.size)
    if kind == "global_load":
        counts["global_load_sectors"] += sectors(access.addresses, mask)
