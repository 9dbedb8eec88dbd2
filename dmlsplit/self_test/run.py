"""The self-test, stage by stage."""

from collections.abc import Callable, Iterator
from math import inf
from time import monotonic
from typing import TypeVar

from dmlsplit.arrays.array_view import device_number
from dmlsplit.backends import Backend
from dmlsplit.backends.cuda import driver
from dmlsplit.backends.cuda.gpus import H200, gpu_of_device
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
from dmlsplit.self_test.cases import CASES, FAR, NEAR, PITCH, Case
from dmlsplit.self_test.comparison import Outcome, compare
from dmlsplit.self_test.compilation import Programs, compile_programs
from dmlsplit.self_test.environment import Check, State, missing_card
from dmlsplit.self_test.memory import CardMemory, Memory, memory_of, other_memories
from dmlsplit.self_test.probe import probes
from dmlsplit.self_test.report import SelfTest
from dmlsplit.self_test.speed import Speed, speeds
from dmlsplit.self_test.wrong_kernels import WrongKernel, one_of_each_kernel, wrong_bind

Show = Callable[[str], object]
Count = Callable[[int, int], object]
Item = Check | Programs | Outcome | WrongKernel | Speed
_Kind = TypeVar("_Kind", bound=Item)


def selftest(
    device: str | None = None,
    seconds: float = 60,
    show: Show | None = None,
    progress: Count | None = None,
    strict: bool = False,
) -> SelfTest:
    """Prove on this machine that splits are right: every kernel and mode, every byte.

    A failure is a field of the result, never an exception.

    Parameters
    ----------
    device
        ``"cpu"``, ``"cuda"`` or ``"cuda:N"``; None is what ``Device()`` takes.
    seconds
        The time after which no further speed is measured. All bytes are compared in any case.
    show
        Called with each line of the report as soon as it is known.
    progress
        Called with the splits that were compared, and their total.
    strict
        Whether a speed below the documented share of a copy's is a failure. Without it, speeds are
        measured but never fail the test.

    Returns
    -------
    SelfTest
        Its ``str()`` is the report.
    """
    _check_arguments(seconds, show, progress, strict)
    parts = _Parts(show, progress)
    until, error = monotonic() + seconds, None
    try:
        backend, reason = default_backend() if device is None else (find_backend(device), None)
        name = _name(backend.device)
    except InvalidArgumentError:
        raise
    except DmlError as failure:
        parts.keep(Check("card", State.FAIL, str(failure)))
        name = device or "cuda:0"
        return parts.result(name, name, strict, "the check of the card failed")
    if reason is not None:
        parts.keep(missing_card(reason))
    try:
        for item in _stages(backend, until, strict):
            parts.keep(item)
    except DmlError as failure:
        if not parts.of(WrongKernel) and (outcomes := parts.of(Outcome)):
            parts.keep(report.bytes_check(outcomes))
        error = one_line(failure)
    return parts.result(backend.device, name, strict, error)


def _check_arguments(seconds: float, show: object, progress: object, strict: bool) -> None:
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not (is_number and 0 <= seconds < inf):
        raise InvalidArgumentError(f"seconds is {seconds!r}; it must be a number, 0 or more")
    for name, function in (("show", show), ("progress", progress)):
        if function is not None and not callable(function):
            raise ArgumentTypeError(f"{name} is {function!r}; it must be a function or None")
    instance("strict", strict, bool)


class _Parts:
    """The parts of a report, as they become known."""

    def __init__(self, show: Show | None, progress: Count | None) -> None:
        self._show, self._progress = show, progress
        self._items: list[Item] = []

    def keep(self, item: Item) -> None:
        """Keep a part, and show it."""
        self._items.append(item)
        if isinstance(item, Check) and self._show:
            self._show(report.check_text(item))
        count = len(self.of(Outcome))
        if isinstance(item, Outcome) and self._progress and count <= len(CASES):
            self._progress(count, len(CASES))

    def of(self, kind: type[_Kind]) -> tuple[_Kind, ...]:
        """All parts of a kind."""
        return tuple(item for item in self._items if isinstance(item, kind))

    def result(self, device: str, name: str, strict: bool, error: str | None) -> SelfTest:
        """The report."""
        programs = next(iter(self.of(Programs)), None)
        parts = self.of(Outcome), self.of(WrongKernel), self.of(Speed)
        return SelfTest(device, name, self.of(Check), programs, *parts, strict, error)


def _stages(backend: Backend, until: float, strict: bool) -> Iterator[Item]:
    memory = memory_of(backend.device)
    yield from environment.checks(backend.device, memory)
    if isinstance(memory, CardMemory):
        programs = compile_programs(device_number(backend.device))
        yield from (programs, report.programs_check(programs))
    outcomes = []
    for item in _compared(backend, memory):
        outcomes += [item] if isinstance(item, Outcome) else []
        yield item
    yield report.bytes_check(outcomes)
    yield from _made_wrong(backend, memory)
    yield from _measured(backend, memory, until, strict)


def _compared(backend: Backend, memory: Memory) -> Iterator[Check | Outcome]:
    """All splits; rows that are far apart; and one split of each kernel in other circumstances."""
    for case in CASES:
        yield compare(case, backend.compile(case.geometry).bind, memory)
    if far := memory.spread(NEAR.data().reshape(NEAR.shape), PITCH):
        yield compare(NEAR, backend.compile(FAR.geometry).bind, memory, far.address)
    else:
        text = f"there is no room for {FAR.source.size / 1e9:.1f} GB; not tested"
        yield Check("beyond 4 GiB", State.WARN, text)
    if isinstance(memory, CardMemory):
        yield from _compared_elsewhere(backend, device_number(backend.device), memory)


def _compared_elsewhere(
    backend: Backend, number: int, memory: CardMemory
) -> Iterator[Check | Outcome]:
    yield from probes(number, memory)
    for name, other in (("loaded again", memory), *other_memories(number)):
        if other is None:
            yield Check("other memory", State.OK, f"the card has no {name}")
            continue
        for case in _examples(backend).values():
            named = Case(*case._replace(name=f"{case.name}, {name}"))
            yield compare(named, backend.compile(case.geometry).bind, other)


def _made_wrong(backend: Backend, memory: Memory) -> Iterator[Item]:
    kernels = []
    for kernel, case in _examples(backend).items():
        outcome = compare(case, wrong_bind(case, backend.compile(case.geometry)), memory)
        kernels.append(WrongKernel(kernel, outcome.difference is not None))
    yield from kernels
    yield report.wrong_kernels_check(kernels)


def _measured(backend: Backend, memory: Memory, until: float, strict: bool) -> Iterator[Item]:
    card = device_at(device_number(backend.device)) if isinstance(memory, CardMemory) else None
    measured = []
    try:
        for speed in speeds(backend, memory, until, gpu_of_device(card) if card else None):
            measured.append(speed)
            yield from (speed, report.speed_check(speed))
    except OutOfMemoryError as error:
        yield Check("speed", State.WARN, f"not measured: {one_line(error)}")
    if strict:
        yield report.bars_check(measured)


def _examples(backend: Backend) -> dict[str, Case]:
    is_cpu = backend.device == "cpu"
    return one_of_each_kernel(
        H200.limits if is_cpu else driver.load().limits(device_number(backend.device))
    )


def _name(device: str) -> str:
    if device == "cpu":
        return "the CPU"
    loaded, number = driver.load(), device_number(device)
    return f"{loaded.name(number)} ({loaded.architecture(number)})"
