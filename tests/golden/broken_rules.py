"""The messages for each way to break a rule of descriptors: tests/golden/rules.txt."""

import dmlsplit as dml
from dmlsplit.directml.rules import RULES


def messages() -> str:
    """A line for each sample: its rule and name, then place, value and allowed values."""
    lines = [
        f"{rule.id} {each.name}".rstrip()
        + f": {dml.validate(each.desc, each.level).violations[0].message}\n"
        for rule in RULES.values()
        for each in rule.broken
    ]
    return "".join(lines)
