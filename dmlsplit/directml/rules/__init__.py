"""The rules of a Split, by id."""

from typing import TypeAlias

from dmlsplit.directml.rules.bindings import BINDINGS
from dmlsplit.directml.rules.descriptors import DESCRIPTORS
from dmlsplit.directml.rules.violation import Violation

RULES = DESCRIPTORS | BINDINGS

# One finding of a check in a tensor: rule id, field, found, allowed; and a fix, if the rule's own
# hint does not fit.
BrokenRule: TypeAlias = tuple[str, str, object, object] | tuple[str, str, object, object, str]


def violation_of(tensor: str, broken: BrokenRule) -> Violation:
    """What a report says of a broken rule; `tensor` is "" for the operator itself."""
    rule_id, field, found, allowed, *fix = broken
    return Violation(RULES[rule_id], tensor, field, str(found), str(allowed), fix="".join(fix))
