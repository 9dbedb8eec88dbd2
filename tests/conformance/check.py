"""The differences between an observation and the rules."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dmlsplit.directml.levels import FeatureLevel
from dmlsplit.errors import UnsupportedError
from tests.conformance.case import S_OK, Case, Outcome, expected, output_hashes
from tests.conformance.cases import all_cases
from tests.conformance.observation import VERDICTS, Answer, Observation

# The kinds of differences. Those in APART do not count against the rules.
KINDS = {
    "verdict": "one accepts the split and the other refuses it",
    "stage": "both refuse, but at different calls",
    "hresult": "both refuse at the same call, with different HRESULTs",
    "crash": "DirectML crashed, hung or removed the device instead of answering",
    "level": "a device with a minimum feature level is not what Microsoft's pages say",
    "bytes": "outputs hold other bytes, or were not written",
    "policy": "only about rules that dmlsplit chose, because Microsoft's documents are silent",
    "device": "refused, but this device reports that it does not support the data type at all",
}
APART = ("policy", "device")


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between the rules and an observation."""

    kind: str  # a key of KINDS
    case: str
    expected: str
    observed: str
    rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """An observation with all its differences from the rules."""

    observation: Observation
    differences: tuple[Difference, ...]
    not_asked: tuple[str, ...]  # today's cases that the observation lacks

    @property
    def agrees(self) -> bool:
        """Whether no difference counts against the rules."""
        return all(each.kind in APART for each in self.differences)


def compare(seen: Observation) -> Comparison:
    """Compare an observation with today's rules, at the library's feature level."""
    answers = [(answer, expected(answer.case, seen.level)) for answer in seen.answers]
    found = (
        *(each for asked, said in seen.levels for each in _of_level(asked, said, seen.level)),
        *(each for answer, now in answers for each in _of_answer(answer, now, seen)),
        *(each for answer, now in answers for each in _of_dispatch(answer, now, seen)),
    )
    asked = {answer.case.id for answer in seen.answers if answer.outcome}
    wanted = [case.id for case in all_cases() if case.placement is None]
    return Comparison(seen, found, tuple(name for name in wanted if name not in asked))


def _of_level(asked: int, said: str, level: FeatureLevel) -> Iterator[Difference]:
    wanted = f"0x{UnsupportedError.hresult:08X}"
    if asked <= level:
        # The level is only a minimum, so the device has the library's own level.
        wanted = f"0x{S_OK:08X}, level 0x{level:X}"
    if said != wanted:
        yield Difference("level", f"minimum level 0x{asked:X}", wanted, said)


def _of_answer(answer: Answer, now: Outcome, seen: Observation) -> Iterator[Difference]:
    if not answer.outcome:
        return
    kind, said = _kind(answer, answer.outcome, now, seen), str(answer.outcome)
    if answer.after_others and kind != "crash":
        kind, said = "crash", f"{said}; {answer.after_others} after other cases"
    if kind:
        yield Difference(kind, answer.case.id, str(now), said, now.rules)


def _of_dispatch(answer: Answer, now: Outcome, seen: Observation) -> Iterator[Difference]:
    """Compare only verdicts, because DxDispatch's exit status is the same for every refusal."""
    ran, wanted = answer.dispatched, now.verdict
    if not ran:
        return
    kind = _kind(answer, replace(now, verdict=ran.verdict), now, seen)
    if kind:
        said = f"refused, exit 0x{ran.exit:08X}" if ran.verdict == "refused" else ran.verdict
        yield Difference(kind, f"{answer.case.id}.json", wanted, said, now.rules)
    elif not now.rules and ran.outputs:
        yield from _of_bytes(answer.case, ran.outputs)


def _kind(answer: Answer, outcome: Outcome, now: Outcome, seen: Observation) -> str:
    """The kind of the first difference from the expected outcome; empty if they agree."""
    if outcome.verdict not in VERDICTS:
        return "crash"
    kinds = ("verdict", "stage", "hresult")
    kind = next((k for k in kinds if getattr(outcome, k) != getattr(now, k)), "")
    if kind and now.policy:
        return "policy"
    lacks = answer.case.desc.input_tensor.data_type in seen.lacking
    return "device" if kind == "verdict" and not now.rules and lacks else kind


def _of_bytes(case: Case, outputs: tuple[tuple[str, bool] | None, ...]) -> Iterator[Difference]:
    for index, (wanted, seen) in enumerate(zip(output_hashes(case), outputs, strict=True)):
        name = f"{case.id} OutputTensors[{index}]"
        if seen is None:
            yield Difference("bytes", name, f"SHA-256 {wanted}", "no file")
        elif seen[0] != wanted:
            yield Difference("bytes", name, f"SHA-256 {wanted}", f"SHA-256 {seen[0]}")
        elif not seen[1]:
            past = "past TotalTensorSizeInBytes"
            yield Difference("bytes", name, f"nothing written {past}", f"bytes written {past}")
