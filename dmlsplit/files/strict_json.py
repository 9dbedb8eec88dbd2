"""A stricter reader of DxDispatch's JSON.

Like DxDispatch's own reader, it accepts comments and trailing commas. Unlike it, it refuses
duplicate keys.
"""

import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

from dmlsplit.errors import InvalidArgumentError, limit_error, unreadable_file_error
from dmlsplit.files.fields import Field
from dmlsplit.files.kinds import check_size
from dmlsplit.messages import cut_middle

_UINT64_MAX = 2**64 - 1
# Parsed JSON takes up to twenty times the size of the file; larger data belongs in a source file.
MAX_JSON_BYTES = 16 << 20

# Both match strings first, because strings may contain comments and commas. Unterminated strings
# and comments match up to the end of the text, which keeps the search linear.
_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)'
_COMMENTS = re.compile(_STRING + r"|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_TRAILING_COMMAS = re.compile(_STRING + r"|,(?=\s*[\]}])", re.DOTALL)


def read_json(path: Path) -> Field:
    """Read a JSON file; NaN and numbers beyond 64 bits are also refused."""
    try:
        check_size(path, MAX_JSON_BYTES, "keep large data in files that sourcePath names")
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise unreadable_file_error(error) from None
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(
            f"cannot be read as UTF-8 text: {error}. Fix: save it in UTF-8"
        ) from None
    return Field(parse_json(text), "")


def parse_json(text: str) -> Any:
    """Parse JSON text, with comments and trailing commas."""
    if "//" in text or "/*" in text:
        text = _COMMENTS.sub(_without_comment, text)
    text = _TRAILING_COMMAS.sub(lambda match: "" if match[0] == "," else match[0], text)
    numbers: Any = {"parse_int": _number, "parse_float": _number, "parse_constant": _constant}
    try:
        return json.loads(text, object_pairs_hook=_object, **numbers)
    except json.JSONDecodeError as error:
        raise InvalidArgumentError(f"is not JSON: {error}") from None
    except RecursionError:
        raise limit_error("it nests arrays or objects too deeply") from None


def _without_comment(match: re.Match[str]) -> str:
    """White space instead of a comment; a string is returned unchanged."""
    text = match[0]
    if text.startswith('"'):
        return text
    if text.startswith("/*") and (len(text) < 4 or not text.endswith("*/")):
        raise InvalidArgumentError(
            f"is not JSON: a comment does not end, {text[:24]!r}. Fix: end it with */"
        )
    return " " + "\n" * text.count("\n")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, whose keys must differ."""
    result = dict(pairs)
    if len(result) != len(pairs):
        ((key, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise InvalidArgumentError(
            f"has the key {cut_middle(key, 40)!r} twice in one object. Fix: remove one"
        )
    return result


def _number(text: str) -> int | float:
    """A number that fits 64 bits."""
    value: int | float = math.inf
    if len(text) <= 1000:
        value = int(text) if text.lstrip("-").isdigit() else float(text)
    if math.isinf(value) or (isinstance(value, int) and not -(2**63) <= value <= _UINT64_MAX):
        raise InvalidArgumentError(
            f"contains the number {cut_middle(text, 24)}, which does not fit 64 bits: an "
            "integer must be from -2^63 to 2^64 - 1, and another number below 2^1024"
        )
    return value


def _constant(text: str) -> float:
    """Refuse NaN and infinity."""
    fix = f"write it as a string, {text.lower().removesuffix('inity')!r}"
    raise InvalidArgumentError(f"contains {text}, which is not JSON; {fix}")
