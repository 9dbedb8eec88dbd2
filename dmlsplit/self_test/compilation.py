"""Every program of the self-test, compiled and loaded before it is used."""

from collections.abc import Iterable
from time import perf_counter
from typing import NamedTuple

from dmlsplit.backends.cuda import driver
from dmlsplit.backends.cuda.planner import plan
from dmlsplit.self_test.cases import CASES, Case, alignments


class Programs(NamedTuple):
    """The programs of a device. Registers and bytes are of a thread; None if CuPy hides them."""

    kernels: tuple[str, ...]  # their names, one for each program
    seconds: float  # to compile, or to read from disk, and to load
    registers: int | None  # the most
    spilled_bytes: int | None  # the most local memory, which kernels should not use


def compile_programs(number: int, cases: Iterable[Case] = CASES) -> Programs:
    """Compile the programs of splits for a CUDA device."""
    loaded, begin, names = driver.load(), perf_counter(), {}
    load, attributes = loaded.kernels(number), []
    for case in cases:
        for launch in plan(case.geometry, *alignments(case), loaded.limits(number)):
            for program in (launch, *launch.siblings()):
                code = program.code
                if code.source not in names:
                    names[code.source] = code.kernel
                    attributes.append(loaded.attributes(load(code.source, code.kernel)))
    seconds = perf_counter() - begin
    registers, spilled = map(max, zip(*attributes, strict=True)) if attributes else (None, None)
    return Programs(tuple(names.values()), seconds, registers, spilled)
