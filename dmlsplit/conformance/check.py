"""Compares an observation with the rules, and says where they differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dmlsplit.conformance.byte_cases import output_hashes
from dmlsplit.conformance.case import S_OK, Expected, expected
from dmlsplit.conformance.cases import all_cases
from dmlsplit.conformance.observation import Answer, ModelRun, Observation, Written
from dmlsplit.errors import UnsupportedError

# What a difference is about. Those of APART do not count against the rules.
KINDS = {
    "verdict": "one accepts what the other refuses",
    "stage": "both refuse, but at different calls",
    "hresult": "both refuse at the same call, with different HRESULTs",
    "crash": "DirectML ended or hung, or removed the device, instead of answering",
    "level": "a device for a least feature level is not what Microsoft's pages say",
    "bytes": "outputs hold other bytes, or were not written",
    "policy": "about rules only that are choices of dmlsplit: Microsoft's documents are silent",
    "device": "refused, but this device says that it lacks the data type altogether",
}
APART = ("policy", "device")


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between the rules and what was seen."""

    kind: str  # of KINDS
    case: str
    expected: str
    observed: str
    rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """An observation with all its differences from the rules."""

    observation: Observation
    differences: tuple[Difference, ...]
    not_asked: tuple[str, ...]  # of today's cases for a probe

    @property
    def agrees(self) -> bool:
        """Whether nothing differs but what does not count."""
        return all(each.kind in APART for each in self.differences)


def compare(observation: Observation) -> Comparison:
    """Hold an observation to the rules of today, at the level that the library was seen to have."""
    found = (*_of_levels(observation), *_of_answers(observation), *_of_runs(observation))
    asked = {answer.case.id for answer in observation.answers}
    wanted = [case.id for case in all_cases() if case.placement is None]
    return Comparison(observation, found, tuple(name for name in wanted if name not in asked))


def answered(answer: Answer) -> str:
    """Return what became of a case, in a few words."""
    if not answer.stage:
        return answer.outcome
    if answer.outcome == "accepted" and answer.hresult != S_OK:
        return f"accepted with 0x{answer.hresult:08X}"
    return _verdict(answer.outcome == "accepted", answer.stage, answer.hresult)


def _verdict(accepted: bool, stage: str, hresult: int) -> str:
    return "accepted" if accepted else f"refused at {stage} with 0x{hresult:08X}"


def _of_levels(observation: Observation) -> Iterator[Difference]:
    for each in observation.levels:
        seen = each.ended or f"0x{each.hresult:08X}"
        seen += "" if each.level is None else f", level 0x{each.level:X}"
        wanted = f"0x{UnsupportedError.hresult:08X}"
        if each.asked <= observation.level:
            # A minimum: the device has the library's own level all the same.
            wanted = f"0x{S_OK:08X}, level 0x{observation.level:X}"
        if seen != wanted:
            yield Difference("level", f"minimum level 0x{each.asked:X}", wanted, seen)


def _of_answers(observation: Observation) -> Iterator[Difference]:
    for answer in observation.answers:
        now = expected(answer.case, observation.level)
        kind = _kind(answer, now, observation)
        if kind:
            seen = answered(answer)
            if answer.after_others:
                seen += f"; {answer.after_others} when asked after others"
            wanted = _verdict(now.accepted, now.stage, now.hresult)
            yield Difference(kind, answer.case.id, wanted, seen, now.rules)


def _kind(answer: Answer, now: Expected, observation: Observation) -> str:
    """Return the kind of the difference, or an empty string."""
    if not answer.stage or answer.after_others:
        return "crash"
    accepted = answer.outcome == "accepted"
    kind = ""
    if accepted != now.accepted:
        lacks = answer.case.desc.input_tensor.data_type in observation.lacking
        kind = "device" if lacks and now.accepted else "verdict"
    elif not accepted and answer.stage != now.stage:
        kind = "stage"
    elif answer.hresult != now.hresult:
        kind = "hresult"
    return "policy" if kind and now.policy else kind


def _of_runs(observation: Observation) -> Iterator[Difference]:
    """DxDispatch's exit status is the same for every refusal, so that only verdicts compare."""
    level, lacking = observation.level, observation.lacking
    for run in observation.runs:
        all_now = [expected(each.case, level) for each in run.written]
        rules = tuple(dict.fromkeys(rule for now in all_now for rule in now.rules))
        wanted = "refused" if rules else "accepted"
        lacks = any(each.case.desc.input_tensor.data_type in lacking for each in run.written)
        if run.outcome in ("crashed", "hung"):
            yield Difference("crash", run.model, wanted, run.outcome, rules)
        elif run.outcome != wanted:
            kind = "device" if lacks and not rules else "verdict"
            if rules and all(now.policy for now in all_now if now.rules):
                kind = "policy"
            yield Difference(kind, run.model, wanted, _ended(run), rules)
        elif not rules:
            for written in run.written:
                yield from _of_bytes(written)


def _ended(run: ModelRun) -> str:
    return run.outcome if run.outcome == "accepted" else f"refused, exit 0x{run.exit:08X}"


def _of_bytes(written: Written) -> Iterator[Difference]:
    if not written.outputs:
        return
    hashes = output_hashes(written.case)
    for index, (wanted, seen) in enumerate(zip(hashes, written.outputs, strict=True)):
        name = f"{written.case.id} OutputTensors[{index}]"
        if seen is None:
            yield Difference("bytes", name, f"SHA-256 {wanted}", "no file")
        elif seen[0] != wanted:
            yield Difference("bytes", name, f"SHA-256 {wanted}", f"SHA-256 {seen[0]}")
        elif not seen[1]:
            behind = "behind TotalTensorSizeInBytes"
            yield Difference("bytes", name, f"nothing written {behind}", f"bytes written {behind}")
