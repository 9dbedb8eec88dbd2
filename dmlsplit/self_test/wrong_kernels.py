"""Kernels that are wrong on purpose. If the comparison does not notice, it has proved nothing."""

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from dmlsplit.backends import BoundCopy, Program
from dmlsplit.backends.cuda import driver
from dmlsplit.backends.cuda.engine import CudaProgram
from dmlsplit.backends.cuda.launch import DeviceLimits
from dmlsplit.backends.cuda.planner import plan
from dmlsplit.errors import DmlError
from dmlsplit.geometry import selector
from dmlsplit.self_test.cases import CASES, Case, alignments

# The one place of common.cuh that writes to outputs, and how it flips a bit of each store.
STORE = "    store_with(reinterpret_cast<T*>(pointer), value, policy);"
WRONG = f"    *reinterpret_cast<Byte*>(&value) ^= 1;\n{STORE}"


class FlippedByte(NamedTuple):
    """A program of the CPU, after which one byte of the first output is flipped."""

    program: Program

    def prepare(self, alignment: int = 16) -> None:
        """Nothing."""

    def bind(self, src: int, dsts: Sequence[int]) -> BoundCopy:
        """A copy, then the flip."""
        copy = self.program.bind(src, dsts)

        def wrong(stream: Any = None) -> None:
            copy(stream)
            ctypes.c_ubyte.from_address(dsts[0]).value ^= 1

        return wrong

    def copy(self, src: int, dsts: Sequence[int], stream: Any = None) -> None:
        """One copy, then the flip."""
        self.bind(src, dsts)(stream)


def wrong_program(case: Case, program: Program) -> Program:
    """The program of a case, made wrong: on a card its kernels, else its result."""
    if not isinstance(program, CudaProgram):
        return FlippedByte(program)
    device, count = program.device, program.geometry.output_count
    kernels, launches = driver.load().kernels(device), []
    for launch in plan(program.geometry, *alignments(case), driver.load().limits(device)):
        source = launch.code.source.replace(STORE, WRONG)
        if source == launch.code.source:
            raise DmlError(f"kernel {launch.code.kernel} has no store that can be made wrong")
        load = partial(kernels, source, launch.code.kernel)
        launcher = driver.load().launcher(device, load, launch)
        launches.append((selector(launch.outputs, count), launcher))
    return program._replace(variants={alignments(case): tuple(launches)})


def one_of_each_kernel(limits: DeviceLimits) -> dict[str, Case]:
    """The first split of the table for each kernel."""
    first: dict[str, Case] = {}
    for case in CASES:
        launches = plan(case.geometry, *alignments(case), limits)
        if len(launches) == 1:
            first.setdefault(launches[0].code.kernel, case)
    return first
