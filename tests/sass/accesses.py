"""Loads and stores of global and shared memory."""

import re
from collections.abc import Callable

import numpy as np

from tests.sass.arithmetic import U64, Run
from tests.sass.listing import SIZES, Instruction
from tests.sass.operands import Operands, Reader, following
from tests.sass.threads import Access, Array, Threads
from tests.sass.wavefronts import sectors, wavefronts

# Cache policies and memory orders do not change the bytes that an access moves.
_CACHING = ("E", "CONSTANT", "EF", "EL", "LU", "NA", "STRONG", "SM", "GPU", "SYS", "WEAK")
_PREFETCH = ("LTC64B", "LTC128B", "LTC256B")
_GLOBAL = re.compile(r"(?:desc\[UR\d+\])?\[(U?R\w+)\.64(?:\+(-?0x[0-9a-f]+))?\]")


def ldg(i: Instruction, t: Threads) -> Run:
    size = _size(i, *_CACHING, *_PREFETCH)
    o = Operands(i, t)
    d, place = i.take(2)
    address_of = _global(o, place)
    write = _load_writer(o, d, size)

    def run(mask: Array) -> None:
        access = Access(t, i, address_of(), mask, size)
        _count(access, "global_load")
        write(t.memory.load(access), mask)

    return run


def stg(i: Instruction, t: Threads) -> Run:
    size = _size(i, *_CACHING)
    o = Operands(i, t)
    place, source = i.take(2)
    address_of, words = _global(o, place), _words(o, source, size)

    def run(mask: Array) -> None:
        access = Access(t, i, address_of(), mask, size)
        _count(access, "global_store")
        t.memory.store(access, [np.broadcast_to(word(), mask.shape) for word in words])

    return run


def lds(i: Instruction, t: Threads) -> Run:
    size = _size(i)
    o = Operands(i, t)
    d, place = i.take(2)
    address_of, write = o.sum_of(place.strip("[]")), _load_writer(o, d, size)

    def run(mask: Array) -> None:
        access = _shared_access(t, i, address_of(), mask, size)
        _count(access, "shared_load")
        first = _shared_index(access)
        memory = t.shared.view(_kind(size))
        write([memory[first + n] for n in range(max(1, size // 4))], mask)

    return run


def sts(i: Instruction, t: Threads) -> Run:
    size = _size(i)
    o = Operands(i, t)
    place, source = i.take(2)
    address_of, words = o.sum_of(place.strip("[]")), _words(o, source, size)

    def run(mask: Array) -> None:
        access = _shared_access(t, i, address_of(), mask, size)
        _count(access, "shared_store")
        first = _shared_index(access)[mask]
        memory = t.shared.view(_kind(size))
        for n, word in enumerate(words):
            memory[first + n] = np.broadcast_to(word(), mask.shape)[mask].astype(memory.dtype)

    return run


def _size(i: Instruction, *allowed: str) -> int:
    """The bytes of an access."""
    i.allow(*SIZES, *allowed)
    return i.size


def _kind(size: int) -> type[np.unsignedinteger]:
    return {1: np.uint8, 2: np.uint16}.get(size, np.uint32)


def _words(o: Operands, text: str, size: int) -> list[Reader]:
    return [o.value(following(text, n)) for n in range(max(1, size // 4))]


def _load_writer(o: Operands, text: str, size: int) -> Callable[[list[Array], Array], None]:
    writers = [o.write(following(text, n)) for n in range(max(1, size // 4))]

    def write(words: list[Array], mask: Array) -> None:
        for writer, word in zip(writers, words, strict=True):
            writer(word, mask)

    return write


def _global(o: Operands, text: str) -> Reader:
    found = _GLOBAL.fullmatch(text)
    if not found:
        raise o.instruction.unknown(f"the address {text}")
    base = o.wide(found[1])
    offset = U64(int(found[2] or "0", 16) % (1 << 64))
    return lambda: base() + offset


def _shared_access(t: Threads, i: Instruction, addresses: Array, mask: Array, size: int) -> Access:
    access = Access(t, i, addresses, mask, size)
    outside = access.addresses.astype(np.int64) + size > t.shared_bytes
    access.refuse_if(outside, f"outside the {t.shared_bytes} bytes of shared memory")
    return access


def _shared_index(access: Access) -> Array:
    """The index of each thread's first word in the shared memory of all blocks."""
    t = access.threads
    unit = min(access.size, 4)
    inside = np.where(access.mask, access.addresses.astype(np.int64), 0)
    return (t.of_block * t.shared_bytes + inside) // unit


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
