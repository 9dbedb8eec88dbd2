"""The samples of the rules as cases: every rule that C can break, and values at their limits."""

from collections.abc import Iterator

from dmlsplit.conformance.case import Case
from dmlsplit.directml.rules import RULES

# Rules that no case breaks, and why.
NOT_ASKED = {
    rule.id: rule.beyond_c or rule.beyond_dxdispatch
    for rule in RULES.values()
    if rule.beyond_c or rule.beyond_dxdispatch
}


def rule_cases() -> Iterator[Case]:
    """A case for each way to break a rule, and for each value at its limit."""
    asked = [
        rule
        for rule in RULES.values()
        # The table of types and dimension counts asks about levels.
        if rule.id not in NOT_ASKED and not rule.id.startswith("DML-LEVEL-")
    ]
    for rule in asked:
        for name, about, desc, *_ in rule.broken:
            yield Case("-".join(filter(None, ("rule", rule.id[4:], name))), about, desc)
    for rule in asked:
        for name, about, desc, *_ in rule.kept:
            if name:
                yield Case(f"limit-{name}", about, desc)
