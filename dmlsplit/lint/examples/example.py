"""What an example of a rule is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Example:
    """Two programs, or two models, that differ in whether they break a rule.

    Attributes
    ----------
    kind : str
        ``python``: a whole program; the one that breaks the rule prints a report of it, or
        raises an error with such a report. ``onnx``: a model in ONNX's text form, which
        ``onnx.parser.parse_model`` reads; its first line, a comment, is the command that
        validates it.
    broken, kept : str
        What breaks the rule, and what does not.
    said : str
        What is said of the former, without the rule's id and fix.
    """

    kind: Literal["python", "onnx"]
    broken: str
    kept: str
    said: str
