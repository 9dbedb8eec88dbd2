"""The record of a rule: its sentence, its source, samples that break it, and its fix."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dmlsplit.resources import parsed_yaml

# Where a rule comes from.
Basis = Literal["documented", "source", "reported", "policy"]
# What happens to a model that breaks a rule in ONNX Runtime or Windows ML: it does not load, some
# pieces are never written, it fails when it runs, the node runs on the CPU, or nobody knows.
Effect = Literal["load", "unwritten", "run", "cpu", "unknown"]
# An error is a broken rule of DirectML or of a runtime, a defect a known bug of DirectML.
Severity = Literal["error", "defect", "warning", "note"]
# Another descriptor of the same bytes, standard ONNX nodes instead of the split, or a higher level.
FixKind = Literal["descriptor", "model", "level"]

# A wrong binding removes the device, since BindInputs and BindOutputs return nothing. Source:
# https://learn.microsoft.com/windows/ai/directml/dml-errors
DEVICE_REMOVED = 0x887A0005


class Sample(NamedTuple):
    """A descriptor that breaks exactly one rule, or just satisfies it."""

    # What is special about the descriptor, in a few words.
    about: str
    # Makes the descriptor when it is asked for.
    build: Callable[[], Any]
    # The feature level at which the rule is broken or kept.
    level: str
    # Distinguishes the samples of a rule.
    name: str = ""

    # SplitOperatorDesc cannot be imported here: errors carry rules, and descriptors raise errors.
    @property
    def desc(self) -> Any:
        """The descriptor, a SplitOperatorDesc."""
        return self.build()


class Example(NamedTuple):
    """Two programs, or two models, that differ in whether they break a rule."""

    # ``python``: a program. The one that breaks the rule prints a report, or raises an error that
    # has one. ``onnx``: a model in the text form of `onnx.parser.parse_model`. Its first line is a
    # comment with the command that validates it.
    kind: Literal["python", "onnx"]
    broken: str
    kept: str
    # The report of `broken`, without the rule's id and fix.
    message: str


@dataclass(frozen=True, slots=True, repr=False)
class Rule:
    """Everything about one rule, except the code that checks it.

    Attributes
    ----------
    sentence : str
        What the rule demands.
    id : str
        The name of the rule, which never changes: reports, baselines and searches use it.
    basis : str
        Where the rule comes from: ``documented`` by DirectML, ONNX or ONNX Runtime; ``source``,
        read in the source code of ONNX Runtime; ``reported`` in a public issue; or ``policy``, a
        choice of dmlsplit where these are silent.
    source : str
        The link to where that is, or for a policy the text of the choice.
    hint : str
        How to comply.
    wording : str
        What a violation says after the place, with the names of its fields in braces.
    hresult : int or None
        DirectML's error at run time, E_INVALIDARG by default; None if no call of it fails.
    consequence : str
        What happens at run time instead of an error, in a sentence; empty if there is an error.
    severity : str
        ``error`` for a rule of DirectML or of a runtime, ``defect`` for a known bug of DirectML,
        ``warning`` or ``note``.
    effect : str or None
        What happens in ONNX Runtime and Windows ML, unless a violation says otherwise; None for a
        rule that is about no runtime.
    fixable_by : tuple of str
        What can help: another ``descriptor`` of the same bytes, a rewritten ``model``, or a higher
        ``level``; empty if nothing of these can.
    at_every_size : bool
        Whether a split that breaks the rule also breaks it with larger sizes.
    broken, kept : tuple
        Samples of descriptors that break only this rule, and of similar ones that keep it.
    example : tuple or None
        The example of a rule that no descriptor can show; None for others.
    impossible_in_c : str
        Why no C program can break the rule, so that DirectML itself cannot be asked; empty if one
        can.

    See Also
    --------
    dmlsplit.Violation : A finding of a rule.

    Examples
    --------
    >>> import dmlsplit as dml
    >>> x = dml.TensorDesc("FLOAT32", (6,))
    >>> desc = dml.SplitOperatorDesc.from_sizes(x, axis=1, sizes=(2, 4))
    >>> dml.validate(desc).violations[0].rule.basis
    'documented'
    """

    sentence: str
    _: KW_ONLY
    id: str = ""
    basis: Basis
    source: str
    hint: str
    wording: str = "is {found}; it must be {allowed}"
    hresult: int | None = 0x80070057
    consequence: str = ""
    severity: Severity = "error"
    effect: Effect | None = None
    fixable_by: tuple[FixKind, ...] = ()
    at_every_size: bool = False
    # Samples are not compared: their functions are equal to none of another process.
    broken: tuple[Sample, ...] = field(default=(), compare=False)
    kept: tuple[Sample, ...] = field(default=(), compare=False)
    example: Example | None = None
    impossible_in_c: str = ""

    # The samples are functions, whose addresses would differ in each process.
    def __repr__(self) -> str:
        return f"<Rule {self.id}>"


def read_rules(path: Path, **readers: Callable[[Any], Any]) -> dict[str, Rule]:
    """The rules of a YAML file, by id. `readers` convert the fields of these names."""
    records = parsed_yaml(path.read_text("utf-8"))
    readers = {"fixable_by": tuple, **readers}
    return {rule_id: _rule(rule_id, fields, readers) for rule_id, fields in records.items()}


def _rule(
    rule_id: str, fields: dict[str, Any], readers: Mapping[str, Callable[[Any], Any]]
) -> Rule:
    """The rule of a record; a TypeError names a field that is unknown or missing."""
    try:
        converted = {name: readers[name](fields[name]) for name in readers.keys() & fields.keys()}
        return Rule(id=rule_id, **{**fields, **converted})
    except TypeError as error:
        raise TypeError(f"{rule_id}: {error}") from None
