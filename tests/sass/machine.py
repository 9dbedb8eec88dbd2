"""Run the code of some blocks to its end, with all their warps side by side.

The threads that are furthest behind run first: all threads at the same instruction, of any warp.
Warps affect each other only at barriers, and through shared memory between barriers, so the order
of warps does not matter. Threads of a warp that diverged continue together where the code says so
(BSYNC).
"""

from dataclasses import dataclass

import numpy as np

from tests.sass import control, opcodes
from tests.sass.arithmetic import Run
from tests.sass.listing import Instruction, Listing, UnknownCodeError
from tests.sass.operands import Operands, Reader
from tests.sass.threads import Array, SassError, Threads

MAX_STEPS = 1_000_000
FAR = np.int32(2**31 - 1)


@dataclass(frozen=True)
class Step:
    """One decoded instruction."""

    instruction: Instruction
    holds: Reader | None  # its predicate
    run: Run | None
    control: Run | None
    is_uniform: bool


class Machine:
    """A kernel's code, decoded for some threads.

    Attributes
    ----------
    issued : array of int
        For each instruction, how many warps of counted blocks issued it.
    """

    def __init__(self, listing: Listing, threads: Threads) -> None:
        self.threads = threads
        self.listing = listing
        self.steps: list[Step | None] = [None] * len(listing.instructions)
        self.issued = np.zeros(len(listing.instructions), np.int64)

    def run(self) -> None:
        """Run all threads to their end.

        Raises
        ------
        UnknownCodeError
            The code has an instruction that is not known.
        SassError
            The code did something that is forbidden.
        """
        t = self.threads
        step_count = 0
        while t.alive.any():
            ready = t.alive & (t.waits == 0)
            if ready.any():
                step_count += self._run_together(ready)
            elif not control.release_blocks(t):
                raise SassError("threads wait for each other forever")
            if step_count > MAX_STEPS:
                raise SassError(f"not at an end after {MAX_STEPS} steps")

    def _run_together(self, ready: Array) -> int:
        """Run the threads that are furthest behind until they diverge or meet others."""
        t = self.threads
        index = int(np.where(ready, t.pc, FAR).min())
        running = ready & (t.pc == index)
        others_at = int(np.where(ready & ~running, t.pc, FAR).min())
        warps = running.any(axis=1, keepdims=True)
        warp_count = int((warps & t.counted).sum())
        start = index
        while True:
            step = self._step(index)
            self.issued[index] += warp_count
            index += 1
            if step.control:
                np.copyto(t.pc, index, where=running)
                step.control(running & step.holds() if step.holds else running)
                break
            mask = warps if step.is_uniform else running
            if step.holds:
                mask = mask & step.holds()
            assert step.run
            if not step.holds or mask.any():
                step.run(mask)
            if index == others_at:
                np.copyto(t.pc, index, where=running)
                break
        return index - start

    def _step(self, index: int) -> Step:
        """Decode an instruction when it is first reached."""
        if index >= len(self.steps):
            raise SassError("a thread ran past the end of the code")
        step = self.steps[index]
        if step is None:
            step = self.steps[index] = self._decoded(self.listing.instructions[index])
        return step

    def _decoded(self, i: Instruction) -> Step:
        t = self.threads
        holds = Operands(i, t).predicate(i.predicate) if i.predicate else None
        is_uniform = i.opcode in opcodes.UNIFORM
        try:
            if i.opcode in opcodes.CONTROL:
                return Step(i, holds, None, opcodes.CONTROL[i.opcode](i, t, self.listing), False)
            if i.opcode in opcodes.PLAIN:
                return Step(i, holds, opcodes.PLAIN[i.opcode][0](i, t), None, is_uniform)
        except (ValueError, KeyError, IndexError) as error:
            raise i.unknown("this form") from error
        raise UnknownCodeError(str(i.unknown(f"the opcode {i.opcode}")))
