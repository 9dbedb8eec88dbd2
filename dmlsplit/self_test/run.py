"""The self-test, stage by stage."""

from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Any

from dmlsplit.backends import Backend
from dmlsplit.backends.cuda import driver
from dmlsplit.backends.cuda.gpus import H200
from dmlsplit.backends.cuda.launch import DeviceLimits
from dmlsplit.backends.cuda.nvml import device_at
from dmlsplit.backends.find import default_backend, find_backend
from dmlsplit.errors import (
    ArgumentTypeError,
    DmlError,
    InvalidArgumentError,
    UnsupportedError,
    one_line,
)
from dmlsplit.self_test import environment, report
from dmlsplit.self_test.cases import CASES, FAR, NEAR, PITCH, Case
from dmlsplit.self_test.comparison import Outcome, compare
from dmlsplit.self_test.compilation import Programs, compile_programs
from dmlsplit.self_test.environment import Check, State, missing_card
from dmlsplit.self_test.memory import Memory, memory_of, other_memories
from dmlsplit.self_test.report import SelfTest
from dmlsplit.self_test.speed import Speed, speeds
from dmlsplit.self_test.wrong_kernels import one_of_each_kernel, wrong_program

Show = Callable[[str], object]
Count = Callable[[int, int], object]


def selftest(
    device: str | None = None,
    seconds: float = 60,
    show: Show | None = None,
    progress: Count | None = None,
) -> SelfTest:
    """Prove on this machine that splits are right: every kernel and mode, every byte.

    A failure is a field of the result, never an exception. Speed is measured, and not judged.

    Parameters
    ----------
    device
        ``"cpu"``, ``"cuda"`` or ``"cuda:N"``; None is what ``Device()`` takes.
    seconds
        After these, no further speed is measured. All bytes are compared in any case.
    show
        Called with each line of the report as soon as it is known.
    progress
        Called with the splits that were compared, and their total.

    Returns
    -------
    SelfTest
        ``str()`` of it is the report.
    """
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not (is_number and 0 <= seconds < inf):
        raise InvalidArgumentError(f"seconds is {seconds!r}; it must be a number, 0 or more")
    for name, function in (("show", show), ("progress", progress)):
        if function is not None and not callable(function):
            raise ArgumentTypeError(f"{name} is {function!r}; it must be a function or None")
    until = monotonic() + seconds
    test = _Test(show or _ignore, progress or _ignore)
    try:
        backend = test.choose_backend(device)
    except UnsupportedError as error:
        test.check(Check("card", State.FAIL, str(error)))
        return test.result(device or "cuda:0", device or "cuda:0", f"{device} cannot be used")
    try:
        test.prove(backend, until)
    except DmlError as error:
        return test.result(backend.device, _name(backend.device), one_line(error))
    return test.result(backend.device, _name(backend.device), None)


class _Test:
    """The parts of a report, as they become known."""

    def __init__(self, show: Show, progress: Count) -> None:
        self._show, self._progress = show, progress
        self._checks: list[Check] = []
        self._programs: Programs | None = None
        self._outcomes: list[Outcome] = []
        self._wrong: list[tuple[str, bool]] = []
        self._speeds: list[Speed] = []
        self._peak: int | None = None

    def check(self, check: Check) -> None:
        """Show a check, and keep it."""
        self._checks.append(check)
        self._show(report.check_text(check))

    def choose_backend(self, device: str | None) -> Backend:
        """The backend to test; if that is the CPU instead of a card, a check says why."""
        if device is not None:
            return find_backend(device)
        backend, reason = default_backend()
        if reason is not None:
            self.check(missing_card(reason))
        return backend

    def prove(self, backend: Backend, until: float) -> None:
        """All stages."""
        device, memory = backend.device, memory_of(backend.device)
        for check in environment.checks(device, memory):
            self.check(check)
        if device != "cpu":
            self._programs = compile_programs(_number(device))
            self._show(report.check_text(report.programs_check(self._programs)))
        self._compare(backend, memory)
        examples = one_of_each_kernel(_limits(device))
        self._compare_elsewhere(backend, memory, examples)
        self._show(report.check_text(report.bytes_check(self._outcomes)))
        self._make_wrong(backend, memory, examples)
        self._measure(backend, memory, until)

    def _compare(self, backend: Backend, memory: Memory) -> None:
        for number, case in enumerate(CASES, 1):
            self._outcomes.append(compare(case, backend.compile(case.geometry), memory))
            self._progress(number, len(CASES))

    def _compare_elsewhere(
        self, backend: Backend, memory: Memory, examples: dict[str, Case]
    ) -> None:
        """Rows that are far apart, and one split of each kernel in other kinds of memory."""
        if far := memory.spread(NEAR.data().reshape(NEAR.shape), PITCH):
            program = backend.compile(FAR.geometry)
            self._outcomes.append(compare(NEAR, program, memory, far.address))
        else:
            text = f"there is no room for {FAR.source.size / 1e9:.1f} GB; not tested"
            self.check(Check("beyond 4 GiB", State.WARN, text))
        for name, other in other_memories(backend.device):
            if other is None:
                self.check(Check("other memory", State.OK, f"the card has no {name}"))
                continue
            for case in examples.values():
                program = backend.compile(case.geometry)
                named = Case(*case._replace(name=f"{case.name}, {name}"))
                self._outcomes.append(compare(named, program, other))

    def _make_wrong(self, backend: Backend, memory: Memory, examples: dict[str, Case]) -> None:
        for kernel, case in examples.items():
            program = wrong_program(case, backend.compile(case.geometry))
            noticed = compare(case, program, memory).difference is not None
            self._wrong.append((kernel, noticed))
        self._show(report.check_text(report.wrong_kernels_check(self._wrong)))

    def _measure(self, backend: Backend, memory: Memory, until: float) -> None:
        card = None if backend.device == "cpu" else device_at(_number(backend.device))
        self._peak = card.peak_bandwidth if card else None
        for speed in speeds(backend, memory, until):
            self._speeds.append(speed)
            copy = self._speeds[0]
            self._show(report.speed_text(speed, copy, self._peak if speed is copy else None))

    def result(self, device: str, name: str, error: str | None) -> SelfTest:
        """The report."""
        return SelfTest(
            device,
            name,
            tuple(self._checks),
            self._programs,
            tuple(self._outcomes),
            tuple(self._wrong),
            tuple(self._speeds),
            self._peak,
            error,
        )


def _limits(device: str) -> DeviceLimits:
    return H200.limits if device == "cpu" else driver.load().limits(_number(device))


def _number(device: str) -> int:
    return int(device.partition(":")[2])


def _name(device: str) -> str:
    if device == "cpu":
        return "the CPU"
    loaded, number = driver.load(), _number(device)
    return f"{loaded.name(number)} ({loaded.architecture(number)})"


def _ignore(*_: Any) -> None:
    """Show nothing."""
