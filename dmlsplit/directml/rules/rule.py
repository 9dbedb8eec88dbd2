"""A rule: what it says, how that is known, what breaks it, and what cures that."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal, NamedTuple

# ``documented``: DirectML's documents state it. ``debug-layer``: known from DirectML's debug layer
# or its developers only. ``policy``: a choice of this library where the documents are silent.
Basis = Literal["documented", "debug-layer", "policy"]
# An error is a broken rule of DirectML or of a runtime, a defect a known bug of DirectML.
Severity = Literal["error", "defect", "warning", "note"]
# Another descriptor of the same bytes, or standard ONNX nodes in place of the split.
Cure = Literal["descriptor", "model"]

# What a wrong binding comes to: BindInputs and BindOutputs return nothing, so that the device is
# removed. Source: https://learn.microsoft.com/windows/ai/directml/dml-errors
DEVICE_REMOVED = 0x887A0005
API = "https://learn.microsoft.com/windows/win32/api/directml/"


class Sample(NamedTuple):
    """A descriptor that breaks one rule and no other, or that keeps it at its limit."""

    name: str  # tells the samples of a rule apart
    about: str  # what matters in it, in a few words
    desc: Any  # a SplitOperatorDesc: errors carry rules, and descriptors raise errors
    level: str = "6_4"  # the feature level at which the rule is broken, or kept


@dataclass(frozen=True, slots=True)
class Example:
    """Two programs, or two models, that differ in whether they break a rule."""

    # ``python``: a whole program; the one that breaks the rule prints a report, or raises an error
    # with one. ``onnx``: a model in ONNX's text form, which `onnx.parser.parse_model` reads; its
    # first line, a comment, is the command that validates it.
    kind: Literal["python", "onnx"]
    broken: str  # what breaks the rule
    kept: str  # what does not
    said: str  # what is reported of the former, without the rule's id and fix


@dataclass(frozen=True, slots=True)
class Rule:
    """Everything about one rule, except the code that checks it."""

    sentence: str  # what it says
    _: KW_ONLY
    id: str = ""  # stable: reports, baselines and searches use it
    basis: Basis
    source: str  # where it is written down
    hint: str  # how to comply
    # What breaking it comes to in DirectML at run time; None if nothing fails.
    hresult: int | None = 0x80070057  # E_INVALIDARG
    severity: Severity = "error"
    cured_by: tuple[Cure, ...] = ()
    at_every_size: bool = False  # a split that breaks it also does so with larger sizes
    broken: tuple[Sample, ...] = ()
    kept: tuple[Sample, ...] = ()
    example: Example | None = None  # for a rule that no descriptor can show
    # Why DirectML cannot be asked: because of C, or because of DxDispatch, which does the asking.
    beyond_c: str = ""
    beyond_dxdispatch: str = ""


def by_id(rules: dict[str, Rule]) -> dict[str, Rule]:
    """Give every rule its key as its id."""
    return {key: replace(rule, id=key) for key, rule in rules.items()}
