"""What rules say about a split, and the report of a descriptor."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass

from dmlsplit.directml.rules.rule import Effect, Rule, Severity
from dmlsplit.messages import counted, omitted_lines

_SHOWN = 20  # the most violations in a text


@dataclass(frozen=True, slots=True)
class Violation:
    """One finding of a rule: a field that breaks it, or a remark about a node.

    Attributes
    ----------
    rule : Rule
        The rule.
    tensor : str
        ``InputTensor``, ``OutputTensors[2]``, or empty for the operator itself.
    field : str
        The DirectML field, such as ``Sizes[1]``; empty if the rule is about no field.
    found : str
        The value of the field, in words or digits.
    allowed : str
        What is allowed instead, which completes "it must be".
    fix : str
        How to comply here, if the rule's own hint does not fit; otherwise empty.
    text : str
        The message, if the rule's wording does not fit; otherwise empty.
    is_warning : bool
        Whether it is a warning, whatever the rule's own severity is.
    own_effect : Effect or None
        What happens here in a runtime, if it is not what the rule says.

    See Also
    --------
    ValidationReport : The violations of a descriptor or a binding.

    Examples
    --------
    >>> import dmlsplit as dml
    >>> x = dml.TensorDesc("FLOAT32", (6,))
    >>> desc = dml.SplitOperatorDesc.from_sizes(x, axis=1, sizes=(2, 4))
    >>> violation = dml.validate(desc).violations[0]
    >>> violation.rule.id, violation.field, violation.found
    ('DML-SPLIT-AXIS-RANGE', 'Axis', '1')
    """

    rule: Rule
    tensor: str = ""
    field: str = ""
    found: str = ""
    allowed: str = ""
    _: KW_ONLY
    fix: str = ""
    text: str = ""
    is_warning: bool = False
    own_effect: Effect | None = None

    @property
    def effect(self) -> Effect | None:
        """What happens to a model in ONNX Runtime and Windows ML; None for a remark.

        ``load``: it does not load. ``unwritten``: some pieces are never written. ``run``: it fails
        when it runs. ``cpu``: the node runs on the CPU. ``unknown``: nobody knows.
        """
        return self.own_effect or self.rule.effect

    @property
    def severity(self) -> Severity:
        """How bad it is, ``error``, ``defect``, ``warning`` or ``note``.

        An error is a broken rule of DirectML or of a runtime, a defect a known bug of DirectML.
        """
        return "warning" if self.is_warning else self.rule.severity

    @property
    def place(self) -> str:
        """The tensor and the field, such as ``InputTensor.Sizes[1]``; empty if both are."""
        return ".".join(part for part in (self.tensor, self.field) if part)

    @property
    def hint(self) -> str:
        """How to comply, which is `fix` or else the hint of the rule."""
        return self.fix or self.rule.hint

    @property
    def message(self) -> str:
        """What is wrong, in one sentence without a full stop."""
        wording = self.rule.wording.format(found=self.found, allowed=self.allowed)
        return self.text or f"{self.place} {wording}"

    def __str__(self) -> str:
        return f"{self.rule.id}: {self.message}. Fix: {self.hint}."


@dataclass(frozen=True, slots=True, repr=False)
class ValidationReport:
    """Every broken rule of one descriptor or binding.

    Attributes
    ----------
    subject : str
        The descriptor in one line.
    level : str
        The feature level that it was checked for, such as ``3_0``; empty for none.
    violations : tuple of Violation
        Empty if no rule is broken.

    See Also
    --------
    validate : Makes a report of a descriptor.
    InvalidArgumentError : Has the report of what was rejected.

    Examples
    --------
    >>> import dmlsplit as dml
    >>> x = dml.TensorDesc("FLOAT32", (6,))
    >>> report = dml.validate(dml.SplitOperatorDesc.from_sizes(x, axis=0, sizes=(2, 4)), "2_0")
    >>> report.ok, report.level, report.rule_ids
    (False, '2_0', ('DML-LEVEL-DIMENSION-COUNT',))
    """

    subject: str
    level: str
    violations: tuple[Violation, ...]

    @property
    def ok(self) -> bool:
        """Whether no rule is broken."""
        return not self.violations

    @property
    def rule_ids(self) -> tuple[str, ...]:
        """The ids of the broken rules, each once, in order."""
        return tuple(dict.fromkeys(violation.rule.id for violation in self.violations))

    def __str__(self) -> str:
        suffix = f" at feature level {self.level}" if self.level else ""
        if self.ok:
            return f"{self.subject}{suffix}: ok"
        rules = len(self.rule_ids)
        count = len(self.violations)
        places = f" in {count} places" if count > rules else ""
        lines = [f"{self.subject}{suffix}: {counted(rules, 'rule')} broken{places}"]
        shown = *_once_per_fix(self.violations[:_SHOWN]), *omitted_lines(count, _SHOWN)
        lines += [f"  {line}" for line in shown]
        return "\n".join(lines)

    def __repr__(self) -> str:
        level = f", level={self.level!r}" if self.level else ""
        return f"ValidationReport({self.subject!r}{level}, rule_ids={self.rule_ids})"


def _once_per_fix(violations: tuple[Violation, ...]) -> Iterator[str]:
    """The violations as text; of neighbours with one rule and fix, the last one has the fix."""
    fixes = [(violation.rule, violation.hint) for violation in violations]
    for violation, fix, next_fix in zip(violations, fixes, [*fixes[1:], None], strict=True):
        yield f"{violation.rule.id}: {violation.message}." if fix == next_fix else str(violation)
