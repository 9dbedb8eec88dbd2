"""The kernels of the self-test: compiled before they are used, and made faulty on purpose.

If the comparison does not notice a faulty kernel, it has proved nothing.
"""

import ctypes
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

from dmlsplit.backends import BoundCopy, Program
from dmlsplit.backends.cuda import cupy_driver as driver
from dmlsplit.backends.cuda.engine import CudaProgram
from dmlsplit.backends.cuda.launch import DeviceLimits, KernelLaunch
from dmlsplit.backends.cuda.planner import plan
from dmlsplit.errors import DmlError
from dmlsplit.geometry import selector
from dmlsplit.self_test.byte_comparison import Bind
from dmlsplit.self_test.case import Case

# The only line of common.cuh that stores to outputs, and lines that replace it and flip a bit of
# each value.
STORE = "    store_with(reinterpret_cast<T*>(pointer), value, policy);"
FAULTY = f"    *reinterpret_cast<Byte*>(&value) ^= 1;\n{STORE}"


class Programs(NamedTuple):
    """The programs of a device."""

    # The name of the kernel of each program.
    kernels: tuple[str, ...]
    # The time to compile them, or to read them from disk, and to load them.
    seconds: float
    # The most registers, and the most bytes of local memory, of a thread. Kernels should use no
    # local memory.
    registers: int
    spilled_bytes: int


def planned(case: Case, limits: DeviceLimits) -> tuple[KernelLaunch, ...]:
    """The launches of a split, on a GPU with these limits or with as few SMs as the split says."""
    sm_count = case.sm_count or limits.sm_count
    return plan(case.geometry, *case.alignments, limits._replace(sm_count=sm_count))


def compile_programs(device_number: int, cases: Iterable[Case]) -> Programs:
    """Compile the programs of splits for a CUDA device.

    The result says how long it took, and the most registers and spilled bytes of any program.
    """
    loaded = driver.load()
    begin = perf_counter()
    limits = loaded.limits(device_number)
    names_by_source: dict[str, str] = {}
    for case in cases:
        for launch in planned(case, limits):
            for specialization in (launch, *launch.siblings()):
                names_by_source[specialization.code.source] = specialization.code.kernel
    kernels = [
        loaded.kernels.load(device_number, source, name) for source, name in names_by_source.items()
    ]
    seconds = perf_counter() - begin
    usages = [loaded.attributes(device_number, kernel) for kernel in kernels]
    registers, spilled = map(max, zip(*usages, strict=True))
    return Programs(tuple(names_by_source.values()), seconds, registers, spilled)


class FaultyKernel(NamedTuple):
    """A kernel with an injected fault, and whether the comparison noticed."""

    kernel: str
    caught: bool


def case_bind(case: Case, program: Program) -> Bind:
    """The `bind` of a split's program, planned for as many SMs as the split says."""
    if case.sm_count is None or not isinstance(program, CudaProgram):
        return program.bind
    return _replanned(case, program, lambda launch: launch.code.source)


def faulty_bind(case: Case, program: Program) -> Bind:
    """The `bind` of a program with an injected fault: in its kernels on a GPU, else in output 0."""
    if not isinstance(program, CudaProgram):
        return partial(_flipping, program)
    return _replanned(case, program, _faulty_source)


def _faulty_source(launch: KernelLaunch) -> str:
    """The source of a launch, with a store that flips a bit."""
    source = launch.code.source.replace(STORE, FAULTY)
    if source == launch.code.source:
        raise DmlError(
            f"kernel {launch.code.kernel} has no store that can be made faulty; please report this "
            "bug of dmlsplit"
        )
    return source


def _replanned(case: Case, program: CudaProgram, source_of: Callable[[KernelLaunch], str]) -> Bind:
    """The `bind` of a program whose launches are planned, and whose sources are chosen, here."""
    device = program.device
    count = program.geometry.output_count
    loaded = driver.load()
    launches = []
    for launch in planned(case, loaded.limits(device)):
        kernel = loaded.kernels.load(device, source_of(launch), launch.code.kernel)
        launcher = loaded.launcher(device, kernel, launch)
        launches.append((selector(launch.outputs, count), launcher))
    return program._replace(variants={case.alignments: tuple(launches)}).bind


def _flipping(program: Program, src: int, dsts: Sequence[int]) -> BoundCopy:
    """A copy that afterwards flips a bit of output 0."""
    copy = program.bind(src, dsts)

    def faulty(stream: Any = None) -> None:
        copy(stream)
        ctypes.c_ubyte.from_address(dsts[0]).value ^= 1

    return faulty
