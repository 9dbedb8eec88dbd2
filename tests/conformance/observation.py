"""Reads the answers of one DirectML.dll from a file, which is not trusted.

It has every descriptor, so that later versions of the rules can be compared with the answers.
"""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from dmlsplit.directml.levels import FeatureLevel
from dmlsplit.directml.tensor import UINT_MAX, TensorDataType
from dmlsplit.errors import path_in_errors
from dmlsplit.fields import Field
from dmlsplit.frontends.dxdispatch.descriptor import read_split
from dmlsplit.frontends.dxdispatch.strict_json import read_json
from tests.conformance.case import Case, Outcome, Placed, Placement, is_small
from tests.conformance.probe import SCHEMA

VERDICTS = ("accepted", "refused")
_MAX_BUFFER_BYTES = 1 << 20  # more than in any kit; a limit, because `expected` allocates buffers


@dataclass(frozen=True, slots=True)
class Dispatched:
    """The end of DxDispatch's run of a case's model, and the outputs of the run."""

    verdict: str
    exit: int
    outputs: tuple[tuple[str, bool] | None, ...]  # SHA-256, and whether the guard is intact


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one case."""

    case: Case
    outcome: Outcome | None  # None if only DxDispatch ran the case
    after_others: str  # how an earlier process ended in which the case was not the first
    dispatched: Dispatched | None


@dataclass(frozen=True, slots=True)
class Observation:
    """The observed behaviour of one library."""

    date: str
    version: str
    sha256: str
    stand_in: bool  # whether it is the tests' stand-in and not DirectML
    level: FeatureLevel
    adapter: str
    system: str
    debug: bool
    lacking: frozenset[TensorDataType]  # data types that the device lacks
    levels: tuple[tuple[int, str], ...]  # each minimumFeatureLevel, and the answer to it
    answers: tuple[Answer, ...]


def read_observation(path: str | PathLike[str]) -> Observation:
    """Read an observation; InvalidArgumentError names the first bad field."""
    with path_in_errors(path):
        root = read_json(Path(path))
        if root.get("schema").value != SCHEMA:
            raise root.get("schema").error(f"{SCHEMA}, which this dmlsplit reads")
        if root.get("cases").value == []:
            raise root.get("cases").invalid("is empty; an observation has at least one case")
        library, system = root.get("directml"), root.get("system")
        version = library.get("version")
        return Observation(
            root.get("date").text(),
            version.text() if version.value is not None else "of unknown version",
            library.get("sha256").text(),
            _truth(library.get("stand_in")),
            _level(root.get("level")),
            root.get("adapter").get("name").text(),
            f"{system.get('name').text()} {system.get('build').text()}",
            _truth(root.get("debug")),
            _lacking(root.get("data_types")),
            tuple(map(_level_answer, root.get("minimum_levels").items())),
            tuple(map(_answer, root.get("cases").items())),
        )


def _choice(field: Field, *names: str) -> Any:
    if field.value not in names:
        raise field.error(f"one of {', '.join(names)}")
    return field.value


def _truth(field: Field) -> bool:
    if not isinstance(field.value, bool):
        raise field.error("true or false")
    return field.value


def _level(field: Field) -> FeatureLevel:
    """The highest level of the library that this dmlsplit knows; levels contain all lower ones."""
    value = field.integer(int(min(FeatureLevel)), UINT_MAX)
    return max(level for level in FeatureLevel if level <= value)


def _lacking(field: Field) -> frozenset[TensorDataType]:
    for name, _ in field.members():
        if name not in TensorDataType.__members__:
            raise field.invalid(f"has {name[:40]!r}, which is not a data type")
    return frozenset(TensorDataType[name] for name, value in field.members() if not _truth(value))


def _verdict(answer: Field) -> str:
    return str(_choice(answer.get("outcome"), *VERDICTS, "crashed", "hung", "removed"))


def _hresult(answer: Field) -> int:
    def convert(text: str) -> int:
        return Field(int(text, 16)).integer(0, UINT_MAX)

    return answer.get("hresult").read(convert, "an HRESULT such as 0x80070057")


def _level_answer(field: Field) -> tuple[int, str]:
    asked = field.get("asked").integer(0, UINT_MAX)
    if field.find("outcome"):
        return asked, _verdict(field)
    level = field.get("level")
    given = "" if level.value is None else f", level 0x{level.integer(0, UINT_MAX):X}"
    return asked, f"0x{_hresult(field):08X}{given}"


def _answer(field: Field) -> Answer:
    placement, before = field.find("placement"), field.find("after_others")
    dispatched = field.find("dispatched")
    case = Case(
        field.get("id").text(),
        "",
        read_split(field.get("desc")),
        _choice(field.optional("values", default="numbers"), "numbers", "bits"),
        _placement(placement) if placement else None,
    )
    return Answer(
        case,
        _outcome(field) if field.find("outcome") or not dispatched else None,
        _verdict(before) if before else "",
        _dispatched(dispatched, case) if dispatched else None,
    )


def _placement(field: Field) -> Placement:
    sizes = [size.integer(1, _MAX_BUFFER_BYTES) for size in field.get("buffers").items()]

    def placed(each: Field) -> Placed:
        buffer = each.get("buffer").integer(0, len(sizes) - 1)
        return Placed(buffer, each.get("offset").integer(0, sizes[buffer]))

    outputs = tuple(map(placed, field.get("output_tensors").items()))
    if len(sizes) > 1 + len(outputs):
        raise field.get("buffers").invalid("has more buffers than tensors")
    return Placement(tuple(sizes), placed(field.get("input_tensor")), outputs)


def _outcome(field: Field) -> Outcome:
    verdict = _verdict(field)
    if verdict not in VERDICTS:
        return Outcome(verdict)
    stage = _choice(field.get("stage"), "create", "compile")
    return Outcome(verdict, "done" if verdict == "accepted" else stage, _hresult(field))


def _dispatched(field: Field, case: Case) -> Dispatched:
    exit_ = field.optional("exit", default=0).integer(0, UINT_MAX)
    outputs = tuple(map(_output, field.get("outputs").items()))
    if outputs and not is_small(case.desc):
        raise field.get("outputs").invalid(
            "must be empty, because the case is larger than any that a kit dispatches"
        )
    if outputs and len(outputs) != case.desc.output_count:
        raise field.get("outputs").invalid(f"must have {case.desc.output_count} entries, or none")
    return Dispatched(_verdict(field), exit_, outputs)


def _output(field: Field) -> tuple[str, bool] | None:
    if field.value is None:
        return None
    return field.get("sha256").text(), _truth(field.get("kept_behind"))
