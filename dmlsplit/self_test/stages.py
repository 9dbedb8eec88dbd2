"""The self-test, stage by stage."""

# So that help() and Sphinx show aliases by name.
from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import inf
from time import monotonic
from typing import Any

from dmlsplit.arrays.array_view import device_number_of
from dmlsplit.backends import Backend
from dmlsplit.backends.cuda import cupy_driver as driver
from dmlsplit.backends.cuda.gpus import H200, gpu_of_device
from dmlsplit.backends.cuda.launch import DeviceLimits
from dmlsplit.backends.cuda.nvml import device_at
from dmlsplit.backends.find import default_backend, find_backend
from dmlsplit.checks import instance
from dmlsplit.errors import (
    ArgumentTypeError,
    DmlError,
    InvalidArgumentError,
    OutOfMemoryError,
    one_line,
)
from dmlsplit.self_test import environment, report
from dmlsplit.self_test.beyond import compare_beyond
from dmlsplit.self_test.byte_comparison import CaseResult, compare
from dmlsplit.self_test.case import Case
from dmlsplit.self_test.cases import cases
from dmlsplit.self_test.environment import Check, CheckState, missing_gpu_check
from dmlsplit.self_test.kernels import (
    FaultyKernel,
    Programs,
    case_bind,
    compile_programs,
    faulty_bind,
    planned,
)
from dmlsplit.self_test.memory import GpuMemory, Memory, memory_of, other_memories
from dmlsplit.self_test.report import SelfTest
from dmlsplit.self_test.speed import Speed, speeds

Show = Callable[[str], object]
Progress = Callable[[int, int], object]
Item = Check | Programs | CaseResult | FaultyKernel | Speed


def selftest(
    device: str | None = None,
    seconds: float = 60,
    show: Show | None = None,
    progress: Progress | None = None,
    strict: bool = False,
) -> SelfTest:
    """Compare every byte of splits of every kernel and mode on this machine.

    A failed check is a field of the result, not an exception.

    Parameters
    ----------
    device : str, optional
        ``"cpu"``, ``"cuda"`` or ``"cuda:N"``; None is what ``Device()`` takes.
    seconds : float
        The time after which no further speed is measured. All bytes are compared in any case.
    show : callable, optional
        Called with each line of the report once it is known.
    progress : callable, optional
        Called with the number of splits compared so far, and the total.
    strict : bool
        Whether a speed below the documented share of a copy's is a failure. Without it, speeds are
        measured but never fail the test.

    Returns
    -------
    SelfTest
        Its ``str()`` is the report.

    Raises
    ------
    InvalidArgumentError
        If `seconds` is not a number of at least 0, or `device` is not the name of a device. If
        `show`, `progress` or `strict` has the wrong type, the error is also a TypeError.

    See Also
    --------
    Device : The devices of this machine.

    Examples
    --------
    >>> import dmlsplit as dml
    >>> report = dml.selftest("cpu", seconds=0)
    >>> report.status
    0
    """
    _check_arguments(seconds, show, progress, strict)
    # What is known so far, by its type.
    items: dict[type, list[Any]] = defaultdict(list)

    def keep(item: Item) -> None:
        items[type(item)].append(item)
        if show and isinstance(item, Check):
            show(report.check_text(item))

    deadline = monotonic() + seconds
    error = None
    tested_device = name = device or "cuda:0"
    try:
        backend, reason = default_backend() if device is None else (find_backend(device), None)
        tested_device = backend.device
        name = _device_name(backend.device)
        if reason is not None:
            keep(missing_gpu_check(reason))
        for item in _stages(backend, deadline, strict, progress):
            keep(item)
    except DmlError as failure:
        if items:
            error = one_line(failure)
        elif isinstance(failure, InvalidArgumentError):
            # The name of the device is wrong, which is the caller's mistake and no result.
            raise
        else:
            error = "the check of the GPU failed"
            keep(Check("GPU", CheckState.FAIL, str(failure)))
    kinds = Check, CaseResult, FaultyKernel, Speed
    checks, results, faults, rates = (tuple(items[kind]) for kind in kinds)
    programs = next(iter(items[Programs]), None)
    return SelfTest(tested_device, name, checks, programs, results, faults, rates, strict, error)


def _check_arguments(seconds: float, show: object, progress: object, strict: bool) -> None:
    """Refuse arguments of `selftest` of a wrong type or value."""
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not (is_number and 0 <= seconds < inf):
        raise InvalidArgumentError(f"seconds is {seconds!r}; it must be a number, 0 or more")
    for name, function in (("show", show), ("progress", progress)):
        if function is not None and not callable(function):
            raise ArgumentTypeError(f"{name} is {function!r}; it must be a function or None")
    instance("strict", strict, bool)


def _stages(
    backend: Backend, deadline: float, strict: bool, progress: Progress | None
) -> Iterator[Item]:
    """All that the self-test finds out on a device, in the order of the report."""
    memory = memory_of(backend.device)
    limits = _limits(memory)
    splits = list(cases(limits))
    yield from environment.checks(memory)
    if isinstance(memory, GpuMemory):
        programs = compile_programs(memory.device_number, splits)
        yield from (programs, report.programs_check(programs))
    kernel_cases = _kernel_cases(splits, limits)
    comparisons = _compare_all(splits, backend, memory, progress)
    elsewhere = _compare_elsewhere(kernel_cases, backend, memory)
    results = []
    try:
        for item in chain(comparisons, elsewhere, _measure(backend, memory, deadline, strict)):
            if isinstance(item, CaseResult):
                results.append(item)
            yield item
    except DmlError:
        if results:
            # A split failed: report the comparisons that were made before it.
            yield report.bytes_check(results)
        raise
    yield report.bytes_check(results)
    yield from _try_faulty_kernels(kernel_cases, backend, memory)


def _limits(memory: Memory) -> DeviceLimits:
    """The limits of the GPU; the CPU takes the splits of an H200."""
    if isinstance(memory, GpuMemory):
        return driver.load().limits(memory.device_number)
    return H200.limits


def _compare_all(
    splits: Sequence[Case], backend: Backend, memory: Memory, progress: Progress | None
) -> Iterator[Check | CaseResult]:
    """All splits, and those beyond 4 GiB for which there is room."""
    for count, case in enumerate(splits, 1):
        yield compare(case, case_bind(case, backend.compile(case.geometry)), memory)
        if progress:
            progress(count, len(splits))
    yield from compare_beyond(backend, memory)


def _compare_elsewhere(
    kernel_cases: Mapping[str, Case], backend: Backend, memory: Memory
) -> Iterator[Check | CaseResult]:
    """On a GPU, these splits in other kinds of memory."""
    if not isinstance(memory, GpuMemory):
        return
    for name, other_memory in other_memories(memory.device_number):
        if other_memory is None:
            yield Check("other memory", CheckState.OK, f"the GPU has no {name}")
            continue
        for case in kernel_cases.values():
            bind = backend.compile(case.geometry).bind
            yield compare(replace(case, name=f"{case.name}, {name}"), bind, other_memory)


def _try_faulty_kernels(
    kernel_cases: Mapping[str, Case], backend: Backend, memory: Memory
) -> Iterator[Item]:
    """Whether the comparison notices a fault in each kernel."""
    kernels = []
    for kernel, case in kernel_cases.items():
        outcome = compare(case, faulty_bind(case, backend.compile(case.geometry)), memory)
        kernels.append(FaultyKernel(kernel, outcome.difference is not None))
    yield from kernels
    yield report.faulty_kernels_check(kernels)


def _measure(backend: Backend, memory: Memory, deadline: float, strict: bool) -> Iterator[Item]:
    """Speeds until the deadline, a line for each, and whether they suffice if that counts."""
    gpu = device_at(memory.device_number) if isinstance(memory, GpuMemory) else None
    measured_speeds = []
    try:
        for item in speeds(backend, memory, deadline, gpu_of_device(gpu) if gpu else None):
            yield item
            if isinstance(item, Speed):
                measured_speeds.append(item)
                yield report.speed_check(item)
    except OutOfMemoryError as error:
        yield Check("speed", CheckState.WARN, f"not measured: {one_line(error)}")
    if strict:
        yield report.min_shares_check(measured_speeds)


def _kernel_cases(splits: Iterable[Case], limits: DeviceLimits) -> dict[str, Case]:
    """The first split of each kernel."""
    kernel_cases: dict[str, Case] = {}
    for case in splits:
        launches = planned(case, limits)
        if len(launches) == 1 and case.sm_count is None:
            kernel_cases.setdefault(launches[0].code.kernel, case)
    return kernel_cases


def _device_name(device: str) -> str:
    """What the report calls a device."""
    if device == "cpu":
        return "the CPU"
    loaded = driver.load()
    device_number = device_number_of(device)
    return f"{loaded.name(device_number)} ({loaded.architecture(device_number)})"
