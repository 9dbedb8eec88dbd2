"""The differences between the rules and an observation of a DirectML.dll, which is not trusted."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dmlsplit.directml.levels import FeatureLevel
from dmlsplit.directml.rules import RULES
from dmlsplit.directml.tensor import UINT_MAX
from dmlsplit.directml.validation import report_at
from dmlsplit.errors import InvalidArgumentError, path_in_errors
from dmlsplit.files.fields import Field
from dmlsplit.files.strict_json import read_json
from dmlsplit.messages import counted, printable
from dmlsplit.models.dxdispatch.descriptor import read_split
from tests.conformance.cases import all_cases
from tests.conformance.probe import SCHEMA

# The kinds of differences. Those in APART do not count against the rules.
KINDS = {
    "verdict": "one accepts the split and the other refuses it",
    "stage": "both refuse, but at different calls",
    "hresult": "both refuse at the same call, with different HRESULTs",
    "crash": "DirectML crashed, hung or removed the device instead of answering",
    "policy": "only about rules that dmlsplit chose, because Microsoft's documents are silent",
    "device": "refused, but this device reports that it does not support the data type at all",
}
APART = ("policy", "device")
_VERDICTS, _ENDS = ("accepted", "refused"), ("crashed", "hung", "removed")


class Difference(NamedTuple):
    """One difference between the rules and an observation."""

    kind: str  # a key of KINDS
    case: str
    expected: str
    observed: str


class Comparison(NamedTuple):
    """The observed library and device in a line, and all differences from the rules."""

    subject: str
    is_stand_in: bool
    differences: tuple[Difference, ...]
    missing: tuple[str, ...]  # today's cases that the observation lacks

    @property
    def agrees(self) -> bool:
        """Whether no difference counts against the rules."""
        return all(difference.kind in APART for difference in self.differences)

    def __str__(self) -> str:
        verdict = "agrees with" if self.agrees else "differs from"
        lines = [f"{self.subject} {verdict} the rules"]
        if self.missing:
            lines.append(f"{counted(len(self.missing), 'case')} of today's kit not observed")
        for kind, about in KINDS.items():
            differences = [difference for difference in self.differences if difference.kind == kind]
            apart = " (does not count)" if kind in APART else ""
            if differences:
                lines.append(f"{kind}: {counted(len(differences), 'difference')}{apart}: {about}")
            lines += [
                f"  {d.case}: expected {d.expected}; observed {d.observed}" for d in differences
            ]
        return "\n".join(map(printable, lines))


def compare(path: Path) -> Comparison:
    """Compare an observation with today's rules, at the feature level of the library.

    An InvalidArgumentError names the first field that is not one of an observation.
    """
    with path_in_errors(path):
        root = read_json(path)
        if root.get("schema").value != SCHEMA:
            raise root.get("schema").error(f"{SCHEMA}, which this dmlsplit reads")
        library, cases = root.get("directml"), root.get("cases").items()
        level = _level(root.get("level"))
        lacking = {name for name, has in root.get("data_types").members() if has.value is False}
        differences = tuple(d for case in cases for d in _differences(case, level, lacking))
        case_ids = {case.get("id").text() for case in cases}
        is_stand_in = library.get("stand_in").value is not False
        name = "A STAND-IN, not DirectML," if is_stand_in else "DirectML"
        place = ", ".join(root.get(field).text() for field in ("adapter", "system", "date"))
        subject = f"{name} {library.get('version').text()} of level {level} on {place}"
    missing = tuple(case.id for case in all_cases() if case.id not in case_ids)
    return Comparison(subject, is_stand_in, differences, missing)


def _level(field: Field) -> FeatureLevel:
    """The highest level of the library that this dmlsplit knows; levels contain all lower ones."""
    value = field.integer(int(min(FeatureLevel)), UINT_MAX)
    return max(level for level in FeatureLevel if level <= value)


def _differences(case: Field, level: FeatureLevel, lacking: set[str]) -> Iterator[Difference]:
    desc, name = read_split(case.get("desc")), case.get("id").text()
    rules = report_at(desc, level).rule_ids
    expected = ("refused", "create", InvalidArgumentError.hresult) if rules else ("accepted",)
    observed, before = _answer(case), case.find("after_others")
    expected_text = f"{_text(expected)} ({', '.join(rules)})" if rules else _text(expected)
    if before or observed[0] in _ENDS:
        after = f"; {_choice(before, *_ENDS)} after other cases" if before else ""
        yield Difference("crash", name, expected_text, _text(observed) + after)
    elif observed != expected:
        parts = zip(("verdict", "stage", "hresult"), expected, observed, strict=False)
        kind = next(
            part for part, expected_part, observed_part in parts if expected_part != observed_part
        )
        if rules and all(RULES[rule].basis == "policy" for rule in rules):
            kind = "policy"
        elif not rules and desc.input_tensor.data_type.name in lacking:
            kind = "device"
        yield Difference(kind, name, expected_text, _text(observed))


def _answer(case: Field) -> tuple[str | int, ...]:
    """The verdict; of a refusal, also the call that refused and its HRESULT."""
    verdict = _choice(case.get("outcome"), *_VERDICTS, *_ENDS)
    if verdict != "refused":
        return (verdict,)
    hresult = case.get("hresult").read(lambda text: int(text, 16), "an HRESULT such as 0x80070057")
    stage = _choice(case.get("stage"), "create", "compile")
    return verdict, stage, Field(hresult, case.get("hresult").path).integer(0, UINT_MAX)


def _choice(field: Field, *names: str) -> str:
    return str(field.one_of({name: name for name in names}, ""))


def _text(answer: tuple[str | int, ...]) -> str:
    return "{} at {} with 0x{:08X}".format(*answer) if len(answer) > 1 else str(answer[0])
