"""The rules of a Split, by id."""

from typing import NamedTuple

from dmlsplit.directml.rules.bindings import BINDINGS
from dmlsplit.directml.rules.descriptors import DESCRIPTORS
from dmlsplit.directml.rules.violation import Violation
from dmlsplit.messages import digits

RULES = DESCRIPTORS | BINDINGS


class BrokenRule(NamedTuple):
    """A rule that a field of a tensor or of the operator breaks, named as in `Violation`."""

    rule_id: str
    field: str
    found: object
    allowed: object
    fix: str = ""


def violation_of(tensor: str, broken: BrokenRule) -> Violation:
    """What a report says of a broken rule; `tensor` is "" for the operator itself."""
    found = digits(broken.found) if isinstance(broken.found, int) else str(broken.found)
    return Violation(
        RULES[broken.rule_id],
        tensor,
        broken.field,
        found,
        str(broken.allowed),
        fix=broken.fix,
    )
