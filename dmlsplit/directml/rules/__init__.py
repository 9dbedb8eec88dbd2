"""The rules of a Split, by id."""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from dmlsplit.directml.rules.bindings import BINDINGS
from dmlsplit.directml.rules.descriptors import DESCRIPTORS
from dmlsplit.directml.rules.violation import Violation
from dmlsplit.messages import digits

RULES = DESCRIPTORS | BINDINGS

# One finding of a check in a tensor: rule id, field, found, allowed; and a fix, if the rule's own
# hint does not fit.
BrokenRule: TypeAlias = tuple[str, str, object, object] | tuple[str, str, object, object, str]


def violations_of(tensor: str, broken: Iterable[BrokenRule]) -> Iterator[Violation]:
    """The violations of a tensor; `tensor` is "" for the operator itself."""
    for rule_id, field, found, allowed, *fix in broken:
        text = digits(found) if isinstance(found, int) else str(found)
        yield Violation(RULES[rule_id], tensor, field, text, str(allowed), fix="".join(fix))
