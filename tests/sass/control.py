"""Jumps, and threads that wait for each other.

The threads that reached an instruction are already past it, also those outside its mask.
"""

import re

import numpy as np

from tests.sass.arithmetic import Run
from tests.sass.listing import Instruction, Listing
from tests.sass.operands import Operands
from tests.sass.threads import Array, SassError, Threads, Waits


def exit_(i: Instruction, t: Threads, listing: Listing) -> Run:
    i.allow()
    i.take(0)

    def run(mask: Array) -> None:
        t.alive &= ~mask
        release_branches(t)

    return run


def bra(i: Instruction, t: Threads, listing: Listing) -> Run:
    """``BRA [P,] target``; .U has a uniform predicate."""
    i.allow("U")
    o = Operands(i, t)
    *condition, _ = i.take(1, 2)
    target = listing.target(i)
    holds = o.predicate(condition[0] if condition else "PT")

    def run(mask: Array) -> None:
        np.copyto(t.pc, target, where=mask & holds())

    return run


def bssy(i: Instruction, t: Threads, listing: Listing) -> Run:
    """``BSSY Bn, target``: the threads of a warp that are here together will meet at BSYNC Bn."""
    i.allow("RECONVERGENT")
    name, _ = i.take(2)
    parties = t.parties[_barrier(i, name)]

    def run(mask: Array) -> None:
        t.counts["parties"] += 1
        np.copyto(parties, t.counts["parties"], where=mask)

    return run


def bsync(i: Instruction, t: Threads, listing: Listing) -> Run:
    """``BSYNC Bn``: wait until all threads that met at BSSY Bn, and still take part, are here."""
    i.allow("RECONVERGENT")
    (name,) = i.take(1)
    number = _barrier(i, name)

    def run(mask: Array) -> None:
        arrived_threads = mask & (t.parties[number] != 0)
        if _others_are_out(t, number, arrived_threads):
            t.parties[number][arrived_threads] = 0
            return
        t.waits[arrived_threads] = Waits.BRANCH
        t.barrier[arrived_threads] = number
        release_branches(t)

    return run


def _others_are_out(t: Threads, number: int, arrived_threads: Array) -> bool:
    """Whether all threads of these warps that take part in a barrier have reached it."""
    other_threads = t.alive & (t.parties[number] != 0) & ~arrived_threads
    return not other_threads[arrived_threads.any(axis=1)].any()


def _barrier(i: Instruction, name: str) -> int:
    match = re.fullmatch(r"B(\d+)", name)
    if not match:
        raise i.unknown(f"the barrier {name}")
    return int(match[1])


def release_branches(t: Threads) -> None:
    """Continue threads at a BSYNC for which no other thread is missing any more."""
    waiting = t.waits == Waits.BRANCH
    for number in np.unique(t.barrier[waiting]):
        held_threads = waiting & (t.barrier == number)
        for party in np.unique(t.parties[number][held_threads]):
            members = t.alive & (t.parties[number] == party)
            is_whole = ~(members & ~held_threads).any(axis=1, keepdims=True)
            free = held_threads & members & is_whole
            t.waits[free] = Waits.NOTHING
            t.parties[number][free] = 0


def bar(i: Instruction, t: Threads, listing: Listing) -> Run:
    """``BAR.SYNC 0x0``: wait for all threads of the block."""
    if "SYNC" not in i.allow("SYNC", "DEFER_BLOCKING") or i.take(1) != ("0x0",):
        raise i.unknown("a barrier of some threads")

    def run(mask: Array) -> None:
        t.waits[mask] = Waits.BLOCK

    return run


def release_blocks(t: Threads) -> bool:
    """Continue the blocks of which all threads wait; return whether there were any."""
    shape = (len(t.blocks), -1)
    alive, waits = t.alive.reshape(shape), t.waits.reshape(shape)
    waiting = alive & (waits == Waits.BLOCK)
    is_whole = (waiting.any(axis=1) & (waiting == alive).all(axis=1))[:, None]
    pc = t.pc.reshape(shape)
    least = np.where(waiting, pc, pc.max()).min(axis=1, keepdims=True)
    if (is_whole & waiting & (pc != least)).any():
        raise SassError("threads of a block wait at different barriers")
    waits[waiting & is_whole] = Waits.NOTHING
    return bool(is_whole.any())
