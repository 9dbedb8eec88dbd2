"""Values of JSON and YAML documents, each with its path, so that errors name the place."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from dmlsplit.errors import InvalidArgumentError
from dmlsplit.messages import cut_middle, value_text

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Field:
    """A value and its path, such as ``resources.A.initialValues``; empty for the whole document."""

    value: Any
    path: str = ""

    def error(self, allowed: str) -> InvalidArgumentError:
        """The error for a value that is not allowed."""
        match self.value:
            case None | bool():
                shown = json.dumps(self.value)
            case dict():
                shown = "an object"
            case list():
                shown = "an array"
            case _:
                shown = value_text(self.value)
        return self.invalid(f"is {shown}; it must be {allowed}")

    def invalid(self, problem: str) -> InvalidArgumentError:
        """The error about this value: its path, then what it does or is."""
        return InvalidArgumentError(f"{self.path} {problem}" if self.path else problem)

    def find(self, *names: str) -> Field | None:
        """The first member with one of these names, or None."""
        if not isinstance(self.value, Mapping):
            raise self.error("an object")
        for name in names:
            if name in self.value:
                step = cut_middle(name if name.isprintable() else repr(name), 80)
                return Field(self.value[name], f"{self.path}.{step}" if self.path else step)
        return None

    def get(self, *names: str) -> Field:
        """The first member with one of these names; there must be one."""
        member = self.find(*names)
        if member is None:
            raise self.invalid(f"lacks {names[0]!r}")
        return member

    def optional(self, *names: str, default: Any) -> Field:
        """The first member with one of these names, or a default."""
        return self.find(*names) or Field(default, self.path)

    def members(self) -> list[tuple[str, Field]]:
        """The members of an object, in order."""
        if not isinstance(self.value, Mapping):
            raise self.error("an object")
        return [(str(name), self.get(name)) for name in self.value]

    def items(self) -> list[Field]:
        """The entries of an array."""
        if not isinstance(self.value, list):
            raise self.error("an array")
        return [Field(entry, f"{self.path}[{i}]") for i, entry in enumerate(self.value)]

    def one_or_many(self) -> list[Field]:
        """The entries of an array, or the value itself as the only entry."""
        return self.items() if isinstance(self.value, list) else [self]

    def text(self) -> str:
        """The value, which must be a string."""
        if not isinstance(self.value, str):
            raise self.error("a string")
        return self.value

    def integer(self, low: int | None = None, high: int | None = None) -> int:
        """An integer of at least `low`; with `high`, of at most that."""
        value = self.value
        is_int = isinstance(value, int) and not isinstance(value, bool)
        if not is_int or (low is not None and value < low) or (high is not None and value > high):
            bounds = f" of at least {low}" if high is None else f" from {low} to {high}"
            raise self.error(f"an integer{'' if low is None else bounds}")
        return int(value)

    def one_of(self, names: Mapping[str, Any], prefix: str) -> Any:
        """The value of an enum name, with or without its prefix, which may be empty."""
        name = self.text().removeprefix(prefix)
        if name not in names:
            either = f", with or without {prefix}" if prefix else ""
            raise self.error(f"one of {', '.join(names)}{either}")
        return names[name]

    def read(self, convert: Callable[[Any], T], allowed: str) -> T:
        """The converted value, which is not allowed if `convert` raises ValueError or TypeError."""
        try:
            return convert(self.value)
        except (ValueError, TypeError):
            raise self.error(allowed) from None
