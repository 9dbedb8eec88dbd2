"""The messages for each way to break a rule of descriptors: tests/golden/rules.txt."""

import dmlsplit as dml
from dmlsplit.directml.rules import RULES


def messages() -> str:
    """A line for each sample: its rule and name, then place, value and allowed values."""
    lines = [
        f"{rule.id} {example.name}".rstrip()
        + f": {dml.validate(example.desc, example.level).violations[0].message}\n"
        for rule in RULES.values()
        for example in rule.broken
    ]
    return "".join(lines)
