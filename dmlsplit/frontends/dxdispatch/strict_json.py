"""JSON as DxDispatch reads it, held to stricter rules, and fields that know their path.

Like DxDispatch's own parser it takes comments and trailing commas. Unlike it, it refuses
duplicate keys, which hide half of a file.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmlsplit.directml.tensor import UINT64_MAX
from dmlsplit.errors import InvalidArgumentError

# Parsed JSON takes up to twenty times its size; more data belongs in a source file.
MAX_JSON_BYTES = 16 << 20

# Strings come first in both, so that nothing inside one is taken for a comment or a comma.
# An unterminated string or comment runs to the end of the text, which keeps this linear.
_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)'
_COMMENTS = re.compile(_STRING + r"|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_TRAILING_COMMAS = re.compile(_STRING + r"|,(?=\s*[\]}])", re.DOTALL)


def read_json(path: Path) -> Field:
    """Read a JSON file; NaN and numbers beyond 64 bits are refused as well."""
    try:
        if not path.is_file():
            raise InvalidArgumentError("is not a file")
        if path.stat().st_size > MAX_JSON_BYTES:
            raise InvalidArgumentError(f"is larger than {MAX_JSON_BYTES >> 20} MiB")
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"cannot be read as UTF-8 text: {error}") from None
    return Field(parse_json(text), "")


def parse_json(text: str) -> Any:
    """Parse JSON text, with comments and trailing commas."""
    if "//" in text or "/*" in text:
        text = _COMMENTS.sub(_without_comment, text)
    text = _TRAILING_COMMAS.sub(lambda found: "" if found[0] == "," else found[0], text)
    try:
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_constant,
        )
    except json.JSONDecodeError as error:
        raise InvalidArgumentError(f"is not JSON: {error}") from None
    except RecursionError:
        raise InvalidArgumentError("nests arrays or objects too deeply") from None


def _without_comment(found: re.Match[str]) -> str:
    text = found[0]
    if text.startswith('"'):
        return text
    if text.startswith("/*") and (len(text) < 4 or not text.endswith("*/")):
        raise InvalidArgumentError("is not JSON: a comment does not end")
    return " " + "\n" * text.count("\n")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise InvalidArgumentError(f"has the key {twice[:40]!r} twice in one object")
    return result


def _integer(text: str) -> int:
    if len(text) > 20 or not -(2**63) <= int(text) <= UINT64_MAX:
        raise _too_large(text)
    return int(text)


def _float(text: str) -> float:
    value = float(text[:1000])
    if len(text) > 1000 or math.isinf(value):
        raise _too_large(text)
    return value


def _too_large(text: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"contains the number {text[:24]}, which does not fit 64 bits")


def _constant(text: str) -> float:
    name = text.lower().replace("infinity", "inf")
    raise InvalidArgumentError(f"contains {text}, which is not JSON; write the string {name!r}")


@dataclass(frozen=True, slots=True)
class Field:
    """A value of a JSON document and its path, such as ``resources.A.initialValues``."""

    value: Any
    path: str

    def error(self, allowed: str) -> InvalidArgumentError:
        """Return the error of a value that is not allowed."""
        shown = repr(self.value)
        kind = type(self.value)
        if self.value is None or kind is bool:
            shown = json.dumps(self.value)
        if kind in (dict, list):
            shown = "an object" if kind is dict else "an array"
        return self.wrong(f"is {shown[:60]}; it must be {allowed}")

    def wrong(self, what: str) -> InvalidArgumentError:
        """Return an error about this value."""
        return InvalidArgumentError(f"{self.path}: {what}" if self.path else what)

    def find(self, *names: str) -> Field | None:
        """Return the first member that has one of these names; None if there is none."""
        if not isinstance(self.value, Mapping):
            raise self.error("an object")
        for name in names:
            if name in self.value:
                step = name[:80] if name.isprintable() else repr(name)[:80]
                return Field(self.value[name], f"{self.path}.{step}" if self.path else step)
        return None

    def get(self, *names: str) -> Field:
        """Return a member that must be there."""
        found = self.find(*names)
        if found is None:
            raise self.wrong(f"lacks {names[0]!r}")
        return found

    def optional(self, *names: str, default: Any) -> Field:
        """Return the first member that has one of these names, or else one of a default value."""
        return self.find(*names) or Field(default, self.path)

    def members(self) -> list[tuple[str, Field]]:
        """Return the members of an object, in order."""
        if not isinstance(self.value, Mapping):
            raise self.error("an object")
        return [(str(name), self.get(name)) for name in self.value]

    def items(self) -> list[Field]:
        """Return the entries of an array."""
        if not isinstance(self.value, list):
            raise self.error("an array")
        return [Field(entry, f"{self.path}[{i}]") for i, entry in enumerate(self.value)]

    def one_or_many(self) -> list[Field]:
        """Return the entries of an array; a value that is not an array is the only entry."""
        return self.items() if isinstance(self.value, list) else [self]

    def text(self) -> str:
        """Return a string."""
        if not isinstance(self.value, str):
            raise self.error("a string")
        return self.value

    def integer(self, low: int | None = None, high: int | None = None) -> int:
        """Return an integer within bounds, if there are any."""
        value = self.value
        known = isinstance(value, int) and not isinstance(value, bool)
        if not known or (low is not None and value < low) or (high is not None and value > high):
            bounds = "" if low is None else f" from {low} to {high}"
            raise self.error(f"an integer{bounds}")
        return int(value)

    def one_of(self, names: Mapping[str, Any], prefix: str) -> Any:
        """Return what an enum name stands for; its prefix may be left out."""
        name = self.text().removeprefix(prefix)
        if name not in names:
            raise self.error(f"one of {', '.join(names)}, with or without {prefix}")
        return names[name]
