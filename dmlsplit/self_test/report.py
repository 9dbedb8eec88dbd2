"""The self-test's result, as a value, text of 80 columns, and JSON."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from dmlsplit.messages import counted, printable, wrapped
from dmlsplit.self_test.byte_comparison import CaseResult
from dmlsplit.self_test.environment import VERSION, Check, CheckState
from dmlsplit.self_test.kernels import FaultyKernel, Programs
from dmlsplit.self_test.speed import WORKLOADS, Speed

# Exit codes.
EXACT = 0
WRONG = 1
NOT_RUN = 2
# Only paths in quotes or brackets may contain spaces.
_PATHS = re.compile(
    r"""(?<=["'(])(?:[A-Za-z]:)?[/\\][^"')\n]*|(?<![\w/\\.])(?:[A-Za-z]:)?[/\\][^\s"'(),;]+"""
)


@dataclass(frozen=True, slots=True)
class SelfTest:
    """The result of a self-test.

    Attributes
    ----------
    device : str
        ``cpu`` or ``cuda:N``.
    name : str
        The product name and the architecture, such as ``NVIDIA H200 (sm_90)``.
    checks : tuple
        The lines of the report, except for the verdict. Each has a `name`, a `state` and a `text`.
    programs : tuple or None
        The names of the compiled kernels, the seconds that they took, and the most registers and
        spilled bytes of any; None on the CPU.
    results : tuple
        The splits that were compared. Each has its `case`, its first `difference` (None if every
        byte is right), and a `digest` of its outputs.
    faulty_kernels : tuple
        Each kernel into which a fault was injected, and whether that was detected.
    speeds : tuple
        Speeds in bytes per second, the plain copy first.
    is_strict : bool
        Whether a speed below its minimum is a failure.
    error : str or None
        Why the test ended before it was complete; None if it is complete.

    See Also
    --------
    selftest : Runs the test, and shows each line once it is known.

    Examples
    --------
    >>> import dmlsplit as dml
    >>> report = dml.selftest("cpu", seconds=0)
    >>> report.ok, report.device
    (True, 'cpu')
    """

    device: str
    name: str
    checks: tuple[Check, ...]
    programs: Programs | None
    results: tuple[CaseResult, ...]
    faulty_kernels: tuple[FaultyKernel, ...]
    speeds: tuple[Speed, ...]
    is_strict: bool
    error: str | None

    @property
    def status(self) -> int:
        """The exit status of the command.

        It is 0 if every byte is right, 1 if one is wrong or a strict test is too slow, and 2 if the
        test could not run, an injected fault went undetected, or a strict test measured too few
        speeds, as always on a CPU.
        """
        if self._has_wrong_bytes:
            return WRONG
        failed = any(check.state is CheckState.FAIL for check in self.checks)
        if self.error or failed or not self.results:
            return NOT_RUN
        is_slow = self.is_strict and any(speed.is_slow for speed in self.speeds)
        return WRONG if is_slow else EXACT

    @property
    def ok(self) -> bool:
        """Whether the status is 0."""
        return self.status == EXACT

    @property
    def _has_wrong_bytes(self) -> bool:
        """Whether a split was wrong, however the test ended."""
        return any(result.difference for result in self.results)

    def __str__(self) -> str:
        return "\n".join([*self.lines(), self.summary])

    def lines(self) -> Iterator[str]:
        """The lines of the report, one per check, without the verdict."""
        return map(check_text, self.checks)

    @property
    def summary(self) -> str:
        """The verdict in one line, the last of the report."""
        on = f"on {printable(self.name)}"
        if self.error and not self._has_wrong_bytes:
            return wrapped(f"could not run {on}: {self.error}", "")
        slow = "wrong bytes" if self._has_wrong_bytes else "too slow"
        word = {EXACT: "exact", WRONG: slow, NOT_RUN: "not proved"}[self.status]
        right = sum(not result.difference for result in self.results)
        text = f"{word} {on}: {right} of {counted(len(self.results), 'split')}"
        shares = [speed.share for speed in self.speeds if speed.share is not None]
        if shares:
            text += f", {len(shares)} at {min(shares):.2f} to {max(shares):.2f} of a copy"
        return wrapped(text + (f"; then: {self.error}" if self.error else ""), "")

    @property
    def digest(self) -> str:
        """A digest of all bytes of all outputs, the first 16 hexadecimal digits of a SHA-256.

        It is the same on every device that computes the same splits right.
        """
        digests = "".join(result.digest for result in self.results)
        return sha256(digests.encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """The report as JSON, which contains no path, host name or user name.

        ``dmlsplit selftest -o report.json`` writes it.
        """
        return json.dumps(_record(self), indent=2)


def check_text(check: Check) -> str:
    """A check as a line of the report, wrapped."""
    return wrapped(f"{check.state:<5} {check.name:<18} {printable(check.text)}", "")


def programs_check(programs: Programs) -> Check:
    """The check of compilation: how many programs, and whether they spill registers."""
    text = f"{len(programs.kernels)} programs ready in {programs.seconds:.1f} s"
    text += f", at most {programs.registers} registers"
    if programs.spilled_bytes:
        spilled = f", {programs.spilled_bytes} bytes of local memory: speeds may be lower"
        return Check("compilation", CheckState.WARN, text + spilled)
    return Check("compilation", CheckState.OK, f"{text}, no spills")


def bytes_check(results: Sequence[CaseResult]) -> Check:
    """How many splits are right, and the first byte that is not."""
    wrong = [result for result in results if result.difference]
    text = f"{len(results) - len(wrong)} of {counted(len(results), 'split')} exact"
    if not wrong:
        return Check("bytes", CheckState.OK, text)
    case, difference, _ = wrong[0]
    text += f"; first: {case.name!r} ({case.mode}), {difference}"
    return Check("bytes", CheckState.FAIL, text)


def faulty_kernels_check(kernels: Sequence[FaultyKernel]) -> Check:
    """Whether the faults that were injected into kernels were noticed."""
    missed = [faulty.kernel for faulty in kernels if not faulty.caught]
    text = f"{len(kernels) - len(missed)} of {len(kernels)} detected"
    state = CheckState.FAIL if missed else CheckState.OK
    return Check("fault injection", state, text + "".join(f"; not {name}" for name in missed))


def speed_check(speed: Speed) -> Check:
    """One speed, beside the copy's and the one that `explain` predicts."""
    text = f"{speed.rate / 1e9:6.1f} GB/s"
    if speed.share is not None:
        text += f", {speed.share:.2f} of the copy"
    if speed.predicted_seconds is not None:
        text += f", {speed.predicted_seconds / speed.seconds:.2f} of the prediction"
    return Check(speed.name, CheckState.OK, text)


def min_shares_check(speeds: Sequence[Speed]) -> Check:
    """Whether all speeds reach their minimum shares; only a strict test checks it."""
    checked = [speed for speed in speeds if speed.min_share is not None]
    if len(checked) < len(WORKLOADS):
        text = f"only {len(checked)} of {len(WORKLOADS)} speeds have a minimum"
        text += ". Fix: test a GPU with 2.2 GB of free memory, and give it more --seconds"
        return Check("minimum shares", CheckState.FAIL, text)
    slow = [speed for speed in checked if speed.is_slow]
    shares = (f"{speed.name}: {speed.share:.2f}, not {speed.min_share:.2f}" for speed in slow)
    text = "; ".join(shares) or "every speed reaches its share of the copy's"
    return Check("minimum shares", CheckState.WARN if slow else CheckState.OK, text)


def _record(test: SelfTest) -> dict[str, object]:
    """The JSON document of a result."""
    return {
        "schema": 1,
        "dmlsplit": VERSION,
        "status": test.status,
        "device": test.device,
        "name": test.name,
        "error": test.error and _without_paths(test.error),
        "checks": [
            check._replace(text=_without_paths(check.text))._asdict() for check in test.checks
        ],
        "programs": test.programs and test.programs._asdict(),
        "digest": test.digest,
        "splits": [
            {
                "name": result.case.name,
                "mode": result.case.mode,
                "digest": result.digest,
                "first_difference": result.difference and result.difference._asdict(),
            }
            for result in test.results
        ],
        "faulty_kernels": [faulty._asdict() for faulty in test.faulty_kernels],
        "strict": test.is_strict,
        "speeds": [speed._asdict() for speed in test.speeds],
    }


def _without_paths(text: str) -> str:
    """A text in which paths are replaced, because they may name a user."""
    return _PATHS.sub("PATH", text)
