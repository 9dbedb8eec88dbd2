"""The rules of a Split, by id."""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from dmlsplit.directml.rules.bindings import BINDINGS
from dmlsplit.directml.rules.operators import OPERATORS
from dmlsplit.directml.rules.rule import Rule
from dmlsplit.directml.rules.tensors import TENSORS
from dmlsplit.directml.rules.violation import Violation

RULES: dict[str, Rule] = TENSORS | OPERATORS | BINDINGS

# What a check finds in a tensor: rule id, field, found, allowed.
Broken: TypeAlias = tuple[str, str, object, object]


def violations_of(tensor: str, broken: Iterable[Broken]) -> Iterator[Violation]:
    """The violations that a check has found in a tensor, or with "" in the operator itself."""
    for rule_id, field, found, allowed in broken:
        yield Violation(RULES[rule_id], tensor, field, str(found), str(allowed))
