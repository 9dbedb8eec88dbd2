"""The self-test's result, as a value, text of 80 columns, and JSON."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from dmlsplit.messages import counted, printable, wrapped
from dmlsplit.self_test.comparison import Outcome
from dmlsplit.self_test.compilation import Programs
from dmlsplit.self_test.environment import VERSION, Check, State
from dmlsplit.self_test.speed import Speed

EXACT, WRONG, NOT_RUN = 0, 1, 2


@dataclass(frozen=True, slots=True)
class SelfTest:
    """What a device did.

    Attributes
    ----------
    device : str
        ``cpu`` or ``cuda:N``.
    name : str
        The product, and what kernels are compiled for.
    error : str or None
        Why the test ended before it was complete.
    """

    device: str
    name: str
    checks: tuple[Check, ...]
    programs: Programs | None
    outcomes: tuple[Outcome, ...]
    wrong_kernels: tuple[tuple[str, bool], ...]  # made wrong on purpose, and whether noticed
    speeds: tuple[Speed, ...]
    peak_bandwidth: int | None  # bytes per second
    error: str | None

    @property
    def status(self) -> int:
        """The exit status of the command.

        It is 0 if every byte is right, 1 if one is wrong, and 2 if the test could not run or proved
        nothing.
        """
        if any(outcome.difference for outcome in self.outcomes):
            return WRONG
        is_blind = not all(noticed for _, noticed in self.wrong_kernels)
        failed = any(check.state is State.FAIL for check in self.checks)
        return NOT_RUN if self.error or failed or is_blind or not self.outcomes else EXACT

    @property
    def ok(self) -> bool:
        """Whether every byte is right."""
        return self.status == EXACT

    def __str__(self) -> str:
        return "\n".join([*self.lines(), self.summary])

    def lines(self) -> Iterator[str]:
        """The report without its last line."""
        yield from map(check_text, self.checks)
        if self.programs:
            yield check_text(programs_check(self.programs))
        if self.outcomes:
            yield check_text(bytes_check(self.outcomes))
        if self.wrong_kernels:
            yield check_text(wrong_kernels_check(self.wrong_kernels))
        for number, speed in enumerate(self.speeds):
            yield speed_text(speed, self.speeds[0], self.peak_bandwidth if not number else None)

    @property
    def summary(self) -> str:
        """The last line."""
        on = f"on {printable(self.name)}"
        if self.error:
            return wrapped(f"could not run {on}: {self.error}", "")
        right = sum(not outcome.difference for outcome in self.outcomes)
        word = {EXACT: "exact", WRONG: "wrong bytes", NOT_RUN: "not proved"}[self.status]
        text = f"{word} {on}: {right} of {counted(len(self.outcomes), 'split')}"
        shares = [speed.rate / self.speeds[0].rate for speed in self.speeds[1:]]
        if shares:
            text += f", {len(shares)} at {min(shares):.2f} to {max(shares):.2f} of a copy"
        return wrapped(text, "")

    @property
    def digest(self) -> str:
        """A digest of all bytes of all outputs."""
        digests = "".join(outcome.digest for outcome in self.outcomes)
        return sha256(digests.encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """The report as JSON, without a path, or the name of a host or user."""
        return json.dumps(_record(self), indent=2)


def check_text(check: Check) -> str:
    """One line, wrapped."""
    return wrapped(f"{check.state:<5} {check.name:<14} {printable(check.text)}", "")


def programs_check(programs: Programs) -> Check:
    """How many programs were compiled."""
    text = f"{len(programs.kernels)} programs ready in {programs.seconds:.1f} s"
    if programs.registers is None:
        return Check("compilation", State.OK, text)
    text += f", at most {programs.registers} registers"
    if programs.spilled_bytes:
        spilled = f", {programs.spilled_bytes} bytes of local memory: speeds may be lower"
        return Check("compilation", State.WARN, text + spilled)
    return Check("compilation", State.OK, f"{text}, no spills")


def bytes_check(outcomes: Sequence[Outcome]) -> Check:
    """How many splits are right, and the first byte that is not."""
    wrong = [outcome for outcome in outcomes if outcome.difference]
    text = f"{len(outcomes) - len(wrong)} of {counted(len(outcomes), 'split')} exact"
    if not wrong:
        return Check("bytes", State.OK, text)
    case = wrong[0].case
    first = f"{text}; first: {case.name!r} ({case.mode}), {wrong[0].difference}"
    return Check("bytes", State.FAIL, first)


def wrong_kernels_check(kernels: Sequence[tuple[str, bool]]) -> Check:
    """Whether kernels that were made wrong were caught."""
    missed = [name for name, noticed in kernels if not noticed]
    text = f"{len(kernels) - len(missed)} of {len(kernels)} made on purpose were caught"
    state = State.FAIL if missed else State.OK
    return Check("wrong kernels", state, text + "".join(f"; not {name}" for name in missed))


def speed_text(speed: Speed, copy: Speed, peak: int | None) -> str:
    """One speed; the copy's beside the peak of the memory, on which `explain` bases its times."""
    text = f"speed {speed.name:<18} {speed.rate / 1e9:>8.1f} GB/s"
    if speed is not copy:
        return f"{text}  {speed.rate / copy.rate:.2f} of the copy"
    return text + (f"  {speed.rate / peak:.2f} of the peak" if peak else "")


def _record(test: SelfTest) -> dict[str, object]:
    return {
        "schema": 1,
        "dmlsplit": VERSION,
        "status": test.status,
        "device": test.device,
        "name": test.name,
        "error": test.error,
        "checks": [check._asdict() for check in test.checks],
        "programs": test.programs and test.programs._asdict(),
        "digest": test.digest,
        "splits": [_split(outcome) for outcome in test.outcomes],
        "wrong_kernels": [
            {"kernel": name, "caught": noticed} for name, noticed in test.wrong_kernels
        ],
        "speeds": [speed._asdict() for speed in test.speeds],
        "peak_bandwidth": test.peak_bandwidth,
    }


def _split(outcome: Outcome) -> dict[str, object]:
    difference = outcome.difference
    return {
        "name": outcome.case.name,
        "mode": outcome.case.mode,
        "digest": outcome.digest,
        "first_difference": difference and difference._asdict(),
    }
