"""Every opcode that kernels have: its function, and the pipe that executes it. Others are refused.

Sources: for the pipe of an opcode, Nsight Compute's documentation, "Pipelines"; for the lanes of a
pipe per clock, the CUDA C++ Programming Guide, "Throughput of native arithmetic instructions",
column 9.0.
"""

from collections.abc import Callable
from enum import StrEnum

from tests.sass import accesses, arithmetic, bits, control, moves, predicates
from tests.sass.arithmetic import Run
from tests.sass.listing import Instruction, Listing
from tests.sass.threads import Threads


class Pipe(StrEnum):
    """The pipe that executes an instruction."""

    ALU = "alu"
    IMAD = "imad"
    LSU = "lsu"
    UNIFORM = "uniform"
    OTHER = "other"  # branches


Build = Callable[[Instruction, Threads], Run]
BuildControl = Callable[[Instruction, Threads, Listing], Run]


def _nothing(i: Instruction, t: Threads) -> Run:
    return lambda mask: None


_ALU: dict[str, Build] = {
    "IADD3": arithmetic.iadd3,
    "VIADD": arithmetic.viadd,
    "VIMNMX": arithmetic.vimnmx,
    "VIMNMX3": arithmetic.vimnmx,
    "VIADDMNMX": arithmetic.viaddmnmx,
    "LEA": arithmetic.lea,
    "LOP3": bits.lop3,
    "PLOP3": bits.plop3,
    "SHF": bits.shf,
    "PRMT": bits.prmt,
    "ISETP": predicates.isetp,
    "SEL": predicates.sel,
    "P2R": predicates.p2r,
    "R2P": predicates.r2p,
    "MOV": moves.mov,
    "CS2R": moves.special,
}
_IMAD: dict[str, Build] = {"IMAD": arithmetic.imad, "HFMA2": moves.hfma2}
_LSU: dict[str, Build] = {
    "LDG": accesses.load,
    "STG": accesses.store,
    "LDS": accesses.load,
    "STS": accesses.store,
    "LDC": moves.ldc,
    "S2R": moves.special,
}
_OTHER: dict[str, Build] = {"NOP": _nothing}
# Instructions on values of a whole warp. The first kind only reads and writes uniform registers.
_SAME = ("IADD3", "LEA", "LOP3", "PLOP3", "SHF", "PRMT", "ISETP", "SEL", "MOV")
UNIFORM: dict[str, Build] = {f"U{name}": _ALU[name] for name in _SAME} | {
    "UIMAD": arithmetic.imad,
    "ULDC": moves.ldc,
    "S2UR": moves.special,
}
_FROM_LANES: dict[str, Build] = {"VOTEU": predicates.vote}
CONTROL: dict[str, BuildControl] = {
    "EXIT": control.exit_,
    "BRA": control.bra,
    "BSSY": control.bssy,
    "BSYNC": control.bsync,
    "BAR": control.bar,
}
PLAIN: dict[str, tuple[Build, Pipe]] = {
    name: (build, pipe)
    for builds, pipe in (
        (_ALU, Pipe.ALU),
        (_IMAD, Pipe.IMAD),
        (_LSU, Pipe.LSU),
        (_OTHER, Pipe.OTHER),
        (UNIFORM, Pipe.UNIFORM),
        (_FROM_LANES, Pipe.UNIFORM),
    )
    for name, build in builds.items()
}


def pipe(opcode: str) -> Pipe:
    """The pipe that executes an opcode."""
    return PLAIN[opcode][1] if opcode in PLAIN else Pipe.OTHER
