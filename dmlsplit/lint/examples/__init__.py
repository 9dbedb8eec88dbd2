"""An example of every rule: what breaks it, what keeps it, and what is said of the former.

Only pages of rules need these modules; nothing else imports them. The tests run every example.
"""

from __future__ import annotations

from dmlsplit.lint.examples.bindings import BINDINGS
from dmlsplit.lint.examples.descriptors import DESCRIPTORS
from dmlsplit.lint.examples.example import Example
from dmlsplit.lint.examples.models import MODELS

# By the id of the rule.
EXAMPLES: dict[str, Example] = DESCRIPTORS | BINDINGS | MODELS
