"""An observation: what a probe, and perhaps DxDispatch, saw of one DirectML.dll.

It carries every descriptor that was asked, so that it can be held to the rules of any later day.
The file comes from elsewhere, and is not trusted.
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TypeVar

from dmlsplit.conformance.byte_cases import is_small
from dmlsplit.conformance.case import Case, Placed, Placement, Values
from dmlsplit.directml.levels import FeatureLevel
from dmlsplit.directml.tensor import UINT_MAX, TensorDataType
from dmlsplit.errors import InvalidArgumentError, about
from dmlsplit.fields import Field
from dmlsplit.frontends.dxdispatch.descriptor import read_split
from dmlsplit.frontends.dxdispatch.strict_json import read_json

SCHEMA = 1

_OUTCOMES = ("accepted", "refused", "crashed", "hung", "removed")
_STAGES = ("create", "compile")
_VALUES: tuple[Values, ...] = ("numbers", "bits")
_T = TypeVar("_T", bound=str)


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one case: the call that was made last, and what it returned."""

    case: Case
    outcome: str  # accepted, refused, crashed, hung, or removed, as the device then is
    last_stage: str  # the last call that the case asks for
    stage: str  # empty if the process ended
    hresult: int
    after_others: str = ""  # how the process ended when the case was not the first in it


@dataclass(frozen=True, slots=True)
class LevelAnswer:
    """Whether there is a device for a minimumFeatureLevel, and the level that it has then."""

    asked: int
    hresult: int
    level: int | None
    ended: str = ""  # how the process ended instead


@dataclass(frozen=True, slots=True)
class Written:
    """The outputs that DxDispatch wrote of a case; None for a file that is not there."""

    case: Case
    outputs: tuple[tuple[str, bool] | None, ...]  # SHA-256, and whether the bytes behind are kept


@dataclass(frozen=True, slots=True)
class ModelRun:
    """How DxDispatch ended on a model, and what it wrote."""

    model: str
    outcome: str
    exit: int
    written: tuple[Written, ...]


@dataclass(frozen=True, slots=True)
class Observation:
    """What one library was seen to do."""

    date: str
    version: str
    sha256: str
    stand_in: bool  # a stand-in of the tests, not DirectML
    level: FeatureLevel
    adapter: str
    system: str
    debug: bool
    lacking: frozenset[TensorDataType]  # data types that the device does not have at all
    levels: tuple[LevelAnswer, ...]
    answers: tuple[Answer, ...]
    runs: tuple[ModelRun, ...]


def read_observation(path: str | PathLike[str]) -> Observation:
    """Read an observation.

    Raises
    ------
    InvalidArgumentError
        If it is not one; the message names the field.
    """
    with about(path):
        root = read_json(Path(path))
        if root.get("schema").value != SCHEMA:
            raise root.get("schema").error(f"{SCHEMA}, which this dmlsplit reads")
        answers = tuple(map(_answer, root.get("cases").items()))
        if not answers:
            raise root.get("cases").wrong("is empty; an observation has at least one case")
        library, adapter, system = (root.get(name) for name in ("directml", "adapter", "system"))
        version = library.get("version")
        return Observation(
            root.get("date").text(),
            version.text() if version.value is not None else "of unknown version",
            library.get("sha256").text(),
            _truth(library.get("stand_in")),
            _level(root.get("level")),
            adapter.get("name").text(),
            f"{system.get('name').text()} {system.get('build').text()}",
            _truth(root.get("debug")),
            _lacking(root.get("data_types")),
            tuple(map(_level_answer, root.get("minimum_levels").items())),
            answers,
            tuple(map(_run, root.optional("dxdispatch", default=[]).items())),
        )


def _level(field: Field) -> FeatureLevel:
    """Return the highest level known here that the library has: a level contains those below."""
    value = field.integer(int(min(FeatureLevel)), UINT_MAX)
    return max(level for level in FeatureLevel if level <= value)


def _lacking(field: Field) -> frozenset[TensorDataType]:
    kinds: dict[str, TensorDataType] = dict(TensorDataType.__members__)
    for name, _ in field.members():
        if name not in kinds:
            raise field.wrong(f"has {name[:40]!r}, which is no data type")
    return frozenset(kinds[name] for name, value in field.members() if not _truth(value))


def _choice(field: Field, names: tuple[_T, ...]) -> _T:
    for name in names:
        if field.value == name:
            return name
    raise field.error(f"one of {', '.join(names)}")


def _truth(field: Field) -> bool:
    if not isinstance(field.value, bool):
        raise field.error("true or false")
    return field.value


def _hresult(field: Field) -> int:
    text = field.text()
    try:
        value = int(text, 16)
    except ValueError:
        value = -1
    if not 0 <= value <= UINT_MAX:
        raise field.error("an HRESULT such as 0x80070057")
    return value


def _answer(field: Field) -> Answer:
    case = Case(field.get("id").text(), "", read_split(field.get("desc")))
    outcome = _choice(field.get("outcome"), _OUTCOMES)
    last = _choice(field.get("last_stage"), _STAGES)
    before = field.find("after_others")
    after = _choice(before.get("outcome"), _OUTCOMES) if before else ""
    if outcome not in ("accepted", "refused"):
        return Answer(case, outcome, last, "", 0)
    stage, hresult = _choice(field.get("stage"), _STAGES), _hresult(field.get("hresult"))
    return Answer(case, outcome, last, stage, hresult, after)


def _level_answer(field: Field) -> LevelAnswer:
    asked, ended = field.get("asked").integer(0, UINT_MAX), field.find("outcome")
    if ended:
        return LevelAnswer(asked, 0, None, _choice(ended, _OUTCOMES))
    level = field.get("level")
    given = None if level.value is None else level.integer(0, UINT_MAX)
    return LevelAnswer(asked, _hresult(field.get("hresult")), given)


def _run(field: Field) -> ModelRun:
    outcome = _choice(field.get("outcome"), _OUTCOMES)
    exit_ = field.optional("exit", default=0).integer(0, UINT_MAX)
    written = tuple(map(_written, field.get("cases").items()))
    if not written:
        raise field.get("cases").wrong("is empty; a model has at least one case")
    return ModelRun(field.get("model").text(), outcome, exit_, written)


def _written(field: Field) -> Written:
    placed = field.find("placement")
    case = Case(
        field.get("id").text(),
        "",
        read_split(field.get("desc")),
        _choice(field.get("values"), _VALUES),
        _placement(placed) if placed else None,
    )
    outputs = tuple(map(_output, field.get("outputs").items()))
    if outputs and not is_small(case.desc):
        raise field.get("desc").wrong("is larger than what a kit dispatches")
    if outputs and len(outputs) != case.desc.output_count:
        raise field.get("outputs").wrong(f"must have {case.desc.output_count} entries, or none")
    return Written(case, outputs)


def _output(field: Field) -> tuple[str, bool] | None:
    if field.value is None:
        return None
    return field.get("sha256").text(), _truth(field.get("kept_behind"))


# A kit has no larger buffers; they are allocated to judge bindings.
_MOST_BUFFER_BYTES = 1 << 20


def _placement(field: Field) -> Placement:
    sizes = [size.integer(1, _MOST_BUFFER_BYTES) for size in field.get("buffers").items()]

    def placed(each: Field) -> Placed:
        buffer = each.get("buffer").integer(0, len(sizes) - 1)
        return Placed(buffer, each.get("offset").integer(0, sizes[buffer]))

    outputs = tuple(map(placed, field.get("output_tensors").items()))
    if len(sizes) > 1 + len(outputs):
        raise InvalidArgumentError(f"{field.path}.buffers: has more buffers than tensors")
    return Placement(tuple(sizes), placed(field.get("input_tensor")), outputs)
