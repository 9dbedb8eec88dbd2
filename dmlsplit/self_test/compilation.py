"""Every program of the self-test, compiled and loaded before it is used."""

from time import perf_counter
from typing import NamedTuple

from dmlsplit.backends.cuda import driver
from dmlsplit.backends.cuda.planner import plan
from dmlsplit.self_test.cases import CASES


class Programs(NamedTuple):
    """The programs of a device. Registers and bytes are of a thread; None if CuPy hides them."""

    kernels: tuple[str, ...]  # their names, one for each program
    seconds: float  # to compile, or to read from disk, and to load
    registers: int | None  # the most
    spilled_bytes: int | None  # the most local memory, which kernels should not use


def compile_programs(number: int) -> Programs:
    """Compile the programs of all splits for a CUDA device."""
    loaded, begin = driver.load(), perf_counter()
    limits, load = loaded.limits(number), loaded.kernels(number)
    names = {
        one.code.source: one.code.kernel
        for case in CASES
        for launch in plan(case.geometry, *case.alignments, limits)
        for one in (launch, *launch.siblings())
    }
    usages = [loaded.attributes(load(*item)) for item in names.items()]
    seconds = perf_counter() - begin
    known = [usage for usage in usages if usage is not None]
    registers, spilled = map(max, zip(*known, strict=True)) if known else (None, None)
    return Programs(tuple(names.values()), seconds, registers, spilled)
